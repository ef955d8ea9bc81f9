"""Samples against the distribution that they are drawn from."""

import math
from collections import Counter

import pytest
import torch

from mt.tokenizer import EOS_ID
from mt.translation.rules import Forbidden, TargetPrefix
from mt.translation.sampling import Sampling, sample
from tests.translation.table_models import TableModel, all_translations, probability_of, random_log_probs

V = 6  # two ordinary tokens


def ordinary(log_probs):
    """The same table without <pad>, <unk> and <s>, whose probability nobody gets."""

    def shared_out(sentence, prefix):
        row = log_probs(sentence, prefix).clone()
        row[:EOS_ID] = -math.inf
        return row.log_softmax(0)

    return shared_out


def draw(log_probs, count, sampling, seeds=(1,), limit=3, rules=()):
    memory = torch.arange(len(seeds))
    return sample(TableModel(log_probs), memory, None, [limit] * len(seeds), count, sampling, seeds, 1.0, rules)


def test_frequencies_are_the_probabilities():
    log_probs, count = ordinary(random_log_probs(0, V)), 20_000
    (found,) = draw(log_probs, count, Sampling())
    seen = Counter(tuple(h.tokens) for h in found if h.finished)
    for tokens in all_translations(V, 3):
        p = math.exp(probability_of(log_probs, 0, tokens))
        assert abs(seen[tokens] / count - p) < 4 * math.sqrt(p * (1 - p) / count) + 1e-4
    for hypothesis in found[:200]:
        tokens = hypothesis.tokens
        if hypothesis.finished:
            expected = probability_of(log_probs, 0, tokens) / (len(tokens) + 1)
        else:
            assert len(tokens) == 3
            expected = sum(float(log_probs(0, tuple(tokens[:i]))[t]) for i, t in enumerate(tokens)) / 3
        assert hypothesis.score == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    ("sampling", "expected"),
    [
        (Sampling(temperature=0.5), [0.64 / 0.74, 0.09 / 0.74, 0.01 / 0.74]),  # squares, shared out again
        (Sampling(temperature=1e-300), [1, 0, 0]),
        (Sampling(temperature=1e300), [1 / 3, 1 / 3, 1 / 3]),
        (Sampling(top_k=2), [0.8 / 1.1, 0.3 / 1.1, 0]),
        (Sampling(top_k=1), [1, 0, 0]),
        (Sampling(top_p=0.6), [1, 0, 0]),  # the first has two thirds
        (Sampling(top_p=0.7), [0.8 / 1.1, 0.3 / 1.1, 0]),
        (Sampling(epsilon=0.1), [0.8 / 1.1, 0.3 / 1.1, 0]),
        (Sampling(epsilon=0.9), [1, 0, 0]),
    ],
)
def test_temperature_and_cuts(sampling, expected):
    def log_probs(sentence, prefix):
        if prefix:
            return torch.tensor([0, 0, 0, 1.0, 0, 0]).log()
        return torch.tensor([0, 0, 0, 0.1, 0.8, 0.3]).div(1.2).log()

    (found,) = draw(log_probs, 4000, sampling)
    seen = Counter(tuple(h.tokens) for h in found)
    for tokens, share in zip(((4,), (5,), ()), expected, strict=True):
        assert abs(seen[tokens] / 4000 - share) < 4 * math.sqrt(share * (1 - share) / 4000) + 1e-9


def test_a_seed_gives_the_same_samples_whatever_the_neighbours():
    log_probs = random_log_probs(3, V)
    together = draw(log_probs, 5, Sampling(), seeds=[11, 12, 13], limit=8)
    for sentence, seed in enumerate((11, 12, 13)):
        model, memory = TableModel(log_probs), torch.tensor([sentence])
        assert sample(model, memory, None, [8], 5, Sampling(), [seed], 1.0)[0] == together[sentence]
    assert draw(log_probs, 5, Sampling(), seeds=[21, 22, 23], limit=8) != together


def test_rules_hold_for_samples_too():
    rule = Forbidden(["茶茶", "酒"], [b"", b"", b"", b"", "茶".encode(), "酒".encode()])
    (found,) = draw(
        random_log_probs(1, V),
        300,
        Sampling(),
        rules=[rule],
        limit=6,
    )
    assert {tuple(h.tokens) for h in found} == {(), (4,)}


def test_a_prefix_comes_first_and_what_follows_is_drawn_as_without_it():
    log_probs, count = ordinary(random_log_probs(2, V)), 4000
    rule = TargetPrefix([[5, 4], [4]], [[], [5]])
    first, second = draw(log_probs, count, Sampling(), seeds=(1, 2), limit=4, rules=[rule])
    assert all(h.tokens[:2] == [5, 4] for h in first)
    share = math.exp(float(log_probs(0, (5, 4))[EOS_ID]))
    assert abs(sum(h.tokens == [5, 4] for h in first) / count - share) < 4 * math.sqrt(share * (1 - share) / count)
    begins = log_probs(1, ()).exp()  # without </s>, which the prefix leaves out
    share = float(begins[5] / (begins[4] + begins[5]))
    assert abs(sum(h.tokens[0] == 5 for h in second) / count - share) < 4 * math.sqrt(share * (1 - share) / count)


def test_nothing_left_ends_a_sample_unfinished():
    def log_probs(sentence, prefix):
        return torch.tensor([0.5, 0.5, 0, 0, 0, 0]).log() if prefix else torch.tensor([0, 0, 0, 0, 0.5, 0.5]).log()

    (found,) = draw(log_probs, 20, Sampling(temperature=0.7, top_p=0.9))
    assert all(len(h.tokens) == 1 and not h.finished and math.isfinite(h.score) for h in found)


@pytest.mark.parametrize("wrong", [
        {"temperature": 0}, {"temperature": -1}, {"temperature": math.inf}, {"temperature": math.nan}, {"top_k": -1},
        {"top_p": math.nan}, {"epsilon": -0.1}, {"top_p": 0}, {"top_p": 1.5}, {"epsilon": 1},
    ],
)  # fmt: skip
def test_wrong_values_are_refused(wrong):
    (name,) = wrong
    with pytest.raises(ValueError, match=f"{name}=.*must be"):
        Sampling(**wrong)
