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

from mt.model.dropout import Dropout
from mt.model.layout import Layout, equal_length_groups

LONGEST_GROUPED = 128  # tokens
LARGEST_ERROR = 0.05  # of a GPU's kernel, as a share of the largest value: bf16 keeps 8 bits


class Attend(Protocol):
    """Returns [N_q, H, K]: for each query the weighted mean of the values of its own sentence.

    q: [N_q, H, K]; k, v: [N_k, H, K]; causal: a query at position i sees positions 0..i (needs equal lengths).
    dropout: of the attention weights.
    """

    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, q_layout: Layout, k_layout: Layout, causal: bool, dropout: Dropout
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
    q: Tensor, k: Tensor, v: Tensor, q_layout: Layout, k_layout: Layout, causal: bool, dropout: Dropout
) -> Tensor:
    """The formula written out; the reference for the other three. See Attend."""
    return weighted_means(dropout(explicit_weights(q, k, q_layout, k_layout, causal)), v, q_layout, k_layout)


def weighted_means(weights: Tensor, v: Tensor, q_layout: Layout, k_layout: Layout) -> Tensor:
    """Returns [N_q, H, K]: the values [N_k, H, K], added up by the weights [B, H, T, S]."""
    v_padded = k_layout.pad(v).transpose(1, 2)  # [B, H, S, K]
    return q_layout.unpad((weights.to(v.dtype) @ v_padded).transpose(1, 2))  # [N_q, H, K]


def attend_padded(
    q: Tensor, k: Tensor, v: Tensor, q_layout: Layout, k_layout: Layout, causal: bool, dropout: Dropout
) -> Tensor:
    """Pad, torch's kernel, unpad: any device and precision. See Attend."""
    if dropout.active and q.device.type == "cpu":  # torch's kernel draws from a generator that all threads share
        return attend_explicit(q, k, v, q_layout, k_layout, causal, dropout)
    q_padded, k_padded, v_padded = q_layout.pad(q), k_layout.pad(k), k_layout.pad(v)  # [B, T or S, H, K]
    # under a causal mask padding keys lie behind every real query, so they need no mask of their own
    mask = None if causal else k_layout.mask[:, None, None, :]
    probability = dropout.probability if dropout.active else 0.0
    out = F.scaled_dot_product_attention(
        q_padded.transpose(1, 2), k_padded.transpose(1, 2), v_padded.transpose(1, 2), mask, probability, causal
    )
    return q_layout.unpad(out.transpose(1, 2))  # [N_q, H, K]


class _GroupedAttention(torch.autograd.Function):
    """The formula on each run of equal lengths, inside which the stream is the padded form: no padding, no masks.

    For sentences of up to a hundred tokens two batched products and a softmax take half the time of torch's flash
    kernel for CPUs.
    """

    @staticmethod
    def forward(ctx, q, k, v, groups, causal, dropout):  # noqa: ANN001, ANN205
        out = torch.empty_like(q, memory_format=torch.contiguous_format)
        saved = []
        for count, q_run, k_run in groups:
            q_heads, k_heads, v_heads = _heads(q[q_run], count), _heads(k[k_run], count), _heads(v[k_run], count)
            scores = torch.bmm(q_heads, k_heads.mT).mul_(q.shape[-1] ** -0.5)  # [n*H, T, S]
            if causal:
                scores += torch.full(scores.shape[1:], -math.inf, dtype=scores.dtype).triu_(1)
            weights = torch.softmax(scores, -1)
            mask = dropout.mask(weights) if dropout.active else None
            _put(out[q_run], torch.bmm(weights if mask is None else weights * mask, v_heads), count)
            saved += [q_heads, k_heads, v_heads, weights, mask]
        ctx.save_for_backward(*saved)
        ctx.groups, ctx.shapes = groups, (q.shape, k.shape)
        return out

    @staticmethod
    def backward(ctx, grad):  # noqa: ANN001, ANN205
        (q_grad, k_grad, v_grad), saved = (grad.new_empty(ctx.shapes[side]) for side in (0, 1, 1)), ctx.saved_tensors
        for index, (count, q_run, k_run) in enumerate(ctx.groups):
            q_heads, k_heads, v_heads, weights, mask = saved[5 * index : 5 * index + 5]
            out_grad = _heads(grad[q_run], count)
            weights_grad = torch.bmm(out_grad, v_heads.mT)
            if mask is not None:
                weights_grad *= mask
            scores_grad = torch.ops.aten._softmax_backward_data(weights_grad, weights, -1, weights.dtype)
            scores_grad *= q_grad.shape[-1] ** -0.5
            _put(q_grad[q_run], torch.bmm(scores_grad, k_heads), count)
            _put(k_grad[k_run], torch.bmm(scores_grad.mT, q_heads), count)
            _put(v_grad[k_run], torch.bmm((weights if mask is None else weights * mask).mT, out_grad), count)
        return q_grad, k_grad, v_grad, None, None, None


