"""Several models as one: the search sees the mean of their probabilities."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mt.model.layout import Layout
from mt.model.state import DecoderState
from mt.model.transformer import Transformer


@dataclass
class Memories:
    """Each model's encoding of the same sources."""

    of_models: list[Tensor]

    @property
    def device(self) -> torch.device:
        return self.of_models[0].device


class States:
    def __init__(self, of_models: list[DecoderState]) -> None:
        self.of_models = of_models

    def select(self, rows: Tensor, sentences: Tensor | None = None) -> None:
        for state in self.of_models:
            state.select(rows, sentences)


class Ensemble:
    """Models with the same tokenizers, whatever their shapes."""

    def __init__(self, models: Sequence[Transformer]) -> None:
        self.models = list(models)
        self.training = False

    @property
    def device(self) -> torch.device:
        return self.models[0].device

    @torch.inference_mode()
    def encode(self, source: Tensor, layout: Layout) -> Memories:
        return Memories([model.encode(source, layout) for model in self.models])

    def start(self, memory: Memories, layout: Layout) -> States:
        pairs = zip(self.models, memory.of_models, strict=True)
        return States([model.start(own, layout) for model, own in pairs])

    def step(self, tokens: Tensor, state: States) -> Tensor:
        """Returns [R, V_tgt] float32: the log of the mean probability, which softmax leaves as it is."""
        rows = [model.step(tokens, own).log_softmax(1) for model, own in zip(self.models, state.of_models, strict=True)]
        return torch.stack(rows).logsumexp(0) - torch.tensor(float(len(rows))).log()
