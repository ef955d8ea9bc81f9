"""Attention that can be watched: the formula written out, which keeps the weights that its results were made with."""

from torch import Tensor

from mt.model.attention import explicit_weights, weighted_means
from mt.model.dropout import Dropout
from mt.model.layout import Layout


class Recording:
    """Attends (see Attend) as attend_explicit does, and keeps the weights [B, H, T, S] of each layer in order.

    Of an encoder, all are in `unmasked`. Of a decoder, its self-attention is in `masked` (unless only_unmasked says
    that it is not wanted), its cross-attention in `unmasked`.
    """

    def __init__(self, only_unmasked: bool = False) -> None:
        self.only_unmasked = only_unmasked
        self.masked: list[Tensor] = []
        self.unmasked: list[Tensor] = []

    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, q_layout: Layout, k_layout: Layout, causal: bool, dropout: Dropout
    ) -> Tensor:
        weights = explicit_weights(q, k, q_layout, k_layout, causal)
        if not causal:
            self.unmasked.append(weights)
        elif not self.only_unmasked:
            self.masked.append(weights)
        return weighted_means(dropout(weights), v, q_layout, k_layout)
