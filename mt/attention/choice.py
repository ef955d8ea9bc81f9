"""Which of a sentence's attention maps are shown: kinds, layers and heads."""

from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor

from mt.attention.view import Map, View

TITLES = {
    "encoder": "encoder self-attention",
    "decoder": "decoder self-attention (masked)",
    "cross": "cross-attention (from target to source)",
}


@dataclass(frozen=True)
class Choice:
    """kind: of TITLES, None for all. layer and head count from 1; head 0 is the mean of all heads, None each one.

    layer None: each one.
    """

    kind: str | None = None
    layer: int | None = None
    head: int | None = None

    def maps(self, view: View) -> list[Map]:
        """Returns the maps of the chosen kinds. Raises ValueError where there is no such kind, layer or head."""
        if self.kind is not None and self.kind not in TITLES:
            raise ValueError(f"--kind={self.kind}: must be one of {', '.join(TITLES)}")
        chosen = [one for one in view.maps if self.kind in (None, one.kind)]
        layers = min(len(one.weights) for one in chosen)
        heads = chosen[0].weights.shape[1]
        if self.layer is not None and not 1 <= self.layer <= layers:
            raise ValueError(f"--layer={self.layer}: must be between 1 and {layers}{_shorter(chosen)}")
        if self.head is not None and not 0 <= self.head <= heads:
            raise ValueError(f"--head={self.head}: must be between 1 and {heads}, or 0 for the mean of all heads")
        return chosen

    def panels(self, map: Map) -> Iterator[list[tuple[str, Tensor]]]:
        """Yields for each chosen layer its chosen heads: a title, and weights [rows, columns]."""
        layers = range(len(map.weights)) if self.layer is None else [self.layer - 1]
        for layer in layers:
            of_layer = map.weights[layer]
            if self.head == 0:
                yield [(f"layer {layer + 1}, mean of {len(of_layer)} heads", of_layer.mean(0))]
            else:
                heads = range(len(of_layer)) if self.head is None else [self.head - 1]
                yield [(f"layer {layer + 1}, head {head + 1}", of_layer[head]) for head in heads]


def _shorter(maps: list[Map]) -> str:
    """Returns why the highest layer is what it is, where encoder and decoder differ."""
    counts = {len(one.weights) for one in maps}
    return "" if len(counts) == 1 else ", the layers of the shorter stack: choose one kind for more"
