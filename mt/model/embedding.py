"""Token embeddings and positions (Attention Is All You Need, sections 3.4 and 3.5)."""

import math

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
        if longest > self.table.shape[0]:
            size = 1 << (longest - 1).bit_length()
            self.table = sinusoids(torch.arange(size, device=self.table.device), d_model, self.paper)
        return x + self.table[positions].to(x.dtype)


def rotate(x: Tensor, positions: Tensor) -> Tensor:
    """Returns x [N, H, K] with each pair (x_i, x_{i+K/2}) turned by an angle that grows with position (RoFormer)."""
    half = x.shape[-1] // 2
    dtype = torch.promote_types(x.dtype, torch.float32)
    rates = 10_000.0 ** (-torch.arange(half, device=x.device, dtype=dtype) / half)
    angles = (positions[:, None].to(dtype) * rates)[:, None]  # [N, 1, K/2]
    cosine, sine = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    first, second = x[..., :half], x[..., half:]
    return torch.cat([first * cosine - second * sine, first * sine + second * cosine], dim=-1)
