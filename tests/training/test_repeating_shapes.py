"""Batches of one shape: the same numbers as without, and one graph of torch.compile for all of a run's batches."""

import dataclasses
from functools import partial

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch._dynamo.testing import CompileCounter

from mt.config import ModelConfig
from mt.data.batch import DEAD_TOKENS, collate, nothing_asked, pack, repeating_stream_tokens
from mt.model import attention
from mt.model.attention import LARGEST_ERROR, attend_explicit, attend_padded, attend_varlen, varlen_error
from mt.model.dropout import Dropout, seed_dropout
from mt.model.layout import Layout
from mt.model.transformer import Transformer
from mt.training import trainer as room
from mt.training.distributed import Group
from mt.training.loss import PairLoss
from mt.training.stream import BatchStream
from tests.model.varlen_on_cpu import register
from tests.training.small_runs import settings, trained

register()


def model_of(positions="sinusoidal", dropout=0.0, vocabulary=350):
    torch.manual_seed(0)
    shape = ModelConfig(
        d_model=16, d_ff=32, n_heads=2, encoder_layers=1, decoder_layers=1, positions=positions, dropout=dropout
    )
    return Transformer(shape, vocabulary, vocabulary)


def sentences(count, longest, seed=0):
    random = np.random.default_rng(seed)
    return [[random.integers(4, 40, random.integers(1, longest)) for _ in range(count)] for _ in range(2)]


def outcome(model, batch, compiled=False):
    model.zero_grad()
    loss = PairLoss(model, 0.1, 0.0, compiled)(batch)
    loss.smoothed.backward()
    values = torch.stack([loss.smoothed.detach(), loss.negative_log_likelihood])
    return [values, *(parameter.grad.clone() for parameter in model.parameters())]


@pytest.mark.parametrize("causal", [False, True])
def test_varlen_attention_equals_the_formula(causal):
    """Of this CPU's stand-in; scripts/gpu_check.py asks the same of the GPU's kernel."""
    q_lengths = [3, 7, 1, 0]
    k_lengths = q_lengths if causal else [5, 2, 4, 0]
    q_layout, k_layout = Layout.from_lengths(q_lengths), Layout.from_lengths(k_lengths)
    shapes = (sum(q_lengths), sum(k_lengths), sum(k_lengths))
    q, k, v = (torch.randn(n, 2, 4, dtype=torch.float64, requires_grad=True) for n in shapes)
    upstream = torch.randn(sum(q_lengths), 2, 4, dtype=torch.float64)
    results = []
    for attend in (attend_explicit, attend_varlen):
        out = attend(q, k, v, q_layout, k_layout, causal, Dropout(0.0))
        results.append([out, *torch.autograd.grad((out * upstream).sum(), (q, k, v))])
    for expected, found in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("causal", [False, True])
def test_a_kernel_with_a_wrong_gradient_is_found_out(causal, monkeypatch):
    cpu = torch.device("cpu")
    assert varlen_error(cpu, torch.bfloat16, 8, causal) < LARGEST_ERROR
    right = attention.attend_varlen

    def wrong(q, k, v, *rest):
        return right(q, k, v.detach() + (v - v.detach()) / 2, *rest)  # the same values, half the gradient

    monkeypatch.setattr(attention, "attend_varlen", wrong)
    assert varlen_error(cpu, torch.bfloat16, 8, causal) > 0.3


@pytest.mark.parametrize("attend", [attend_explicit, attend_padded, attend_varlen])
@pytest.mark.parametrize("positions", ["sinusoidal", "rotary"])
def test_filling_up_changes_neither_loss_nor_gradients(attend, positions):
    pairs = sentences(9, 12)
    plain, filled = (collate(*pairs, list(range(9)), tokens) for tokens in (0, 512))
    assert len(filled.source) == len(filled.target_input) == 512 > len(plain.source)
    model = model_of(positions).double()
    model.attend = attend
    for expected, found in zip(outcome(model, plain), outcome(model, filled), strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-6 if expected.dtype == torch.float32 else 1e-11)


@pytest.mark.parametrize("batch_tokens", [1, 60, 127, 128, 129, 2000, 4096, 25_000])
def test_any_batch_within_the_budget_has_the_one_size(batch_tokens):
    size = repeating_stream_tokens(batch_tokens)
    assert size % 128 == 0 and batch_tokens < size <= batch_tokens * 1.02 + 256
    for source, target in ((batch_tokens, 1), (1, batch_tokens), (batch_tokens, batch_tokens), (1, 1)):
        ids = np.ones(source - 1, np.int64), np.ones(target - 1, np.int64)
        batch = pack(ids[0], np.array([source - 1]), ids[1], np.array([target - 1]), np.array([7]), size)
        layouts = batch.source_layout, batch.target_layout
        assert len(batch.source) == len(batch.target_input) == len(batch.target_output) == size
        assert (batch.source_tokens, batch.target_tokens) == (source, target)
        assert len(layouts[0].lengths) == len(layouts[1].lengths) and len(layouts[0].lengths) % 128 == 0
        assert layouts[0].longest == layouts[1].longest >= max(128, source, target)
        for layout in layouts:
            assert sum(layout.lengths) == len(layout.positions) == size
            assert all(0 <= n <= DEAD_TOKENS for n in layout.lengths[1:])
        # attention needs keys for every query
        assert [n > 0 for n in layouts[0].lengths] == [n > 0 for n in layouts[1].lengths]


