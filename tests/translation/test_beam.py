import itertools
import math

import pytest
import torch

from mt.tokenizer import EOS_ID
from mt.translation.beam import beam_search
from mt.translation.rules import NoRepeatedNgram
from tests.translation.table_models import TableModel, random_log_probs

X, Y, Z, W, V = 4, 5, 6, 7, 8
SHORT_OR_LONG = {
    (): {X: 0.55, Y: 0.45},
    (X,): {EOS_ID: 0.9, Z: 0.1},
    (X, Z): {EOS_ID: 1},
    (Y,): {W: 0.99, EOS_ID: 0.01},
    (Y, W): {V: 0.99, EOS_ID: 0.01},
    (Y, W, V): {EOS_ID: 0.99, Z: 0.01},
    (Y, W, V, Z): {EOS_ID: 1},
}


def from_table(table, vocabulary_size=9):
    def log_probs(sentence, prefix):
        row = torch.full((vocabulary_size,), -math.inf)
        for token, probability in table.get(prefix, {EOS_ID: 1}).items():
            row[token] = math.log(probability)
        return row

    return TableModel(log_probs)


def search(
    model,
    max_lengths,
    beam_size,
    length_penalty,
    n_best=1,
    sentences=None,
    no_repeat_ngram_size=0,
    lookahead=1.0,
    margin=math.inf,
):
    memory = torch.arange(len(max_lengths)) if sentences is None else torch.tensor(sentences)
    rules = [NoRepeatedNgram(no_repeat_ngram_size)] if no_repeat_ngram_size else []
    return beam_search(model, memory, None, max_lengths, beam_size, length_penalty, n_best, rules, lookahead, margin)


def brute_force(log_probs, sentence, vocabulary_size, max_length, length_penalty):
    """All finished hypotheses of up to max_length tokens, </s> counted, as (score, tokens), best first."""
    found = []
    for length in range(max_length):
        for tokens in itertools.product(range(EOS_ID + 1, vocabulary_size), repeat=length):
            total = sum(float(log_probs(sentence, tokens[:i])[t]) for i, t in enumerate((*tokens, EOS_ID)))
            found.append((total / (length + 1) ** length_penalty, list(tokens)))
    return sorted(found, reverse=True)


def repeats_an_ngram(tokens, size):
    ngrams = [tuple(tokens[i : i + size]) for i in range(len(tokens) - size + 1)]
    return size > 0 and len(set(ngrams)) < len(ngrams)


def plain_beam_search(
    log_probs,
    sentence,
    vocabulary_size,
    max_length,
    beam_size,
    length_penalty,
    no_repeat_ngram_size=0,
    given_up=None,
    n_best=1,
    margin=math.inf,
):
    """Beam search by the book, for one sentence, without early stopping; (unfinished, -score, tokens), best first.

    given_up: from the length so far, the sum of a live hypothesis and the finished ones' scores, whether it is left.
    """
    beams, ends = [(0.0, ())], []
    for length in range(1, max_length + 1):
        rows = {prefix: log_probs(sentence, prefix).tolist() for _, prefix in beams}
        candidates = [
            (total + rows[prefix][t], prefix, t)
            for total, prefix in beams
            for t in range(EOS_ID, vocabulary_size)
            if not repeats_an_ngram((*prefix, t), no_repeat_ngram_size)
        ]
        candidates.sort(key=lambda candidate: -candidate[0])
        last = candidates[:beam_size]
        ends += [(False, -total / length**length_penalty, list(p)) for total, p, t in last if t == EOS_ID]
        beams = [(total, (*p, t)) for total, p, t in candidates if t != EOS_ID][:beam_size]
        if length < max_length:
            beams = [beam for beam in beams if beam[0] > candidates[n_best - 1][0] - margin]
        if given_up and length < max_length:
            beams = [beam for beam in beams if not given_up(length, beam[0], sorted(-end[1] for end in ends))]
    ends += [(True, -total / max_length**length_penalty, list(prefix)) for total, prefix in beams]
    return sorted(ends)


