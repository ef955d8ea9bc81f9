"""Attention that is watched: results equal to the fast kernels', and weights that are those of the formula."""

import pytest
import torch

from mt.config import ModelConfig
from mt.model.attention import attend_grouped, attend_padded
from mt.model.layout import Layout
from mt.model.recording import Recording
from mt.model.transformer import Transformer

SOURCE_LENGTHS, TARGET_LENGTHS = [4, 1, 6], [3, 5, 6]
SHAPES = [{}, {"positions": "rotary"}, {"norm_position": "post"}, {"n_heads": 1}]


def model(**changes):
    torch.manual_seed(0)
    shape = {"d_model": 24, "d_ff": 32, "n_heads": 3, "encoder_layers": 3, "decoder_layers": 2, "tying": "none"}
    return Transformer(ModelConfig(**(shape | changes)), 30, 30).double().eval()


def streams():
    generator = torch.Generator().manual_seed(1)
    return [
        (torch.randint(4, 30, (sum(lengths),), generator=generator), Layout.from_lengths(lengths))
        for lengths in (SOURCE_LENGTHS, TARGET_LENGTHS)
    ]


@pytest.mark.parametrize("changes", SHAPES)
@pytest.mark.parametrize("fast", [attend_grouped, attend_padded])
@torch.inference_mode()
def test_results_equal_those_of_the_fast_kernels(changes, fast):
    made, ((source, source_layout), (target, target_layout)) = model(**changes), streams()
    memory = made.encode(source, source_layout, Recording())
    torch.testing.assert_close(memory, made.encode(source, source_layout, fast), rtol=0, atol=1e-12)
    results = [made.decode(target, target_layout, memory, source_layout, attend) for attend in (Recording(), fast)]
    torch.testing.assert_close(*results, rtol=0, atol=1e-12)
    torch.testing.assert_close(results[0], made(source, source_layout, target, target_layout), rtol=0, atol=1e-12)


@pytest.mark.parametrize("changes", SHAPES)
@torch.inference_mode()
def test_the_weights_kept_make_what_the_fast_kernel_returns(changes):
    made, ((source, source_layout), (target, target_layout)) = model(**changes), streams()
    recording, calls = Recording(), []

    def checked(q, k, v, q_layout, k_layout, causal, dropout):
        out = recording(q, k, v, q_layout, k_layout, causal, dropout)
        kept = (recording.masked if causal else recording.unmasked)[-1]
        by_hand = torch.einsum("bhts,bshk->bthk", kept, k_layout.pad(v))
        fast = attend_grouped(q, k, v, q_layout, k_layout, causal, dropout)
        torch.testing.assert_close(q_layout.unpad(by_hand), fast, rtol=0, atol=1e-12)
        calls.append(causal)
        return out

    memory = made.encode(source, source_layout, checked)
    assert calls == [False] * 3 and len(recording.unmasked) == 3 and not recording.masked
    recording = Recording()
    made.decode(target, target_layout, memory, source_layout, checked)
    assert calls[3:] == [True, False] * 2
    heads = made.config.n_heads
    assert [tuple(w.shape) for w in recording.masked] == [(3, heads, 6, 6)] * 2
    assert [tuple(w.shape) for w in recording.unmasked] == [(3, heads, 6, 6)] * 2
    for weights in recording.masked + recording.unmasked:
        sums = weights.sum(-1)  # [B, H, T]: 1 for tokens, 0 for padding
        torch.testing.assert_close(sums, target_layout.mask[:, None].double().expand_as(sums))
    assert all(not weights.triu(1).any() for weights in recording.masked)


@torch.inference_mode()
def test_one_layout_for_both_sides_keeps_the_kinds_apart():
    made, (_, (target, layout)) = model(), streams()
    recording = Recording()
    made.decode(target, layout, made.encode(target, layout), layout, recording)
    assert len(recording.masked) == len(recording.unmasked) == 2
    only = Recording(only_unmasked=True)
    made.decode(target, layout, made.encode(target, layout), layout, only)
    assert not only.masked
    assert all(torch.equal(a, b) for a, b in zip(only.unmasked, recording.unmasked, strict=True))
