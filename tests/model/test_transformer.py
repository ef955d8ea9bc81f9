"""The whole model against torch.nn's layers, against itself one sentence at a time, and step by step."""

import itertools

import pytest
import torch
from torch import nn

from mt.config import ModelConfig
from mt.model.attention import attend_explicit, attend_grouped, attend_padded
from mt.model.dropout import Dropout, seed_dropout
from mt.model.layers import DecoderLayer, EncoderLayer
from mt.model.layout import Layout
from mt.model.transformer import Transformer
from mt.rows import NO_ROW

SHAPES = [
    {"norm_position": norm_position, "positions": positions, "tying": tying, "activation": activation, "norm": norm}
    for (norm_position, positions, tying), (activation, norm) in zip(
        itertools.product(["pre", "post"], ["sinusoidal", "rotary"], ["three_way", "decoder", "none"]),
        itertools.cycle([("relu", "layer_norm"), ("gelu", "rms_norm"), ("swiglu", "layer_norm")]),
        strict=False,
    )
]


def build(**settings):
    torch.manual_seed(3)
    config = ModelConfig(d_model=16, d_ff=24, n_heads=2, encoder_layers=3, decoder_layers=2, **settings)
    return Transformer(config, 40, 40).double().eval()


def streams(source_lengths, target_lengths):
    generator = torch.Generator().manual_seed(0)
    source = torch.randint(4, 40, (sum(source_lengths),), generator=generator)
    target = torch.randint(4, 40, (sum(target_lengths),), generator=generator)
    return source, Layout.from_lengths(source_lengths), target, Layout.from_lengths(target_lengths)


def gradients(model, hidden):
    """Of a loss that weighs every number of the hidden vectors differently, by parameter."""
    upstream = torch.randn(hidden.shape, dtype=hidden.dtype, generator=torch.Generator().manual_seed(2))
    model.zero_grad()
    (hidden * upstream).sum().backward()
    found = {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}
    return {name: gradient.clone() for name, gradient in found.items()}


def assert_equal(first, second):
    assert first.keys() == second.keys()
    for name, gradient in first.items():
        torch.testing.assert_close(gradient, second[name], rtol=0, atol=1e-10, msg=lambda m, name=name: f"{name}: {m}")


@pytest.mark.parametrize("attend", [attend_explicit, attend_padded, attend_grouped])
@pytest.mark.parametrize("settings", SHAPES, ids=lambda s: "-".join(s.values()))
def test_packed_equals_one_sentence_at_a_time_values_and_gradients(settings, attend):
    model = build(**settings)
    source_lengths, target_lengths = [3, 3, 5, 1, 4], [4, 4, 2, 6, 4]
    source, source_layout, target, target_layout = streams(source_lengths, target_lengths)
    model.attend = attend_explicit
    alone = torch.cat(
        [
            model(s, Layout.from_lengths([len(s)]), t, Layout.from_lengths([len(t)]))
            for s, t in zip(source.split(source_lengths), target.split(target_lengths), strict=True)
        ]
    )
    wanted = gradients(model, alone)
    assert len(wanted) > 40 and all(gradient.any() for name, gradient in wanted.items() if "key" not in name)
    model.attend = attend
    packed = model(source, source_layout, target, target_layout)
    torch.testing.assert_close(packed, alone, rtol=0, atol=1e-12)
    assert_equal(gradients(model, packed), wanted)
    backwards = model(
        torch.cat(source.split(source_lengths)[::-1]), Layout.from_lengths(source_lengths[::-1]),
        torch.cat(target.split(target_lengths)[::-1]), Layout.from_lengths(target_lengths[::-1]),
    )  # fmt: skip
    backwards = torch.cat(backwards.split(target_lengths[::-1])[::-1])
    torch.testing.assert_close(backwards, alone, rtol=0, atol=1e-12)
    assert_equal(gradients(model, backwards), wanted)


@pytest.mark.parametrize("attend", [attend_explicit, attend_padded, attend_grouped])
def test_a_sentence_of_padding_beside_it_changes_nothing(attend):
    model = build(tying="none")
    model.attend = attend
    source, source_layout, target, target_layout = streams([3, 5, 1], [4, 2, 6])
    plain = model(source, source_layout, target, target_layout)
    wanted = gradients(model, plain)
    filled = model(
        torch.cat([source, torch.zeros(30, dtype=torch.int64)]), Layout.from_lengths([3, 5, 1, 30]),
        torch.cat([target, torch.zeros(20, dtype=torch.int64)]), Layout.from_lengths([4, 2, 6, 20]),
    )  # fmt: skip
    torch.testing.assert_close(filled[: len(plain)], plain, rtol=0, atol=1e-12)
    assert_equal(gradients(model, filled[: len(plain)]), wanted)


