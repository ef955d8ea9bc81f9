"""The attention kernels against the formula and torch.nn.MultiheadAttention, values and gradients, in float64."""

import math

import pytest
import torch
from torch import nn

from mt.config import ModelConfig
from mt.model.attention import (
    attend_explicit,
    attend_grouped,
    attend_padded,
    explicit_weights,
)
from mt.model.dropout import Dropout, seed_dropout
from mt.model.layers import CrossAttention, SelfAttention
from mt.model.layout import Layout, equal_length_groups

H, K = 3, 4


def tensors(q_lengths, k_lengths):
    generator = torch.Generator().manual_seed(0)
    shapes = (sum(q_lengths), sum(k_lengths), sum(k_lengths))
    return [torch.randn(n, H, K, dtype=torch.float64, generator=generator, requires_grad=True) for n in shapes]


def by_hand(q, k, v, q_lengths, k_lengths, causal):
    """One sentence and one head at a time."""
    out, q_start, k_start = [], 0, 0
    for t, s in zip(q_lengths, k_lengths, strict=True):
        heads = []
        for h in range(H):
            scores = q[q_start : q_start + t, h] @ k[k_start : k_start + s, h].T / math.sqrt(K)
            if causal:
                scores = scores + torch.full((t, s), -math.inf, dtype=torch.float64).triu(1)
            heads.append(scores.softmax(-1) @ v[k_start : k_start + s, h])
        out.append(torch.stack(heads, 1))
        q_start, k_start = q_start + t, k_start + s
    return torch.cat(out)


CASES = [
    ([3, 3, 5, 1], [3, 3, 5, 1], True),
    ([3, 3, 5, 1], [3, 3, 5, 1], False),
    ([2, 2, 7, 7], [4, 4, 1, 6], False),
    ([1], [9], False),
    (list(range(1, 41)), list(range(1, 41)), True),  # more runs than the grouped kernel takes
]


@pytest.mark.parametrize("attend", [attend_explicit, attend_padded, attend_grouped])
@pytest.mark.parametrize(("q_lengths", "k_lengths", "causal"), CASES)
def test_kernels_equal_the_formula(attend, q_lengths, k_lengths, causal):
    q, k, v = tensors(q_lengths, k_lengths)
    expected = by_hand(q, k, v, q_lengths, k_lengths, causal)
    upstream = torch.randn(expected.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    expected_grads = torch.autograd.grad((expected * upstream).sum(), (q, k, v))
    q_layout, k_layout = Layout.from_lengths(q_lengths), Layout.from_lengths(k_lengths)
    if causal:
        k_layout = q_layout
    out = attend(q, k, v, q_layout, k_layout, causal, Dropout(0.0))
    grads = torch.autograd.grad((out * upstream).sum(), (q, k, v))
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-12)
    for grad, wanted in zip(grads, expected_grads, strict=True):
        torch.testing.assert_close(grad, wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("q_lengths", "k_lengths", "causal"), CASES)
def test_grouped_attention_drops_weights_and_passes_the_gradient_of_those_that_are_left(q_lengths, k_lengths, causal):
    """By differences of the function itself, whose masks repeat when the bits do."""
    q, k, v = tensors(q_lengths, k_lengths)
    q_layout, k_layout = Layout.from_lengths(q_lengths), Layout.from_lengths(k_lengths)
    if causal:
        k_layout = q_layout
    dropout = Dropout(0.4)

    def mixed(q, k, v):
        seed_dropout(dropout, 7)
        return attend_grouped(q, k, v, q_layout, k_layout, causal, dropout)

    plain = attend_grouped(q, k, v, q_layout, k_layout, causal, Dropout(0.0))
    assert not torch.allclose(mixed(q, k, v), plain)
    direction = [torch.randn_like(t) for t in (q, k, v)]
    step = 1e-6
    ahead = mixed(*(t + step * d for t, d in zip((q, k, v), direction, strict=True))).square().sum()
    behind = mixed(*(t - step * d for t, d in zip((q, k, v), direction, strict=True))).square().sum()
    grads = torch.autograd.grad(mixed(q, k, v).square().sum(), (q, k, v))
    slope = sum(float((g * d).sum()) for g, d in zip(grads, direction, strict=True))
    assert slope == pytest.approx(float((ahead - behind).detach()) / (2 * step), rel=1e-5)


