"""Encoder and decoder layers (Attention Is All You Need, sections 3.1 to 3.3)."""

import torch.nn.functional as F
from torch import Tensor, nn

from mt.config import ModelConfig
from mt.model.attention import Attend
from mt.model.dropout import Dropout
from mt.model.embedding import rotate
from mt.model.layout import Layout


def make_norm(config: ModelConfig) -> nn.Module:
    if config.norm == "rms_norm":
        return nn.RMSNorm(config.d_model, eps=config.norm_epsilon)
    return nn.LayerNorm(config.d_model, eps=config.norm_epsilon)


class SelfAttention(nn.Module):
    """Q, K and V all come from the same sequence. Maps [N, D] to [N, D]."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.n_heads, self.dropout = config.n_heads, Dropout(config.attention_dropout)
        self.rotary = config.positions == "rotary"
        self.query_key_value = nn.Linear(config.d_model, 3 * config.d_model)
        self.output = nn.Linear(config.d_model, config.d_model)

    def project(self, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Returns q, k, v, each [N, H, K], positions turned in where they are rotary."""
        q, k, v = (
            self.query_key_value(x).view(x.shape[0], 3, self.n_heads, -1).unbind(1)
        )  # [N, 3, H, K] -> 3 x [N, H, K]
        if self.rotary:
            q, k = rotate(q, positions), rotate(k, positions)
        return q, k, v

    def forward(self, x: Tensor, layout: Layout, causal: bool, attend: Attend) -> Tensor:
        q, k, v = self.project(x, layout.positions)
        mixed = attend(q, k, v, layout, layout, causal, self.dropout)
        return self.output(mixed.flatten(1))  # [N, H, K] -> [N, D]: the heads side by side

    def step(self, x: Tensor, positions: Tensor, keys: Tensor, values: Tensor, length: int) -> Tensor:
        """One new token per row: x [R, D] at position length-1; its key and value join the caches [R, T, H, K]."""
        q, k, v = self.project(x, positions)
        keys[:, length - 1], values[:, length - 1] = k, v
        q = q.unsqueeze(2)  # [R, H, 1, K]
        mixed = F.scaled_dot_product_attention(q, keys[:, :length].transpose(1, 2), values[:, :length].transpose(1, 2))
        return self.output(mixed.flatten(1))  # [R, H, 1, K] -> [R, D]


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

    def step(self, x: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
        """x [R, D] over B sentences of R/B rows each; keys, values [B, H, S, K]; mask [B, 1, 1, S] True at tokens."""
        sentences = keys.shape[0]
        q = (
            self.query(x).view(sentences, -1, self.n_heads, x.shape[1] // self.n_heads).transpose(1, 2)
        )  # [B, H, R/B, K]
        mixed = F.scaled_dot_product_attention(q, keys, values, mask)
        return self.output(mixed.transpose(1, 2).reshape(x.shape))  # [B, H, R/B, K] -> [R, D]


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

    def forward(self, x: Tensor, layout: Layout, attend: Attend) -> Tensor:
        x = self.around_self.after(x, self.self_attention(self.around_self.before(x), layout, False, attend))
        return self.around_feed_forward.after(x, self.feed_forward(self.around_feed_forward.before(x)))


class DecoderLayer(nn.Module):
    """Masked self-attention, cross-attention, feed-forward. Maps [N_tgt, D] to [N_tgt, D]."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.self_attention, self.around_self = SelfAttention(config), Sublayer(config)
        self.cross_attention, self.around_cross = CrossAttention(config), Sublayer(config)
        self.feed_forward, self.around_feed_forward = FeedForward(config), Sublayer(config)

    def forward(self, x: Tensor, layout: Layout, memory: Tensor, memory_layout: Layout, attend: Attend) -> Tensor:
        x = self.around_self.after(x, self.self_attention(self.around_self.before(x), layout, True, attend))
        looked_up = self.cross_attention(self.around_cross.before(x), layout, memory, memory_layout, attend)
        x = self.around_cross.after(x, looked_up)
        return self.around_feed_forward.after(x, self.feed_forward(self.around_feed_forward.before(x)))

    def step(
        self, x: Tensor, positions: Tensor, self_cache: Tensor, length: int, memory_cache: Tensor, memory_mask: Tensor
    ) -> Tensor:
        """The same for one new token per row. self_cache: [2, R, T, H, K]; memory_cache: [2, B, H, S, K]."""
        change = self.self_attention.step(self.around_self.before(x), positions, self_cache[0], self_cache[1], length)
        x = self.around_self.after(x, change)
        x = self.around_cross.after(
            x, self.cross_attention.step(self.around_cross.before(x), memory_cache[0], memory_cache[1], memory_mask)
        )
        return self.around_feed_forward.after(x, self.feed_forward(self.around_feed_forward.before(x)))
