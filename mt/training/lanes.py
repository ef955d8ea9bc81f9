"""Backward passes of several pieces of an update at a time, each in a thread of its own: they meet once an update."""

import copy
import math
from collections.abc import Callable
from contextlib import AbstractContextManager

from torch import nn

from mt.data.batch import Batch
from mt.model.dropout import seed_dropout
from mt.threads import threads_of_one_core
from mt.training.loss import PairLoss

PIECE_TOKENS = 1024  # of the longer side, about; with fewer, matrix products get slow
SMALLEST_TO_CUT = 256  # batches of fewer tokens stay whole


def pieces_of(batch_tokens: int) -> int:
    """Returns into how many pieces batches of this size are cut: a power of two, so that threads have equally many."""
    least = 1 if batch_tokens >= SMALLEST_TO_CUT else 0  # two cores are the usual minimum
    return 1 << max(least, round(math.log2(batch_tokens / PIECE_TOKENS)))


class Lanes:
    """`count` threads of one core each. They share the model's weights and have gradients of their own."""

    def __init__(self, pair_loss: PairLoss, count: int) -> None:
        shared = [{id(p): nn.Parameter(p.data) for p in pair_loss.parameters()} for _ in range(count - 1)]
        self.copies = [pair_loss, *(copy.deepcopy(pair_loss, parameters) for parameters in shared)]
        self._threads = threads_of_one_core(count, "lane")

    def backward(self, pieces: list[Batch], scale: float, autocast: Callable[[], AbstractContextManager]) -> float:
        """Returns the summed loss without smoothing; adds the gradients of `scale` times the loss to the model's.

        Which lane takes which piece is fixed, and the sums are made in order, so that the result does not depend on
        which thread is faster.
        """

        def lane(number: int) -> float:
            pair_loss, total = self.copies[number], 0.0
            for piece in pieces[number :: len(self.copies)]:
                seed_dropout(pair_loss, piece.dropout_seed)
                with autocast():
                    loss = pair_loss(piece)
                (loss.smoothed * scale).backward()
                total += float(loss.negative_log_likelihood)
            return total

        total = sum(list(self._threads.map(lane, range(len(self.copies)))))
        for other in self.copies[1:]:
            for own, part in zip(self.copies[0].parameters(), other.parameters(), strict=True):
                if own.grad is None:
                    own.grad = part.grad
                elif part.grad is not None:
                    own.grad += part.grad
                part.grad = None
        return total
