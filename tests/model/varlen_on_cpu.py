"""A CPU kernel for torch's variable-length attention, which has one for CUDA only: to test the code around it."""

import math

import torch
from torch import Tensor
from torch.nn.attention import varlen

from mt.model.attention import explicit_weights
from mt.model.layout import Layout


def layouts(q_cumulative: Tensor, k_cumulative: Tensor) -> tuple[Layout, Layout]:
    return tuple(Layout.from_lengths(cumulative.diff().tolist()) for cumulative in (q_cumulative, k_cumulative))


def attention(q, k, v, q_cumulative, k_cumulative, longest_q, longest_k, causal=False, *rest):
    """The arguments after `causal` differ from version to version of torch; the program uses none of them."""
    q_layout, k_layout = layouts(q_cumulative, k_cumulative)
    assert longest_q >= q_layout.longest and longest_k >= k_layout.longest
    weights = explicit_weights(q, k, q_layout, k_layout, causal).nan_to_num(0.0)  # a sentence without keys
    out = q_layout.unpad((weights.to(v.dtype) @ k_layout.pad(v).transpose(1, 2)).transpose(1, 2))
    return out.contiguous(), torch.zeros(q.shape[1], q.shape[0]), torch.zeros(2, dtype=torch.uint64)


def gradients(grad, q, k, v, out, lse, q_cumulative, k_cumulative, longest_q, longest_k, causal, *rest):
    q_layout, k_layout = layouts(q_cumulative, k_cumulative)
    weights = explicit_weights(q, k, q_layout, k_layout, causal).nan_to_num(0.0)  # [B, H, T, S]
    q_heads, grad_heads = (q_layout.pad(x).transpose(1, 2).to(weights.dtype) for x in (q, grad))
    k_heads, v_heads = (k_layout.pad(x).transpose(1, 2).to(weights.dtype) for x in (k, v))
    weights_grad = grad_heads @ v_heads.mT
    scores_grad = weights * (weights_grad - (weights_grad * weights).sum(-1, keepdim=True)) / math.sqrt(q.shape[-1])
    sides = (
        (q_layout, scores_grad @ k_heads),
        (k_layout, scores_grad.mT @ q_heads),
        (k_layout, weights.mT @ grad_heads),
    )
    return tuple(layout.unpad(heads.transpose(1, 2)).to(q.dtype).contiguous() for layout, heads in sides)


def register() -> None:
    """Makes `attend_varlen` work on a CPU, in this process, for any precision."""
    varlen._varlen_attn.register_kernel("cpu")(attention)
    varlen._varlen_attn_backward.register_kernel("cpu")(gradients)
