"""Scaled dot-product attention (Attention Is All You Need, section 3.2.1) over packed streams: one contract, four ways.

softmax(Q K^T / sqrt(d_k)) V: the products of two vectors of d_k unit-variance numbers have variance d_k, and a softmax
over numbers that large puts all weight on one token and passes no gradient; dividing by sqrt(d_k) makes the variance 1.
"""

import math
import warnings
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from mt.model.layout import Layout, equal_length_groups


class Attend(Protocol):
    """Returns [N_q, H, K]: for each query the weighted mean of the values of its own sentence.

    q: [N_q, H, K]; k, v: [N_k, H, K]; causal: a query at position i sees positions 0..i (needs equal lengths).
    dropout: chance that an attention weight is zeroed.
    """

    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, q_layout: Layout, k_layout: Layout, causal: bool, dropout: float
    ) -> Tensor: ...


def explicit_weights(q: Tensor, k: Tensor, q_layout: Layout, k_layout: Layout, causal: bool) -> Tensor:
    """Returns the attention weights [B, H, T, S], float32 or better; each row of a real query sums to 1.

    T and S are the longest query and key sentence; weights of padding keys are 0, rows of padding queries are 0.
    """
    scores_dtype = torch.promote_types(q.dtype, torch.float32)
    q_padded = q_layout.pad(q).transpose(1, 2).to(scores_dtype)  # [B, H, T, K]
    k_padded = k_layout.pad(k).transpose(1, 2).to(scores_dtype)  # [B, H, S, K]
    scores = q_padded @ k_padded.transpose(-2, -1) / math.sqrt(q.shape[-1])  # [B, H, T, S]
    allowed = k_layout.mask[:, None, None, :]
    if causal:
        allowed = allowed & torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).tril()
    weights = scores.masked_fill(~allowed, -math.inf).softmax(-1)
    return weights * q_layout.mask[:, None, :, None]


def attend_explicit(
    q: Tensor, k: Tensor, v: Tensor, q_layout: Layout, k_layout: Layout, causal: bool, dropout: float
) -> Tensor:
    """The formula written out; the reference for the other three. See Attend."""
    weights = F.dropout(explicit_weights(q, k, q_layout, k_layout, causal), dropout)
    v_padded = k_layout.pad(v).transpose(1, 2)  # [B, H, S, K]
    return q_layout.unpad((weights.to(v.dtype) @ v_padded).transpose(1, 2))  # [N_q, H, K]


def attend_padded(
    q: Tensor, k: Tensor, v: Tensor, q_layout: Layout, k_layout: Layout, causal: bool, dropout: float
) -> Tensor:
    """Pad, torch's kernel, unpad: any device and precision. See Attend."""
    q_padded, k_padded, v_padded = q_layout.pad(q), k_layout.pad(k), k_layout.pad(v)  # [B, T or S, H, K]
    # under a causal mask padding keys lie behind every real query, so they need no mask of their own
    mask = None if causal else k_layout.mask[:, None, None, :]
    out = F.scaled_dot_product_attention(
        q_padded.transpose(1, 2), k_padded.transpose(1, 2), v_padded.transpose(1, 2), mask, dropout, causal
    )
    return q_layout.unpad(out.transpose(1, 2))  # [N_q, H, K]


