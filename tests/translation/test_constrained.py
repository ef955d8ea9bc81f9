"""The search for translations that hold phrases, against all translations that do."""

import itertools
from functools import cache

import pytest
import torch

from mt.translation.beam import beam_search
from mt.translation.constrained import constrained_search
from mt.translation.phrases import Phrase
from mt.translation.rules import MinimumLength, NoRepeatedNgram, TargetPrefix
from tests.translation.table_models import TableModel, all_translations, probability_of, random_log_probs

V, LIMIT = 8, 5
NO_GLUE = (False,) * V
PIECES = {4: b"a", 5: b"b", 6: b"ab", 7: b"c"}


def phrase(text):
    """All ways to spell a text in the four pieces, anywhere."""

    def steps(offset):
        return tuple((t, offset + len(p)) for t, p in PIECES.items() if text[offset:].startswith(p))

    return Phrase(text, steps(0), {offset: steps(offset) for offset in range(len(text))})


def written(tokens):
    return b"".join(PIECES[t] for t in tokens)


def holds(tokens, phrases, glues=NO_GLUE):
    """Whether each phrase is spelled in whole pieces somewhere, and no glue follows it."""
    runs = [
        written(tokens[start:end])
        for end in range(1, len(tokens) + 1)
        if end == len(tokens) or not glues[tokens[end]]
        for start in range(end)
    ]
    return all(phrase in runs for phrase in phrases)


def search(log_probs, phrases, beam_size, n_best=1, limits=None, glues=NO_GLUE, rules=()):
    limits = limits or [LIMIT - sum(len(p) + 1 for p in own) for own in phrases]  # grows by the phrases again
    return constrained_search(
        TableModel(log_probs), torch.arange(len(phrases)), None, limits, beam_size, 1.0,
        [[phrase(p) for p in own] for own in phrases], glues, n_best, rules,
    )  # fmt: skip


def assert_best(found, log_probs, allowed):
    """found: all that a beam that drops nothing finds, best first."""
    expected = sorted(
        ((probability_of(log_probs, 0, t) / (len(t) + 1), list(t)) for t in all_translations(V, LIMIT) if allowed(t)),
        reverse=True,
    )[: len(found)]
    finished = [h for h in found if h.finished]
    assert [h.tokens for h in finished] == [tokens for _, tokens in expected] and expected
    assert [h.score for h in finished] == pytest.approx([score for score, _ in expected], abs=1e-5)


PHRASES = [
    [b"ab"], [b"c", b"a"], [b"bab"], [b"abc", b"b"], [b"ab", b"ac"], [b"cc", b"ca"], [b"aab"], [b"ab", b"bc"], [b"aa"],
]  # fmt: skip


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("phrases", PHRASES)
def test_a_beam_that_drops_nothing_finds_the_best_translations_with_the_phrases(seed, phrases):
    log_probs = cache(random_log_probs(seed, V))
    (found,) = search(log_probs, [phrases], 5**LIMIT, n_best=3)
    assert_best(found, log_probs, lambda tokens: holds(tokens, phrases))


@pytest.mark.parametrize("glue", [(4, 5, 6), (7,), (5,), (6, 7)])
@pytest.mark.parametrize("phrases", PHRASES)
def test_a_phrase_counts_where_no_letter_follows_it(glue, phrases):
    log_probs, glues = cache(random_log_probs(5, V)), [token in glue for token in range(V)]
    (found,) = search(log_probs, [phrases], 5**LIMIT, n_best=3, glues=glues)
    assert_best(found, log_probs, lambda tokens: holds(tokens, phrases, glues))


@pytest.mark.parametrize("phrases", [[b"ab"], [b"c", b"a"], [b"abc"]])
def test_rules_hold_beside_phrases(phrases):
    log_probs = cache(random_log_probs(6, V))
    prefix = TargetPrefix([[4, 7]], [[6]], [NoRepeatedNgram(1), MinimumLength([3])])
    (found,) = search(log_probs, [phrases], 5**LIMIT, n_best=3, rules=[prefix])

    def allowed(tokens):
        begins = tokens[:1] == (4,) and tokens[1:2] in ((6,), (7,))
        return begins and len(tokens) >= 3 and len(set(tokens)) == len(tokens) and holds(tokens, phrases)

    assert_best(found, log_probs, allowed)