def test_long_sentences_are_padded_instead():
    q, k, v = tensors([200, 200], [200, 200])
    layout = Layout.from_lengths([200, 200])
    out = attend_grouped(q, k, v, layout, layout, True, Dropout(0.0))
    torch.testing.assert_close(out, attend_explicit(q, k, v, layout, layout, True, Dropout(0.0)), rtol=0, atol=1e-12)


def test_weights_sum_to_one_and_hide_the_future_and_padding():
    q, k, _ = tensors([4, 2], [4, 2])
    layout = Layout.from_lengths([4, 2])
    weights = explicit_weights(q, k, layout, layout, causal=True)  # [2, H, 4, 4]
    torch.testing.assert_close(weights[0].sum(-1), torch.ones(H, 4, dtype=torch.float64))
    torch.testing.assert_close(weights[1].sum(-1)[:, :2], torch.ones(H, 2, dtype=torch.float64))
    assert torch.all(weights.triu(1) == 0)
    assert torch.all(weights[1, :, 2:] == 0)


def test_equal_length_groups_cover_all_sentences_once():
    q_layout, k_layout = Layout.from_lengths([2, 2, 2, 5]), Layout.from_lengths([3, 3, 4, 4])
    assert equal_length_groups(q_layout, k_layout) == [
        (2, slice(0, 4), slice(0, 6)),
        (1, slice(4, 6), slice(6, 10)),
        (1, slice(6, 11), slice(10, 14)),
    ]


def test_self_attention_equals_torch():
    config = ModelConfig(d_model=H * K, n_heads=H, dropout=0.0)
    ours = SelfAttention(config).double()
    theirs = nn.MultiheadAttention(H * K, H, batch_first=True, dtype=torch.float64)
    theirs.in_proj_weight.data.copy_(ours.query_key_value.weight)
    theirs.in_proj_bias.data.normal_()
    ours.query_key_value.bias.data.copy_(theirs.in_proj_bias)
    theirs.out_proj.load_state_dict(ours.output.state_dict())
    layout = Layout.from_lengths([5, 2, 5])
    x = torch.randn(12, H * K, dtype=torch.float64, requires_grad=True)
    padded = layout.pad(x)
    expected = layout.unpad(theirs(padded, padded, padded, key_padding_mask=~layout.mask, need_weights=False)[0])
    out = ours(x, layout, None, False, attend_grouped)
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-12)
    (wanted,) = torch.autograd.grad(expected.square().sum(), x, retain_graph=True)
    (grad,) = torch.autograd.grad(out.square().sum(), x, retain_graph=True)
    torch.testing.assert_close(grad, wanted, rtol=0, atol=1e-11)


def test_cross_attention_takes_queries_from_the_decoder_and_keys_and_values_from_the_encoder():
    config = ModelConfig(d_model=H * K, n_heads=H, dropout=0.0)
    ours = CrossAttention(config).double()
    theirs = nn.MultiheadAttention(H * K, H, batch_first=True, dtype=torch.float64)
    theirs.in_proj_weight.data.copy_(torch.cat([ours.query.weight, ours.key_value.weight]))
    theirs.in_proj_bias.data.copy_(torch.cat([ours.query.bias, ours.key_value.bias]))
    theirs.out_proj.load_state_dict(ours.output.state_dict())
    target, source = Layout.from_lengths([3, 4]), Layout.from_lengths([6, 2])
    x, memory = torch.randn(7, H * K, dtype=torch.float64), torch.randn(8, H * K, dtype=torch.float64)
    padded = source.pad(memory)
    expected = theirs(target.pad(x), padded, padded, key_padding_mask=~source.mask, need_weights=False)[0]
    out = ours(x, target, memory, source, attend_grouped)
    torch.testing.assert_close(out, target.unpad(expected), rtol=0, atol=1e-12)