class _GroupedAttention(torch.autograd.Function):
    """torch's CPU flash kernel on each run of equal lengths, written into one stream: no padding, masks or copies."""

    @staticmethod
    def forward(ctx, q, k, v, groups, causal):  # noqa: ANN001, ANN205
        out = torch.empty_like(q, memory_format=torch.contiguous_format)
        sums = []
        for group in groups:
            views = _group_views(group, q, k, v)
            part, log_sum = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(*views, 0.0, causal)
            _group_views(group, out)[0].copy_(part)
            sums.append((part, log_sum))
        ctx.save_for_backward(q, k, v, *(tensor for pair in sums for tensor in pair))
        ctx.groups, ctx.causal = groups, causal
        return out

    @staticmethod
    def backward(ctx, grad):  # noqa: ANN001, ANN205
        q, k, v, *sums = ctx.saved_tensors
        grads = [torch.empty(t.shape, dtype=t.dtype) for t in (q, k, v)]
        for index, group in enumerate(ctx.groups):
            part, log_sum = sums[2 * index], sums[2 * index + 1]
            parts = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
                _group_views(group, grad)[0], *_group_views(group, q, k, v), part, log_sum, 0.0, ctx.causal
            )
            for view, value in zip(_group_views(group, *grads), parts, strict=True):
                view.copy_(value)
        return *grads, None, None


def _group_views(group: tuple[int, int, int, int, int], q: Tensor, *keys: Tensor) -> list[Tensor]:
    count, q_start, q_length, k_start, k_length = group
    views = [q[q_start : q_start + count * q_length].unflatten(0, (count, q_length)).transpose(1, 2)]  # [n, H, T, K]
    for key in keys:
        run = key[k_start : k_start + count * k_length]
        views.append(run.unflatten(0, (count, k_length)).transpose(1, 2))  # [n, H, S, K]
    return views


def attend_grouped(
    q: Tensor, k: Tensor, v: Tensor, q_layout: Layout, k_layout: Layout, causal: bool, dropout: float
) -> Tensor:
    """The CPU's way: runs of sentences of equal lengths. See Attend.

    Falls back to padding where the runs are short (sentences in random order) or where dropout is asked for.
    """
    groups = equal_length_groups(q_layout, k_layout)
    if dropout > 0 or len(groups) > 16 + len(q_layout.lengths) // 8:
        return attend_padded(q, k, v, q_layout, k_layout, causal, dropout)
    return _GroupedAttention.apply(q, k, v, groups, causal)


def attend_varlen(
    q: Tensor, k: Tensor, v: Tensor, q_layout: Layout, k_layout: Layout, causal: bool, dropout: float
) -> Tensor:
    """torch's variable-length flash attention: CUDA and half precision only. See Attend."""
    if dropout > 0:
        return attend_padded(q, k, v, q_layout, k_layout, causal, dropout)
    from torch.nn.attention.varlen import varlen_attn

    window = {"window_size": (-1, 0)} if causal else {}  # to the left without limit, nothing to the right
    return varlen_attn(
        q, k, v, q_layout.cumulative_lengths, k_layout.cumulative_lengths, q_layout.longest, k_layout.longest, **window
    )


def choose_attend(device: torch.device, dtype: torch.dtype, head_size: int) -> Attend:
    """Returns the fastest implementation for a device and the type that attention will run in.

    The GPU kernel is tried against the padded one on a few random sentences first; a mismatch or an exception falls
    back to padding, with a warning.
    """
    if device.type == "cpu":
        return attend_grouped
    if device.type != "cuda" or dtype not in (torch.bfloat16, torch.float16):
        return attend_padded
    generator = torch.Generator(device).manual_seed(0)
    layout = Layout.from_lengths([5, 1, 17, 64], device)
    q, k, v = torch.randn(3, 87, 2, head_size, device=device, dtype=dtype, generator=generator)
    for causal in (False, True):
        try:
            error = (
                (
                    attend_varlen(q, k, v, layout, layout, causal, 0.0)
                    - attend_padded(q, k, v, layout, layout, causal, 0.0)
                )
                .abs()
                .max()
                .item()
            )
        except (RuntimeError, ImportError, TypeError, ValueError) as exception:
            warnings.warn(
                f"variable-length attention is not available ({exception}); using padded attention", stacklevel=2
            )
            return attend_padded
        if not error < 0.05:
            warnings.warn(
                f"variable-length attention differs by {error} from padded attention; using padded", stacklevel=2
            )
            return attend_padded
    return attend_varlen
