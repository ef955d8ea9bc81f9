"""Each rule against a search that tries every translation and leaves out, or lowers, what the rule is about."""

import itertools
import math
import re
from functools import cache

import pytest
import torch

from mt.tokenizer import EOS_ID, text_of
from mt.translation.beam import beam_search
from mt.translation.rules import Diversity, Forbidden, MinimumLength, NoRepeatedNgram, RepetitionPenalty, TargetPrefix
from tests.translation.table_models import TableModel, all_translations, probability_of, random_log_probs

V, LIMIT = 7, 5  # three ordinary tokens: 4, 5, 6
EVERYTHING = 4**LIMIT  # a beam that drops nothing
PIECES = [b"", b"", b"", b"", *(text.encode() for text in ("茶", "酒", "茶酒"))]
WORDS = [b"", b"", b"", b"", b"a", b"b", b" ", b"("]


def search(log_probs, rules, sentences=1, beam_size=EVERYTHING, n_best=8, length_penalty=1.0, limit=LIMIT):
    memory = torch.arange(sentences)
    limits = [limit] * sentences
    return beam_search(TableModel(log_probs), memory, None, limits, beam_size, length_penalty, n_best, rules)


def assert_best(found, log_probs, sentence, allowed, score=None, length_penalty=1.0):
    """found: hypotheses. allowed(tokens): whether the rule lets it be. score(tokens): its log probability."""
    found = [hypothesis for hypothesis in found if hypothesis.finished]
    score = score or (lambda tokens: probability_of(log_probs, sentence, tokens))
    expected = sorted(
        ((score(t) / (len(t) + 1) ** length_penalty, list(t)) for t in all_translations(V, LIMIT) if allowed(t)),
        reverse=True,
    )[: len(found)]
    assert [h.tokens for h in found] == [tokens for _, tokens in expected]
    assert [h.score for h in found] == pytest.approx([score for score, _ in expected], abs=1e-5)


def written(tokens):
    return b"".join(PIECES[token] for token in tokens).decode()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("texts", [["酒"], ["茶酒"], ["茶茶", "茶酒茶酒"], ["酒酒", "茶酒茶"], ["茶茶酒茶酒"]])
def test_forbidden_texts_never_occur_in_any_pieces(seed, texts):
    log_probs = random_log_probs(seed, V)
    (found,) = search(log_probs, [Forbidden(texts, PIECES)])
    assert_best(found, log_probs, 0, lambda tokens: not any(text in written(tokens) for text in texts))


@pytest.mark.parametrize("texts", [["a"], ["ab"], ["a a", "ba"], ["(b"], ["b a", "ab b"]])
def test_no_word_begins_with_a_forbidden_text(texts):
    size, log_probs = len(WORDS), cache(random_log_probs(8, len(WORDS)))
    memory, rule = torch.arange(1), Forbidden(texts, WORDS)
    (found,) = beam_search(TableModel(log_probs), memory, None, [LIMIT], 5**LIMIT, 1.0, 30, [rule])
    pattern = re.compile("|".join(rf"(?<![ab]){re.escape(t)}" if t[0].isalpha() else re.escape(t) for t in texts))
    expected = sorted(
        (
            (probability_of(log_probs, 0, tokens) / (len(tokens) + 1), list(tokens))
            for tokens in all_translations(size, LIMIT)
            if not pattern.search(b"".join(WORDS[token] for token in tokens).decode())
        ),
        reverse=True,
    )
    assert [h.tokens for h in found] == [tokens for _, tokens in expected[:30]]
    assert [h.score for h in found] == pytest.approx([score for score, _ in expected[:30]], abs=1e-5)


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("ab", [b"a", b"b", b"\xe9"]),  # which nothing makes a character of
        ("茶", [b"\xe8", b"\x8c\xb6", b"a"]),
        ("a b", [b"a", b"\x1e", b"b"]),
        ("酒a", [b"\xe9\x85", b"\x92a", b"\xef\xbf\xbd"]),
    ],
)
def test_bytes_that_are_dropped_or_read_otherwise_hide_no_forbidden_text(text, pieces):
    log_probs, pieces = random_log_probs(9, V), [b""] * 4 + pieces
    (found,) = search(log_probs, [Forbidden([text], pieces)])
    pattern = re.compile(rf"(?<![ab]){text}" if text[0] == "a" else text)

    def holds(tokens):
        return pattern.search(text_of(b"".join(pieces[token] for token in tokens)))

    assert_best(found, log_probs, 0, lambda tokens: not holds(tokens))
    (free,) = search(log_probs, [], n_best=40)
    assert any(holds(hypothesis.tokens) for hypothesis in free)


@pytest.mark.parametrize("minimum", [0, 1, 3, 4])
def test_minimum_length_of_each_sentence(minimum):
    log_probs = random_log_probs(1, V)
    found = search(log_probs, [MinimumLength([minimum, 2])], sentences=2)
    assert_best(found[0], log_probs, 0, lambda tokens: len(tokens) >= minimum)
    assert_best(found[1], log_probs, 1, lambda tokens: len(tokens) >= 2)