def test_what_does_not_fit_takes_the_next_size():
    pairs = sentences(4, 3)
    pairs[0][2] = np.full(700, 5)
    batch = collate(*pairs, [0, 1, 2, 3], 512)
    assert len(batch.source) == len(batch.target_input) == 768
    assert batch.source_layout.longest == 1024


@pytest.mark.parametrize("stream_tokens", [0, 512])
def test_a_rank_without_a_batch_gives_no_gradient_whole_or_in_pieces(stream_tokens):
    batch, model = nothing_asked(stream_tokens), model_of()
    model.attend = attend_varlen
    assert len(batch.source) == max(stream_tokens, 1) and batch.target_tokens == 0 and not batch.pairs
    for piece in [batch, *batch.split(2)]:
        assert all(not part.any() for part in outcome(model, piece))


def test_pieces_of_a_filled_batch_count_real_tokens():
    pairs = sentences(9, 12)
    plain, filled = (collate(*pairs, list(range(9)), tokens) for tokens in (0, 512))
    assert sum(piece.source_tokens for piece in filled.split(3)) == plain.source_tokens
    assert sum(piece.target_tokens for piece in filled.split(3)) == plain.target_tokens


@pytest.fixture(scope="module")
def prepared(corpus, tmp_path_factory):
    config = settings(corpus, tmp_path_factory.mktemp("runs") / "run", max_steps=1)
    return trained(config)


@pytest.fixture
def stream_of(prepared):
    config, tokenizers, data = prepared
    return partial(BatchStream, data, tokenizers, config, 1)


@pytest.mark.parametrize(
    ("compiled", "attend", "attention_dropout", "stream_tokens"),
    [
        (True, attend_varlen, 0.0, 128),
        (False, attend_varlen, 0.0, 0),
        (True, attend_padded, 0.0, 0),
        (True, attend_varlen, 0.1, 0),  # which the kernel does not have
    ],
)
def test_the_trainer_fills_up_only_where_that_makes_one_graph(
    prepared, tmp_path, monkeypatch, compiled, attend, attention_dropout, stream_tokens
):
    config, tokenizers, data = prepared
    config = dataclasses.replace(
        config,
        trainer=dataclasses.replace(config.trainer, compile=compiled),
        model=dataclasses.replace(config.model, attention_dropout=attention_dropout),
    )
    monkeypatch.setattr(room, "choose_attend", lambda *arguments: attend)
    trainer = room.Trainer(config, tmp_path, torch.device("cpu"), tokenizers, data, None, Group())
    assert trainer.stream.stream_tokens == stream_tokens
    assert trainer.pair_loss.repeating == bool(stream_tokens)


@pytest.mark.slow
def test_one_graph_for_all_batches_of_a_run(stream_of, monkeypatch):
    """Forward passes, with the dropout that GPUs use; the backward graph has the shapes of the forward one."""
    counter = CompileCounter()
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=counter))
    monkeypatch.setattr(
        Dropout, "forward", lambda self, x, residual=None: residual + F.dropout(x, 0.1) if residual is not None else x
    )
    model = model_of(dropout=0.1)
    model.attend = attend_varlen
    pair_loss, stream = PairLoss(model, 0.1, 0.0, compiled=True), stream_of(repeating_shapes=True)
    stream.maker.stream_tokens = 1024
    batches = [stream.next_window().batches[0] for _ in range(20)]
    batches += [collate(*sentences(count, 3), list(range(count)), 1024) for count in (150, 290)]
    batches += [nothing_asked(1024)]
    for batch in batches:
        seed_dropout(model, batch.dropout_seed)
        pair_loss(batch)
    assert len({(batch.source_tokens, batch.target_tokens, len(batch.pairs)) for batch in batches}) > 15
    assert {len(batch.source_layout.lengths) for batch in batches} == {128, 256, 384}
    assert counter.frame_count == 1
    for _ in range(2):
        long = sentences(2, 3)
        long[1][0] = np.full(600, 5)  # also beyond the table of positions
        pair_loss(collate(*long, [0, 1], 1024))
    assert counter.frame_count <= 3  # another `longest`; and once more for the table, which grows within the first


def test_compiled_equals_not_compiled():
    """By AOTAutograd, which splits the backward pass off as on a GPU, without a compiler for C++."""
    model = model_of()
    model.attend = attend_varlen
    batch = collate(*sentences(9, 12), list(range(9)), 512)
    expected = outcome(model, batch)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
        found = outcome(model, batch, compiled=True)
    for a, b in zip(expected, found, strict=True):
        torch.testing.assert_close(b, a, rtol=1e-6, atol=1e-6)


def test_batches_that_a_thread_prepares_for_a_gpu_are_in_page_locked_memory(stream_of, monkeypatch):
    pinned = []
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: pinned.append(tensor) or tensor)
    for on_gpu, count in ((False, 0), (True, 7)):
        stream = stream_of(on_gpu=on_gpu)
        (batch,) = stream.next_window().batches
        stream.close()
        tensors = [batch.source, batch.target_input, batch.target_output]
        for layout in (batch.source_layout, batch.target_layout):
            tensors += [layout.cumulative_lengths, layout.positions]
        assert sum(any(tensor is other for other in pinned) for tensor in tensors) == count