def _heads(run: Tensor, count: int) -> Tensor:
    """Returns [n*H, T, K] of the stream [n*T, H, K] of n sentences of T tokens."""
    return run.unflatten(0, (count, -1)).transpose(1, 2).reshape(-1, len(run) // count, run.shape[-1])


def _put(run: Tensor, heads: Tensor, count: int) -> None:
    """Writes [n*H, T, K] into the stream [n*T, H, K]."""
    run.unflatten(0, (count, -1)).copy_(heads.unflatten(0, (count, -1)).transpose(1, 2))


def attend_grouped(
    q: Tensor, k: Tensor, v: Tensor, q_layout: Layout, k_layout: Layout, causal: bool, dropout: Dropout
) -> Tensor:
    """The CPU's way: runs of sentences of equal lengths. See Attend.

    Falls back to padding where the runs are short (sentences in random order), and where sentences are so long that
    their weights should not be held.
    """
    groups = equal_length_groups(q_layout, k_layout)
    if len(groups) > 16 + len(q_layout.lengths) // 8 or max(q_layout.longest, k_layout.longest) > LONGEST_GROUPED:
        return attend_padded(q, k, v, q_layout, k_layout, causal, dropout)
    return _GroupedAttention.apply(q, k, v, groups, causal, dropout)


def attend_step(q: Tensor, keys: Tensor, values: Tensor, bias: Tensor | None) -> Tensor:
    """Returns [G, W, K]: the formula for the few queries of a step of a search, [G, W, K].

    keys, values: [G, T, K], in any strides; bias: [G, 1, T] or None, added to the scores, -inf where there is no key.
    Twice as fast as torch's kernels, which are made for long queries.
    """
    scale = q.shape[-1] ** -0.5
    if bias is None:
        scores = torch.baddbmm(q.new_empty(1), q, keys.mT, beta=0, alpha=scale)  # [G, W, T]
    else:
        scores = torch.baddbmm(bias, q, keys.mT, alpha=scale)
    return torch.bmm(torch.softmax(scores, -1, torch.promote_types(q.dtype, torch.float32)).to(q.dtype), values)


def attend_varlen(
    q: Tensor, k: Tensor, v: Tensor, q_layout: Layout, k_layout: Layout, causal: bool, dropout: Dropout
) -> Tensor:
    """torch's variable-length flash attention: CUDA and half precision only. See Attend."""
    if dropout.active:
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
    try:
        error = max(varlen_error(device, dtype, head_size, causal) for causal in (False, True))
    except (RuntimeError, ImportError, TypeError, ValueError) as exception:
        warnings.warn(f"variable-length attention is not available ({exception}); using padded attention", stacklevel=2)
        return attend_padded
    if not error < LARGEST_ERROR:
        warnings.warn(f"variable-length attention differs by {error:.3f} from padded; using padded", stacklevel=2)
        return attend_padded
    return attend_varlen


def varlen_error(device: torch.device, dtype: torch.dtype, head_size: int, causal: bool) -> float:
    """Returns the largest difference of variable-length from padded attention, as a share of the largest value.

    Of outputs and of each gradient, on a few random sentences, empty ones among them.
    """
    layout = Layout.from_lengths([5, 1, 17, 64, 0], device)
    generator = torch.Generator(device).manual_seed(0)
    q, k, v = torch.randn(3, 87, 2, head_size, device=device, dtype=dtype, generator=generator).requires_grad_()
    outcomes = []
    for attend in (attend_padded, attend_varlen):
        out = attend(q, k, v, layout, layout, causal, Dropout(0.0))
        outcomes.append(torch.stack([out, *torch.autograd.grad(out.square().sum(), (q, k, v))]).detach())
    expected, found = outcomes
    return ((found - expected).abs().amax((1, 2, 3)) / expected.abs().amax((1, 2, 3))).max().item()
