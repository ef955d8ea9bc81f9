"""What a model thinks of given translations, against the search that found them and against attention by hand."""

import math

import pytest
import torch

from mt.config import ModelConfig
from mt.model.layout import Layout
from mt.model.transformer import Transformer
from mt.tokenizer import EOS_ID
from mt.translation.beam import beam_search
from mt.translation.ensemble import Ensemble
from mt.translation.forced import Forced, force

V = 30


def model(seed=0, **changes):
    torch.manual_seed(seed)
    shape = {
        "d_model": 16,
        "d_ff": 32,
        "n_heads": 2,
        "encoder_layers": 2,
        "decoder_layers": 3,
        "tying": "none",
    } | changes
    made = Transformer(ModelConfig(**shape), V, V).eval()
    made.output_table.data *= 3
    made.output_table.data[EOS_ID] += 0.3
    return made


SOURCES = [[5, 6, 7, 8], [9], [10, 11, 12, 13, 14, 15, 16]]


def searched(searcher, encode, beam_size=3):
    layout = Layout.from_lengths([len(ids) + 1 for ids in SOURCES])
    with torch.inference_mode():
        memory = encode(torch.tensor([i for ids in SOURCES for i in (*ids, EOS_ID)]), layout)
        return [found[0] for found in beam_search(searcher, memory, layout, [15] * 3, beam_size, 1.0)]


@pytest.mark.parametrize("changes", [{}, {"positions": "rotary"}, {"decoder_layers": 1}, {"norm_position": "post"}])
def test_scores_equal_those_of_the_search(changes):
    made = model(**changes)
    found = searched(made, made.encode)
    views = force([made], SOURCES, [h.tokens for h in found])
    assert changes or any(h.finished for h in found)
    for hypothesis, view, source in zip(found, views, SOURCES, strict=True):
        assert len(view.log_probs) == len(hypothesis.tokens) + 1
        log_probs = view.log_probs if hypothesis.finished else view.log_probs[:-1]
        assert math.fsum(log_probs) / len(log_probs) == pytest.approx(hypothesis.score, abs=1e-5)
        assert view.attention.shape == (len(hypothesis.tokens) + 1, len(source) + 1)
        torch.testing.assert_close(view.attention.sum(1), torch.ones(len(hypothesis.tokens) + 1))


def test_an_ensemble_scores_with_the_mean_of_probabilities():
    models = [model(1), model(2, d_model=8, n_heads=2)]
    ensemble = Ensemble(models)
    found = searched(ensemble, ensemble.encode)
    assert [h.tokens for h in found] != [h.tokens for h in searched(models[0], models[0].encode)]
    views = force(models, SOURCES, [h.tokens for h in found])
    alone = [force([one], SOURCES, [h.tokens for h in found]) for one in models]
    for index, (hypothesis, view) in enumerate(zip(found, views, strict=True)):
        log_probs = view.log_probs if hypothesis.finished else view.log_probs[:-1]
        assert math.fsum(log_probs) / len(log_probs) == pytest.approx(hypothesis.score, abs=1e-5)
        for position, value in enumerate(view.log_probs):
            mean = sum(math.exp(views_of[index].log_probs[position]) for views_of in alone) / 2
            assert math.exp(value) == pytest.approx(mean, rel=1e-6)


def test_two_equal_models_are_one():
    made = model(3)
    ensemble = Ensemble([made, made])
    together, alone = searched(ensemble, ensemble.encode), searched(made, made.encode)
    assert [h.tokens for h in together] == [h.tokens for h in alone]
    assert [h.score for h in together] == pytest.approx([h.score for h in alone], abs=1e-5)


def test_attention_is_that_of_the_last_layer_but_one():
    made, seen = model(), {}
    cross = made.decoder_layers[1].cross_attention
    cross.register_forward_hook(lambda module, inputs, output: seen.update(x=inputs[0], memory=inputs[2]))
    target = [20, 21, 22]
    (view,) = force([made], [SOURCES[0]], [target])
    with torch.inference_mode():
        q = cross.query(seen["x"]).view(4, 2, 8).transpose(0, 1)  # [H, T, K]
        k = cross.project_memory(seen["memory"])[0].transpose(0, 1)
        expected = (q @ k.transpose(1, 2) / math.sqrt(8)).softmax(-1).mean(0)
    torch.testing.assert_close(view.attention, expected)


def test_a_source_changes_nothing_for_its_neighbours():
    made, targets = model(), [[20, 21], [22], [23, 24, 25, 26]]
    together = force([made], SOURCES, targets)
    for source, target, view in zip(SOURCES, targets, together, strict=True):
        (alone,) = force([made], [source], [target])
        assert alone.log_probs == pytest.approx(view.log_probs, abs=1e-5)
        torch.testing.assert_close(alone.attention, view.attention, rtol=0, atol=1e-5)


def test_alignment_and_coverage():
    attention = torch.tensor([[0.7, 0.1, 0.2], [0.1, 0.3, 0.6], [0.0, 0.0, 1.0]])  # two words and </s> on both sides
    view = Forced([0.0, 0.0, 0.0], attention)
    assert view.alignment() == [(0, 0), (1, 1)]
    assert view.coverage() == pytest.approx(math.log(0.8) + math.log(0.4), abs=1e-6)
    assert Forced([0.0], torch.ones(1, 1)).alignment() == []