def test_training_mode_without_dropout_equals_evaluation_mode():
    model = build(dropout=0.0)
    batch = streams([3, 5, 1], [4, 2, 6])
    evaluated = model.eval()(*batch)
    assert torch.equal(model.train()(*batch), evaluated)
    assert evaluated.shape == (12, 16)


@pytest.mark.parametrize("settings", SHAPES[:4], ids=lambda s: "-".join(s.values()))
def test_a_second_batch_of_other_sizes_equals_a_fresh_model(settings):
    used, fresh = build(**settings), build(**settings)
    first, second = streams([9, 2, 700], [30, 1, 5]), streams([4, 4], [3, 8])
    used(*first)
    state = used.start(used.encode(*first[:2]), first[1])
    for _ in range(20):
        used.step(torch.full((3,), 7), state)
    assert torch.equal(used(*second), fresh(*second))
    states = [model.start(model.encode(*second[:2]), second[1]) for model in (used, fresh)]
    for token in (2, 9, 11):
        logits = [
            model.step(torch.full((2,), token), state) for model, state in zip((used, fresh), states, strict=True)
        ]
        assert torch.equal(*logits)


@pytest.mark.parametrize("settings", SHAPES, ids=lambda s: "-".join(s.values()))
def test_cached_steps_equal_full_decoding(settings):
    model = build(**settings)
    source, source_layout, target, target_layout = streams([3, 7, 5], [20, 20, 20])
    memory = model.encode(source, source_layout)
    full = model.logits(model.decode(target, target_layout, memory, source_layout)).view(3, 20, -1)
    state = model.start(memory, source_layout)
    for position in range(20):
        logits = model.step(target.view(3, 20)[:, position], state)
        torch.testing.assert_close(logits, full[:, position], rtol=0, atol=1e-11)


def test_a_reordered_cache_equals_full_decoding():
    model = build()
    source, source_layout, _, _ = streams([3, 7, 5], [1])
    memory = model.encode(source, source_layout)
    state = model.start(memory, source_layout)
    generator = torch.Generator().manual_seed(5)
    prefixes, owners = [[], [], []], [0, 1, 2]
    plan = {
        1: ([[0, 0, 0], [1, 1, NO_ROW], [2, NO_ROW, 2]], None),  # branch, unevenly
        2: ([[1, 0, 1], [4, NO_ROW, 3], [5, 5, 6]], None),  # swap and repeat
        5: ([[1, 2, 0], [NO_ROW, NO_ROW, NO_ROW], [7, 6, 5]], None),  # one without any stays for a while
        7: ([[4, 3], [0, 2]], [2, 0]),  # narrower; sentences change places, one leaves
        9: ([[3], [3], [0]], [1, 1, 0]),  # a sentence twice
        30: ([[2, 2, 2, 2]], [2]),
    }
    for position in range(45):  # past the first slots
        if position in plan:
            lines, sentences = plan[position]
            state.select(torch.tensor(lines), sentences and torch.tensor(sentences))
            rows = [row for line in lines for row in line if row != NO_ROW]
            prefixes, owners = [list(prefixes[r]) for r in rows], [owners[r] for r in rows]
        tokens = torch.randint(4, 40, (len(prefixes),), generator=generator)
        logits = model.step(tokens, state)
        for row, token in enumerate(tokens.tolist()):
            prefixes[row].append(token)
            piece = memory.split([3, 7, 5])[owners[row]]
            one, length = Layout.from_lengths([len(piece)]), Layout.from_lengths([position + 1])
            hidden = model.decode(torch.tensor(prefixes[row]), length, piece, one)
            torch.testing.assert_close(logits[row], model.logits(hidden)[-1], rtol=0, atol=1e-11)


def test_the_kernels_give_the_same_model_outputs_and_gradients():
    model = build()
    batch = streams([3, 3, 5, 1], [4, 4, 2, 6])
    results = []
    for attend in (attend_explicit, attend_padded, attend_grouped):
        model.attend = attend
        model.zero_grad()
        out = model(*batch)
        out.square().sum().backward()
        results.append((out.detach(), [p.grad.clone() for p in model.parameters()]))
    for out, grads in results[1:]:
        torch.testing.assert_close(out, results[0][0], rtol=0, atol=1e-12)
        for grad, wanted in zip(grads, results[0][1], strict=True):
            torch.testing.assert_close(grad, wanted, rtol=0, atol=1e-10)