@pytest.mark.parametrize(
    "length_penalty, expected",
    [
        (0.0, [([X], -0.70320), ([Y, W, V], -0.82866)]),
        (1.0, [([Y, W, V], -0.20716), ([X], -0.35160)]),
        (0.6, [([Y, W, V], -0.36069)]),
    ],
)
def test_length_penalty_alone_decides_between_short_and_long(length_penalty, expected):
    (found,) = search(from_table(SHORT_OR_LONG), [20], 2, length_penalty, n_best=len(expected))
    assert [hypothesis.tokens for hypothesis in found] == [tokens for tokens, _ in expected]
    assert [hypothesis.score for hypothesis in found] == pytest.approx([score for _, score in expected], abs=1e-5)
    assert all(hypothesis.finished for hypothesis in found)


@pytest.mark.parametrize("length_penalty", [0.0, 0.6, 1.0, 2.0])
def test_exhaustive_beam_equals_brute_force(length_penalty):
    for seed in range(3):
        log_probs = random_log_probs(seed, vocabulary_size=7)
        (found,) = search(TableModel(log_probs), [6], 3**6, length_penalty, n_best=10)
        expected = brute_force(log_probs, 0, 7, 6, length_penalty)[:10]
        assert [hypothesis.tokens for hypothesis in found] == [tokens for _, tokens in expected]
        assert [hypothesis.score for hypothesis in found] == pytest.approx([score for score, _ in expected], abs=1e-5)


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("beam_size, n_best", [(1, 1), (2, 2), (5, 3)])
def test_no_ngram_occurs_twice_and_all_else_is_as_by_the_book(beam_size, n_best, size):
    changed = 0
    for seed, length_penalty in itertools.product(range(8), (0.0, 1.0)):
        log_probs = random_log_probs(seed, 7)
        limits = [9, 3, 14]
        together = search(TableModel(log_probs), limits, beam_size, length_penalty, n_best, None, size)
        for sentence, (found, limit) in enumerate(zip(together, limits, strict=True)):
            arguments = (log_probs, sentence, 7, limit, beam_size, length_penalty)
            expected = plain_beam_search(*arguments, size)
            if beam_size == 1:  # greedy search ends at its first </s>
                expected = sorted(expected, key=lambda end: len(end[2]) + (not end[0]))
            assert [(not h.finished, h.tokens) for h in found] == [(end[0], end[2]) for end in expected[:n_best]]
            assert [h.score for h in found] == pytest.approx([-end[1] for end in expected[:n_best]], abs=1e-5)
            assert not any(repeats_an_ngram(h.tokens, size) for h in found)
            changed += any(repeats_an_ngram(tokens, size) for _, _, tokens in plain_beam_search(*arguments)[:n_best])
    assert changed > 3


def test_a_ban_is_for_one_hypothesis_alone():
    def log_probs(sentence, prefix):  # sentence 1 wants 4 5 4 5 ..., sentence 0 wants 5 4 5 4 ...
        row = torch.full((6,), math.log(0.05))
        row[4 + (len(prefix) + sentence + 1) % 2] = math.log(0.8)
        row[EOS_ID] = math.log(0.1)
        return row

    found = search(TableModel(log_probs), [20, 20], 1, 1.0, no_repeat_ngram_size=2)
    assert [hypotheses[0].tokens for hypotheses in found] == [[5, 4, 5], [4, 5, 4]]


@pytest.mark.parametrize("beam_size", [1, 2, 4])
def test_a_step_that_bans_everything_ends_the_hypothesis(beam_size):
    def log_probs(sentence, prefix):  # only 4 and 5, never </s>
        return torch.tensor([-math.inf] * 4 + [math.log(0.9), math.log(0.1)])

    (found,) = search(TableModel(log_probs), [50], beam_size, 1.0, beam_size, no_repeat_ngram_size=1)
    assert found and all(sorted(h.tokens) == [4, 5] and not h.finished for h in found)


@pytest.mark.parametrize("sharpness", [1.0, 4.0])
@pytest.mark.parametrize("beam_size, n_best", [(2, 1), (2, 2), (3, 1), (5, 4)])
def test_stopping_early_changes_nothing(beam_size, n_best, sharpness):
    saved = 0
    for seed, length_penalty in itertools.product(range(6), (0.0, 0.6, 1.0)):
        log_probs = random_log_probs(seed, 12, sharpness)
        model = TableModel(log_probs)
        (found,) = search(model, [15], beam_size, length_penalty, n_best)
        expected = plain_beam_search(log_probs, 0, 12, 15, beam_size, length_penalty)[:n_best]
        assert [(not h.finished, h.tokens) for h in found] == [(flag, tokens) for flag, _, tokens in expected]
        assert [h.score for h in found] == pytest.approx([-negated for _, negated, _ in expected], abs=1e-5)
        saved += 1 + 14 * beam_size - model.rows_seen
    assert saved > 0


