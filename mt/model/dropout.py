"""Dropout that costs little on a CPU, where drawing one Bernoulli number per element takes a fifth of a step."""

import torch
import torch.nn.functional as F
from torch import Tensor


class _CheapDropout(torch.autograd.Function):
    """Keeps each element with chance keep_levels/256, decided by one random byte, and scales by the inverse."""

    @staticmethod
    def forward(ctx, x, dropped_levels):  # noqa: ANN001, ANN205
        words = torch.empty((x.numel() + 7) // 8, dtype=torch.int64)
        words.random_(-(2**63), 2**63 - 1)  # all 64 bits, from torch's own generator: reproducible and resumable
        kept = words.view(torch.uint8)[: x.numel()].view(x.shape) >= dropped_levels
        scaled_mask = kept.to(x.dtype).mul_(256 / (256 - dropped_levels))
        ctx.save_for_backward(scaled_mask)
        return x * scaled_mask

    @staticmethod
    def backward(ctx, grad):  # noqa: ANN001, ANN205
        return grad * ctx.saved_tensors[0], None


def dropout(x: Tensor, probability: float, training: bool) -> Tensor:
    """Returns x with elements zeroed by chance and the rest scaled so that the expectation stays.

    On a CPU the chance is rounded to a multiple of 1/256 (0.1 becomes 26/256 = 0.1016) and the scale fits what is used.
    """
    if not training or probability == 0.0:
        return x
    if x.device.type != "cpu":
        return F.dropout(x, probability)
    return _CheapDropout.apply(x, max(1, round(probability * 256)))
