"""Dropout that costs little on a CPU, where drawing one Bernoulli number per element takes a fifth of a step."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

LEVELS = 256  # of the random byte that decides about an element


class _Masked(torch.autograd.Function):
    """residual + x * mask; the mask is all that the backward pass needs."""

    @staticmethod
    def forward(ctx, x, mask, residual):  # noqa: ANN001, ANN205
        ctx.save_for_backward(mask)
        return x * mask if residual is None else torch.addcmul(residual, x, mask)

    @staticmethod
    def backward(ctx, grad):  # noqa: ANN001, ANN205
        return grad * ctx.saved_tensors[0], None, grad if ctx.needs_input_grad[2] else None


class Dropout(nn.Module):
    """Zeroes elements by chance and scales the rest so that the expectation stays; in evaluation it changes nothing.

    On a CPU the chance is rounded to a multiple of 1/256 (0.1 becomes 26/256 = 0.1016), the scale fits what is used,
    and the bits come from `bits`, which `seed` sets: NumPy draws and compares them five times as fast as torch.
    """

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.probability = probability
        self.dropped_levels = max(1, round(probability * LEVELS))
        self.bits: np.random.BitGenerator = np.random.SFC64(0)

    @property
    def active(self) -> bool:
        return self.training and self.probability > 0

    def forward(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        """Returns x after dropout, added to residual where there is one (both of one shape)."""
        if not self.active:
            return x if residual is None else residual + x
        if x.device.type != "cpu":
            x = F.dropout(x, self.probability)
            return x if residual is None else residual + x
        return _Masked.apply(x, self.mask(x), residual)

    def mask(self, like: Tensor) -> Tensor:
        """Returns random factors of the shape and type of a tensor: 0 or the scale that makes up for the zeroes."""
        count = like.numel()
        bits = self.bits.random_raw((count + 7) // 8).view(np.uint8)[:count]
        kept = (bits >= self.dropped_levels).view(np.uint8)
        scaled = np.multiply(kept, np.float32(LEVELS / (LEVELS - self.dropped_levels)))
        return torch.from_numpy(scaled).view(like.shape).to(like.dtype)


def repeatable(module: nn.Module) -> tuple[AbstractContextManager, AbstractContextManager]:
    """Returns contexts for a pass through a module and for its repetition, which draws the same masks on a CPU.

    (On a GPU torch.utils.checkpoint sees to it.) For a module whose masks `seed_dropout` seeded, as it does again
    before what is drawn after the repetition.
    """
    bits = next((part.bits for part in module.modules() if isinstance(part, Dropout)), None)
    state = bits.state if bits is not None else None

    @contextmanager
    def again() -> Iterator[None]:
        if bits is not None:
            bits.state = state
        yield

    return nullcontext(), again()


def seed_dropout(model: nn.Module, seed: int) -> None:
    """Makes the masks that a model draws from now on a function of the seed: on a CPU of this model alone."""
    torch.manual_seed(seed)  # what GPUs draw from
    bits = np.random.SFC64(seed)
    for module in model.modules():
        if isinstance(module, Dropout):
            module.bits = bits