@pytest.mark.parametrize("lookahead", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("n_best", [1, 2])
def test_lookahead_is_how_far_a_hypothesis_may_go_at_no_cost(n_best, lookahead):
    different, rows_seen = 0, 0
    for seed, length_penalty in itertools.product(range(25), (0.6, 1.0)):

        def given_up(length, total, scores, alpha=length_penalty):
            longest = (1 - lookahead) * (length + 1) + lookahead * 15
            return len(scores) >= n_best and total / longest**alpha <= scores[-n_best]

        log_probs = random_log_probs(seed, 9, 2.0)
        model = TableModel(log_probs)
        (found,) = search(model, [15], 4, length_penalty, n_best, lookahead=lookahead)
        expected = plain_beam_search(log_probs, 0, 9, 15, 4, length_penalty, given_up=given_up)[:n_best]
        assert [h.tokens for h in found] == [tokens for _, _, tokens in expected]
        assert [h.score for h in found] == pytest.approx([-negated for _, negated, _ in expected], abs=1e-5)
        exact = plain_beam_search(log_probs, 0, 9, 15, 4, length_penalty)[:n_best]
        different += [tokens for _, _, tokens in exact] != [h.tokens for h in found]
        rows_seen += model.rows_seen
    if lookahead == 1:
        assert different == 0
    elif lookahead == 0 and n_best == 1:
        assert different > 0
    assert rows_seen < 50 * (1 + 14 * 4)


@pytest.mark.parametrize("n_best", [1, 3])
def test_a_hypothesis_far_behind_the_best_is_given_up(n_best):
    rows_seen = {}
    for margin in (1.0, 2.5, math.inf):
        rows_seen[margin] = 0
        for seed in range(25):
            log_probs = random_log_probs(seed, 9, 2.0)
            model = TableModel(log_probs)
            (found,) = search(model, [12], 4, 1.0, n_best, margin=margin)
            expected = plain_beam_search(log_probs, 0, 9, 12, 4, 1.0, n_best=n_best, margin=margin)[:n_best]
            assert [h.tokens for h in found] == [tokens for _, _, tokens in expected]
            rows_seen[margin] += model.rows_seen
    assert rows_seen[1.0] < rows_seen[2.5] < rows_seen[math.inf]


def test_beam_1_is_greedy():
    for seed in range(20):
        log_probs = random_log_probs(seed, 8)
        (found,) = search(TableModel(log_probs), [30], 1, 1.0)
        tokens, total = [], 0.0
        while len(tokens) < 30 and (not tokens or tokens[-1] != EOS_ID):
            row = log_probs(0, tuple(tokens))[EOS_ID:]
            tokens.append(int(row.argmax()) + EOS_ID)
            total += float(row.max())
        assert found[0].tokens == [t for t in tokens if t != EOS_ID]
        assert found[0].finished == (tokens[-1] == EOS_ID)
        assert found[0].score == pytest.approx(total / len(tokens), abs=1e-5)


@pytest.mark.parametrize("beam_size", [1, 3])
def test_neighbours_change_nothing(beam_size):
    model = TableModel(random_log_probs(5, 10))
    limits = [7, 1, 12, 3, 20, 2, 9]
    together = search(model, limits, beam_size, 1.0, beam_size)
    backwards = search(model, limits[::-1], beam_size, 1.0, beam_size, sentences=range(len(limits))[::-1])
    alone = [search(model, [n], beam_size, 1.0, beam_size, sentences=[i])[0] for i, n in enumerate(limits)]
    assert together == alone
    assert backwards[::-1] == alone


def test_finished_sentences_leave_the_batch():
    def log_probs(sentence, prefix):  # sentence s ends after s tokens
        row = torch.full((6,), -math.inf)
        row[EOS_ID if len(prefix) == sentence else 4] = 0
        return row

    for beam_size in (1, 2):
        model = TableModel(log_probs)
        found = search(model, [50] * 5, beam_size, 1.0)
        assert [hypotheses[0].tokens for hypotheses in found] == [[4] * n for n in range(5)]
        assert model.rows_seen <= 1 + 2 + 3 + 4 + 5


@pytest.mark.parametrize("beam_size", [1, 4])
def test_endless_repetition_stops_at_the_limit(beam_size):
    def log_probs(sentence, prefix):
        return torch.tensor([-math.inf] * 3 + [math.log(0.1), math.log(0.9)])

    (found,) = search(TableModel(log_probs), [12], beam_size, 1.0, beam_size)
    finished = [hypothesis for hypothesis in found if hypothesis.finished]
    assert found[: len(finished)] == finished  # finished ones first
    if beam_size == 1:
        assert (found[0].tokens, found[0].finished) == ([4] * 12, False)
        assert found[0].score == pytest.approx(math.log(0.9), abs=1e-6)
    else:
        best = max((11 * math.log(0.9) + math.log(0.1)) / 12, math.log(0.1))
        assert (found[0].tokens, found[0].score) == ([4] * 11, pytest.approx(best, abs=1e-6))
    assert all(len(hypothesis.tokens) <= 12 for hypothesis in found)


def test_without_repeated_pairs_a_loop_ends_after_two():
    def log_probs(sentence, prefix):
        return torch.tensor([-math.inf] * 3 + [math.log(0.1), math.log(0.9)])

    (found,) = search(TableModel(log_probs), [12], 1, 1.0, no_repeat_ngram_size=2)
    assert (found[0].tokens, found[0].finished) == ([4, 4], True)
    (found,) = search(TableModel(log_probs), [12], 1, 1.0)
    assert len(found[0].tokens) == 12  # the default bans nothing


def test_unfinished_only_where_none_finished():
    def log_probs(sentence, prefix):
        return torch.tensor([-math.inf] * 4 + [math.log(0.6), math.log(0.4)])

    (found,) = search(TableModel(log_probs), [3], 2, 1.0, 2)
    assert [hypothesis.tokens for hypothesis in found] == [[4, 4, 4], [4, 4, 5]]
    assert not any(hypothesis.finished for hypothesis in found)


@pytest.mark.parametrize("beam_size", [1, 2, 5])
@pytest.mark.parametrize("broken", [-math.inf, math.nan])
def test_nothing_allowed_ends_the_hypothesis(beam_size, broken):
    def log_probs(sentence, prefix):
        if len(prefix) == sentence:
            return torch.full((6,), broken)
        return torch.tensor([0.1, 0.1, 0.1, 0.0, 0.4, 0.3]).log()

    found = search(TableModel(log_probs), [9, 9, 9], beam_size, 1.0, beam_size)
    assert [hypotheses[0].tokens for hypotheses in found] == [[], [4], [4, 4]]
    assert not any(hypothesis.finished for hypotheses in found for hypothesis in hypotheses)


@pytest.mark.parametrize("beam_size", [1, 4])
def test_special_tokens_are_never_chosen(beam_size):
    def log_probs(sentence, prefix):
        logits = torch.tensor([100.0, 100.0, 100.0, 0.0, 3.0, 2.0])
        logits[EOS_ID] = 5.0 * (len(prefix) == 2)
        return logits

    (found,) = search(TableModel(log_probs), [10], beam_size, 1.0)
    assert found[0].tokens == [4, 4]
    assert found[0].score < -90  # the model's own probabilities, not shared out again among the allowed tokens


def test_vocabulary_smaller_than_the_beam():
    (found,) = search(TableModel(random_log_probs(0, 5)), [4], 5, 1.0, 5)
    assert len({(tuple(h.tokens), h.finished) for h in found}) == len(found) == 5
    assert sorted(len(h.tokens) for h in found) == [0, 1, 2, 3, 4]


def test_n_best_has_no_duplicates_and_falling_scores():
    (found,) = search(TableModel(random_log_probs(1, 9)), [8], 6, 0.8, 6)
    assert len({tuple(hypothesis.tokens) for hypothesis in found}) == 6
    scores = [hypothesis.score for hypothesis in found if hypothesis.finished]
    assert scores == sorted(scores, reverse=True)


def test_wrong_n_best_and_no_sentences():
    model = TableModel(random_log_probs(0, 6))
    with pytest.raises(ValueError, match="n_best=3: must be between 1 and decode.beam_size=2"):
        search(model, [5], 2, 1.0, 3)
    assert search(model, [], 2, 1.0) == []