@pytest.mark.parametrize("factor", [1.0, 1.3, 3.0])
def test_repetition_is_penalised_token_by_token(factor):
    log_probs = random_log_probs(2, V)

    def score(tokens):
        total = 0.0
        for i, token in enumerate((*tokens, EOS_ID)):
            total += float(log_probs(0, tokens[:i])[token]) * (factor if token in tokens[:i] else 1.0)
        return total

    (found,) = search(log_probs, [RepetitionPenalty(factor)])
    assert_best(found, log_probs, 0, lambda tokens: True, score)


@pytest.mark.parametrize("seed", range(3))
def test_a_prefix_comes_first_and_the_rest_is_the_best_that_follows(seed):
    log_probs = random_log_probs(seed, V)
    rule = TargetPrefix([[6, 4], [], [5, 4]], [[], [], [6]])
    found = search(log_probs, [rule], sentences=3)
    assert_best(found[0], log_probs, 0, lambda tokens: tokens[:2] == (6, 4))
    assert_best(found[1], log_probs, 1, lambda tokens: True)
    assert_best(found[2], log_probs, 2, lambda tokens: tokens[:1] == (5,) and tokens[1:2] in ((4,), (6,)))


def test_a_prefix_overrules_the_other_rules_which_apply_after_it():
    log_probs = random_log_probs(0, V)
    rule = TargetPrefix([[5, 5, 5]], [[]], [Forbidden(["酒"], PIECES), NoRepeatedNgram(1)])
    (found,) = search(log_probs, [rule])
    assert sum(h.finished for h in found) == 2  # 茶酒 holds 酒
    assert_best(found, log_probs, 0, lambda t: t in ((5, 5, 5), (5, 5, 5, 4)))


def test_what_goes_on_beyond_a_prefix_is_bound_by_the_other_rules():
    log_probs = random_log_probs(0, V)
    rule = TargetPrefix([[4], [4]], [[6], [6]], [Forbidden(["酒"], PIECES)])  # 茶, which may go on to 茶酒
    for found in search(log_probs, [rule], sentences=2):
        assert found and all("酒" not in written(h.tokens) and h.tokens[0] == 4 for h in found)


@pytest.mark.parametrize("beam_size", [1, 2])
def test_groups_avoid_what_earlier_groups_have_in_the_same_place(beam_size):
    log_probs, penalty = random_log_probs(4, V), 0.7
    rule, groups = Diversity(penalty), []
    for _ in range(3):
        groups.append(search(log_probs, [rule], sentences=2, beam_size=beam_size, n_best=beam_size))
        rule.next_group()
    for sentence in range(2):
        expected = diverse_by_the_book(log_probs, sentence, beam_size, penalty, groups=3)
        assert [[h.tokens for h in group[sentence]] for group in groups] == expected


def diverse_by_the_book(log_probs, sentence, beam_size, penalty, groups):
    """All groups in step, as the paper has it: [groups][hypotheses] of tokens."""
    beams, ends = [[(0.0, ())] for _ in range(groups)], [[] for _ in range(groups)]
    for length in range(1, LIMIT + 1):
        taken = {}
        for group in range(groups):
            candidates = []
            for total, prefix in beams[group]:
                row = log_probs(sentence, prefix).tolist()
                candidates += [(total + row[t] - penalty * taken.get(t, 0), prefix, t) for t in range(EOS_ID, V)]
            candidates.sort(key=lambda candidate: -candidate[0])
            ended = [(total / length, p) for total, p, t in candidates[:beam_size] if t == EOS_ID]
            if beam_size == 1 and (ended or ends[group]):  # greedy search ends at its first </s>
                ends[group], beams[group] = ends[group] or ended, []
                continue
            ends[group] += ended
            beams[group] = [(total, (*p, t)) for total, p, t in candidates if t != EOS_ID][:beam_size]
            if len(ends[group]) >= beam_size:  # what cannot win any more has no say either
                worst = sorted(ends[group], reverse=True)[beam_size - 1][0]
                beams[group] = [(total, prefix) for total, prefix in beams[group] if total / LIMIT > worst]
            for _, prefix in beams[group] if length < LIMIT else ():  # what ends unfinished is not counted
                taken[prefix[-1]] = taken.get(prefix[-1], 0) + 1
    best = []
    for group in range(groups):
        finished = sorted(ends[group], reverse=True)
        unfinished = sorted(((total / LIMIT, p) for total, p in beams[group]), reverse=True)
        best.append([list(tokens) for _, tokens in (finished + unfinished)[:beam_size]])
    return best


def test_several_rules_at_once_and_in_any_batch():
    rules = [NoRepeatedNgram(2), Forbidden(["茶茶酒"], PIECES), MinimumLength([2, 3, 0])]
    log_probs = random_log_probs(3, V)
    together = search(log_probs, rules, sentences=3)
    for sentence, minimum in enumerate((2, 3, 0)):

        def allowed(tokens, minimum=minimum):
            pairs = list(itertools.pairwise(tokens))
            return len(tokens) >= minimum and "茶茶酒" not in written(tokens) and len(set(pairs)) == len(pairs)

        assert_best(together[sentence], log_probs, sentence, allowed)


def test_a_rule_that_leaves_nothing_ends_the_hypothesis_unfinished():
    log_probs = random_log_probs(0, V)
    (found,) = search(log_probs, [Forbidden(["茶", "酒"], PIECES), MinimumLength([2])], beam_size=2, n_best=1)
    assert found[0].tokens == [] and not found[0].finished and math.isfinite(found[0].score)