@pytest.mark.parametrize("norm_position", ["pre", "post"])
def test_layers_equal_torch_nn(norm_position):
    d, heads, pre = 12, 3, norm_position == "pre"
    config = ModelConfig(d_model=d, d_ff=20, n_heads=heads, norm_position=norm_position, dropout=0.0)
    encoder, decoder = EncoderLayer(config).double(), DecoderLayer(config).double()
    settings = dict(dropout=0.0, batch_first=True, norm_first=pre, layer_norm_eps=1e-6, dtype=torch.float64)
    their_encoder = nn.TransformerEncoderLayer(d, heads, 20, **settings)
    their_decoder = nn.TransformerDecoderLayer(d, heads, 20, **settings)
    copy_self(encoder.self_attention, their_encoder.self_attn)
    copy_self(decoder.self_attention, their_decoder.self_attn)
    cross, theirs = decoder.cross_attention, their_decoder.multihead_attn
    theirs.in_proj_weight.data.copy_(torch.cat([cross.query.weight, cross.key_value.weight]))
    theirs.in_proj_bias.data.copy_(torch.cat([cross.query.bias, cross.key_value.bias]))
    theirs.out_proj.load_state_dict(cross.output.state_dict())
    for ours, them in ((encoder, their_encoder), (decoder, their_decoder)):
        them.linear1.load_state_dict(ours.feed_forward.inner.state_dict())
        them.linear2.load_state_dict(ours.feed_forward.output.state_dict())
    source, target = Layout.from_lengths([5, 3]), Layout.from_lengths([2, 6])
    x = torch.randn(8, d, dtype=torch.float64, requires_grad=True)
    y = torch.randn(8, d, dtype=torch.float64, requires_grad=True)
    expected = their_encoder(source.pad(x), src_key_padding_mask=~source.mask)
    out = encoder(x, source, None, attend_grouped)
    torch.testing.assert_close(out, source.unpad(expected), rtol=0, atol=1e-11)
    causal = nn.Transformer.generate_square_subsequent_mask(6, dtype=torch.float64)
    their_out = their_decoder(
        target.pad(y), expected, tgt_mask=causal, memory_key_padding_mask=~source.mask, tgt_is_causal=True
    )
    our_out = decoder(y, target, None, out, source, attend_grouped)
    torch.testing.assert_close(our_out, target.unpad(their_out), rtol=0, atol=1e-11)
    wanted = torch.autograd.grad(target.unpad(their_out).square().sum(), (x, y))
    grads = torch.autograd.grad(our_out.square().sum(), (x, y))
    for grad, want in zip(grads, wanted, strict=True):
        torch.testing.assert_close(grad, want, rtol=0, atol=1e-10)


def copy_self(ours, theirs):
    theirs.in_proj_weight.data.copy_(ours.query_key_value.weight)
    theirs.in_proj_bias.data.copy_(ours.query_key_value.bias)
    theirs.out_proj.load_state_dict(ours.output.state_dict())


def test_tying_shares_tables():
    model = build(tying="three_way")
    assert model.output_table is model.source_embedding.weight is model.target_embedding.weight
    model = build(tying="decoder")
    assert model.output_table is model.target_embedding.weight is not model.source_embedding.weight
    model = build(tying="none")
    assert model.output_table is not model.target_embedding.weight
    assert len(model.weights()) == len(list(model.parameters()))


def test_positions_beyond_the_table_work():
    model = build()
    source, layout, target, target_layout = streams([1500], [3])
    assert torch.isfinite(model(source, layout, target, target_layout)).all()


def test_dropout_keeps_the_expectation_and_the_chance():
    x, dropout = torch.ones(1000, 1000), Dropout(0.1)
    seed_dropout(dropout, 3)
    out = dropout(x)
    zeros = (out == 0).float().mean().item()
    assert abs(zeros - 26 / 256) < 0.001
    assert abs(out.mean().item() - 1) < 0.001
    assert len(out.unique()) == 2
    columns = (out == 0).float().mean(0)
    assert columns.min() > 0.05 and columns.max() < 0.16  # no column is favoured
    neighbours = ((out[:, 1:] == 0) & (out[:, :-1] == 0)).float().mean().item()
    assert abs(neighbours - (26 / 256) ** 2) < 0.001  # nor do bytes of one random word go together
    assert not torch.equal(out, dropout(x))
    seed_dropout(dropout, 3)
    assert torch.equal(out, dropout(x))
    assert torch.equal(dropout.eval()(x), x)


def test_dropout_adds_to_the_residual_and_both_get_their_gradients():
    dropout = Dropout(0.5)
    x, residual = torch.ones(64, dtype=torch.float64, requires_grad=True), torch.rand(64, dtype=torch.float64)
    residual.requires_grad_()
    out = dropout(x, residual=residual)
    change = (out - residual).detach()
    assert set(change.round(decimals=9).tolist()) == {0.0, 2.0}
    (3 * out).sum().backward()
    torch.testing.assert_close(x.grad, 3 * change)
    assert torch.equal(residual.grad, torch.full((64,), 3.0, dtype=torch.float64))
    assert torch.equal(dropout.eval()(x, residual=residual), x + residual)