@pytest.mark.parametrize("beam_size, n_best", [(2, 2), (3, 1), (5, 4)])
def test_without_phrases_it_is_beam_search(beam_size, n_best):
    for seed in range(5):
        log_probs, sentences = random_log_probs(seed, V, sharpness=2.0), torch.arange(3)
        usual = beam_search(TableModel(log_probs), sentences, None, [40] * 3, beam_size, 1.0, n_best)
        found = search(log_probs, [[]] * 3, beam_size, n_best, [40] * 3)
        for a, b in zip(found, usual, strict=True):
            assert [(h.tokens, h.finished) for h in a] == [(h.tokens, h.finished) for h in b]
            assert [h.score for h in a] == pytest.approx([h.score for h in b], abs=1e-5)


@pytest.mark.parametrize("beam_size", [1, 4, 8])
def test_phrases_just_begun_do_not_crowd_out_the_one_that_is_furthest(beam_size):
    def log_probs(sentence, prefix):  # "a" is likely anywhere, "b" after it nearly impossible
        return torch.tensor([0, 0, 0, 0.05, 0.04, 1e-6, 0, 0.9]).log()

    for text in (b"abb", b"abba", b"abbbb"):
        (found,) = search(log_probs, [[text]], beam_size, limits=[9])
        assert found[0].finished and text in written(found[0].tokens)


def test_a_rule_that_leaves_nothing_ends_the_hypothesis_unfinished():
    log_probs = random_log_probs(0, V)
    for phrases in ([b"ab"], []):
        (found,) = search(log_probs, [phrases], 3, limits=[5], rules=[Nothing()])
        assert len(found) == 1 and not found[0].finished and found[0].tokens == [] and found[0].score == 0
    (found,) = search(log_probs, [[b"c", b"ab"]], 3, limits=[5], rules=[TargetPrefix([[7]], [[]], [Nothing()])])
    assert found[0].tokens == [7] and not found[0].finished


class Nothing:
    def __call__(self, log_probs, prefixes, sentences):
        log_probs[:] = -torch.inf


@pytest.mark.parametrize("beam_size", [1, 2, 5])
def test_small_beams_always_hold_all_phrases(beam_size):
    phrases = [[b"ab", b"c"], [], [b"ccc"], [b"ab", b"ba", b"cc"], [b"c"]]
    unlikely = 0
    for seed in range(10):
        log_probs = random_log_probs(seed, V, sharpness=3.0)
        limits = [12] * len(phrases)
        found = search(log_probs, phrases, beam_size, limits=limits)
        free = beam_search(TableModel(log_probs), torch.arange(5), None, limits, beam_size, 1.0)
        for own, (best,), (usual,) in zip(phrases, found, free, strict=True):
            assert all(p in written(best.tokens) for p in own)
            assert best.finished
            unlikely += any(p not in written(usual.tokens) for p in own)
    assert unlikely > 10  # without the search they would be missing


def test_neighbours_change_nothing():
    log_probs = random_log_probs(7, V)
    phrases = [[b"ab", b"c"], [], [b"bb"], [b"c"]]
    together = search(log_probs, phrases, 3, 3, [9] * 4)
    for sentence, own in enumerate(phrases):
        alone = constrained_search(
            TableModel(log_probs), torch.tensor([sentence]), None, [9], 3, 1.0, [[phrase(p) for p in own]],
            [False] * V, 3,
        )  # fmt: skip
        assert alone[0] == together[sentence]


def test_no_letter_follows_the_end_of_a_phrase():
    glues = [False, False, False, False, True, True, True, False]  # c may follow
    for seed in range(10):
        (found,) = search(random_log_probs(seed, V, 3.0), [[b"ab"]], 4, limits=[10], glues=glues)
        text = written(found[0].tokens)
        assert found[0].finished
        assert any(text[i + 2 : i + 3] in (b"", b"c") for i in range(len(text)) if text[i : i + 2] == b"ab")


def test_a_phrase_without_room_in_the_limit_still_fits():
    log_probs = random_log_probs(0, V)
    for own in itertools.combinations([b"abab", b"ccc", b"ba"], 2):
        ((best,),) = search(log_probs, [list(own)], 2, limits=[1])
        assert all(p in written(best.tokens) for p in own)
