"""Token embeddings and positions (Attention Is All You Need, sections 3.4 and 3.5)."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn


def sinusoids(positions: Tensor, d_model: int, paper: bool = False) -> Tensor:
    """Returns [N, D] float32 for positions [N]: sines in the first half of the columns, cosines in the second.

    The paper interleaves them; the order of columns makes no difference to a learned projection. paper: its rates,
    10000^(-2i/D), of which the slowest is faster than 1/10000.
    """
    half = d_model // 2
    steps = half if paper else max(half - 1, 1)
    rates = torch.exp(torch.arange(half, device=positions.device) * (-math.log(10_000.0) / steps))
    angles = positions[:, None].float() * rates
    return torch.cat([angles.sin(), angles.cos()], dim=1)


class Embedding(nn.Module):
    """Embeds tokens [N] as [N, D]: rows of the table times sqrt(D), plus sinusoidal positions unless rotary.

    positions: ModelConfig.positions.
    """

    def __init__(self, vocabulary_size: int, d_model: int, positions: str) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocabulary_size, d_model))
        self.sinusoidal, self.paper = positions != "rotary", positions == "sinusoidal_paper"
        table = sinusoids(torch.arange(512), d_model, self.paper)  # grows when needed
        self.register_buffer("table", table, persistent=False)

    def forward(self, tokens: Tensor, positions: Tensor, longest: int) -> Tensor:
        d_model = self.weight.shape[1]
        x = nn.functional.embedding(tokens, self.weight) * math.sqrt(d_model)  # [N, D]
        if not self.sinusoidal:
            return x
        table = self.table  # another thread may put a shorter one in its place
        if longest > table.shape[0]:
            size = 1 << (longest - 1).bit_length()
            self.table = table = sinusoids(torch.arange(size, device=table.device), d_model, self.paper)
        return x + table[positions].to(x.dtype)


@dataclass(frozen=True)
class Rotation:
    """How far queries and keys are turned at each position (RoFormer): for all layers of a stack the same."""

    cosine: Tensor  # [N, 1, 1, K/2] float32 or better
    sine: Tensor

    @staticmethod
    def at(positions: Tensor, head_size: int, dtype: torch.dtype) -> "Rotation":
        """Returns the rotation of head_size = K numbers at positions [N]: pair i by position * 10000^(-2i/K).

        One position stands for all of them.
        """
        half, dtype = head_size // 2, torch.promote_types(dtype, torch.float32)
        rates = 10_000.0 ** (-torch.arange(half, device=positions.device, dtype=dtype) / half)
        angles = (positions[:, None].to(dtype) * rates)[:, None, None]  # [N, 1, 1, K/2]
        return Rotation(angles.cos(), angles.sin())

    def turn(self, x: Tensor) -> Tensor:
        """Returns x [N, P, H, K] with each pair (x_i, x_{i+K/2}) turned by its angle."""
        cosine, sine = self.cosine.to(x.dtype), self.sine.to(x.dtype)
        return _Turned.apply(x, cosine, sine) if x.requires_grad else _turned(x, cosine, sine)


class _Turned(torch.autograd.Function):
    """The gradient is turned back, so that nothing needs to be kept and each direction is four operations."""

    @staticmethod
    def forward(ctx, x, cosine, sine):  # noqa: ANN001, ANN205
        ctx.save_for_backward(cosine, sine)
        return _turned(x, cosine, sine)

    @staticmethod
    def backward(ctx, grad):  # noqa: ANN001, ANN205
        cosine, sine = ctx.saved_tensors
        return _turned(grad, cosine, -sine), None, None


def _turned(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    turned = torch.empty_like(x, memory_format=torch.contiguous_format)
    new_first, new_second = turned.chunk(2, dim=-1)
    torch.mul(first, cosine, out=new_first).addcmul_(second, sine, value=-1)
    torch.mul(first, sine, out=new_second).addcmul_(second, cosine)
    return turned
