"""Encoder and decoder layers (Attention Is All You Need, sections 3.1 to 3.3)."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mt.config import ModelConfig
from mt.model.attention import Attend, attend_step
from mt.model.dropout import Dropout
from mt.model.embedding import Rotation
from mt.model.layout import Layout
from mt.model.state import Grid


def make_norm(config: ModelConfig) -> nn.Module:
    if config.norm == "rms_norm":
        return nn.RMSNorm(config.d_model, eps=config.norm_epsilon)
    return nn.LayerNorm(config.d_model, eps=config.norm_epsilon)


class SelfAttention(nn.Module):
    """Q, K and V all come from the same sequence. Maps [N, D] to [N, D]."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.n_heads, self.dropout = config.n_heads, Dropout(config.attention_dropout)
        self.query_key_value = nn.Linear(config.d_model, 3 * config.d_model)
        self.output = nn.Linear(config.d_model, config.d_model)

    def project(self, x: Tensor, rotation: Rotation | None) -> tuple[Tensor, Tensor, Tensor]:
        """Returns q, k, v, each [N, H, K], positions turned in where they are rotary."""
        fused = self.query_key_value(x).view(x.shape[0], 3, self.n_heads, -1)  # [N, 3, H, K]
        if rotation is None:
            return fused.unbind(1)  # 3 x [N, H, K]
        turning, values = fused.split((2, 1), dim=1)
        q, k = rotation.turn(turning).unbind(1)  # 2 x [N, H, K]
        return q, k, values.squeeze(1)

    def forward(self, x: Tensor, layout: Layout, rotation: Rotation | None, causal: bool, attend: Attend) -> Tensor:
        q, k, v = self.project(x, rotation)
        mixed = attend(q, k, v, layout, layout, causal, self.dropout)
        return self.output(mixed.flatten(1))  # [N, H, K] -> [N, D]: the heads side by side

    def step(
        self, x: Tensor, rotation: Rotation | None, grid: Grid, own: tuple[Tensor, Tensor], bias: Tensor | None
    ) -> Tensor:
        """One new token per row: x [R, D]; own keys and values [B*H, C, K], whose last W slots are those of x.

        bias: [B*H, W, C], -inf at slots that are not a row's; None: all are.
        """
        head_size = own[0].shape[2]
        q, new_keys, new_values = grid.fused_to_cells(self.query_key_value(x), head_size)  # 3 x [B*H, W, K]
        if rotation is not None:
            q, new_keys = rotation.turn(torch.stack((q, new_keys)))
        for cache, new in zip(own, (new_keys, new_values), strict=True):
            cache[:, -grid.width :] = new
        return self.output(grid.to_rows(attend_step(q, *own, bias)))


class CrossAttention(nn.Module):
    """Q from the decoder, K and V from the encoder: each target token asks, the source answers (section 3.2.3)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.n_heads, self.dropout = config.n_heads, Dropout(config.attention_dropout)
        self.query = nn.Linear(config.d_model, config.d_model)
        self.key_value = nn.Linear(config.d_model, 2 * config.d_model)
        self.output = nn.Linear(config.d_model, config.d_model)

    def project_memory(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Returns k, v, each [N_src, H, K]."""
        return self.key_value(memory).view(memory.shape[0], 2, self.n_heads, -1).unbind(1)

    def forward(self, x: Tensor, layout: Layout, memory: Tensor, memory_layout: Layout, attend: Attend) -> Tensor:
        q = self.query(x).view(x.shape[0], self.n_heads, -1)  # [N, H, K]
        k, v = self.project_memory(memory)
        mixed = attend(q, k, v, layout, memory_layout, False, self.dropout)
        return self.output(mixed.flatten(1))  # [N, H, K] -> [N, D]

    def step(self, x: Tensor, grid: Grid, memory: tuple[Tensor, Tensor], bias: Tensor | None) -> Tensor:
        """x [R, D]; memory: keys and values [B*H, S, K]; bias [B*H, 1, S]."""
        q = grid.to_cells(self.query(x), memory[0].shape[2])
        return self.output(grid.to_rows(attend_step(q, *memory, bias)))


class FeedForward(nn.Module):
    """Two linear maps around an activation, for each token alone (section 3.3). SwiGLU gates half with half."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.activation, self.dropout = config.activation, Dropout(config.activation_dropout)
        self.inner = nn.Linear(config.d_model, config.d_ff * (2 if config.activation == "swiglu" else 1))
        self.output = nn.Linear(config.d_ff, config.d_model)

    def forward(self, x: Tensor) -> Tensor:
        x = self.inner(x)
        if self.activation == "swiglu":
            gate, x = x.chunk(2, dim=-1)
            x = F.silu(gate) * x
        elif self.activation == "gelu":
            x = F.gelu(x)
        elif self.activation == "silu":
            x = F.silu(x)
        else:
            x = F.relu(x, inplace=True)
        return self.output(self.dropout(x))


class Sublayer(nn.Module):
    """The residual connection around a sublayer: pre-norm x + f(norm(x)), post-norm (the paper) norm(x + f(x))."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.norm = make_norm(config)
        self.pre, self.dropout = config.norm_position == "pre", Dropout(config.dropout)

    def before(self, x: Tensor) -> Tensor:
        return self.norm(x) if self.pre else x

    def after(self, x: Tensor, change: Tensor) -> Tensor:
        x = self.dropout(change, residual=x)
        return x if self.pre else self.norm(x)


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward. Maps [N, D] to [N, D]."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.self_attention, self.around_self = SelfAttention(config), Sublayer(config)
        self.feed_forward, self.around_feed_forward = FeedForward(config), Sublayer(config)

    def forward(self, x: Tensor, layout: Layout, rotation: Rotation | None, attend: Attend) -> Tensor:
        x = self.around_self.after(x, self.self_attention(self.around_self.before(x), layout, rotation, False, attend))
        return self.around_feed_forward.after(x, self.feed_forward(self.around_feed_forward.before(x)))


class DecoderLayer(nn.Module):
    """Masked self-attention, cross-attention, feed-forward. Maps [N_tgt, D] to [N_tgt, D]."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.self_attention, self.around_self = SelfAttention(config), Sublayer(config)
        self.cross_attention, self.around_cross = CrossAttention(config), Sublayer(config)
        self.feed_forward, self.around_feed_forward = FeedForward(config), Sublayer(config)

    def forward(
        self,
        x: Tensor,
        layout: Layout,
        rotation: Rotation | None,
        memory: Tensor,
        memory_layout: Layout,
        attend: Attend,
    ) -> Tensor:
        x = self.around_self.after(x, self.self_attention(self.around_self.before(x), layout, rotation, True, attend))
        looked_up = self.cross_attention(self.around_cross.before(x), layout, memory, memory_layout, attend)
        x = self.around_cross.after(x, looked_up)
        return self.around_feed_forward.after(x, self.feed_forward(self.around_feed_forward.before(x)))

    def step(
        self,
        x: Tensor,
        rotation: Rotation | None,
        grid: Grid,
        own: tuple[Tensor, Tensor],
        own_bias: Tensor | None,
        memory: tuple[Tensor, Tensor],
        memory_bias: Tensor | None,
    ) -> Tensor:
        """The same for one new token per row, the T-th of its sentence.

        own: keys and values [B*H, C, K], the last slots still empty; memory: [B*H, S, K].
        """
        change = self.self_attention.step(self.around_self.before(x), rotation, grid, own, own_bias)
        x = self.around_self.after(x, change)
        x = self.around_cross.after(
            x, self.cross_attention.step(self.around_cross.before(x), grid, memory, memory_bias)
        )
        return self.around_feed_forward.after(x, self.feed_forward(self.around_feed_forward.before(x)))
