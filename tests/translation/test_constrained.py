"""The search for translations that hold phrases, against all translations that do."""

import itertools

import pytest
import torch

from mt.translation.beam import beam_search
from mt.translation.constrained import constrained_search
from mt.translation.phrases import Phrase
from tests.translation.table_models import TableModel, all_translations, probability_of, random_log_probs

V, LIMIT = 8, 5
PIECES = {4: b"a", 5: b"b", 6: b"ab", 7: b"c"}


def phrase(text):
    """All ways to spell a text in the four pieces, anywhere."""

    def steps(offset):
        return tuple((t, offset + len(p)) for t, p in PIECES.items() if text[offset:].startswith(p))

    return Phrase(text, steps(0), {offset: steps(offset) for offset in range(len(text))})


def written(tokens):
    return b"".join(PIECES[t] for t in tokens)


def spelled_without_overlap(tokens, phrases):
    """Whether the tokens hold the phrases one after the other, each in whole pieces, in some order."""

    def found_from(position, missing):
        if not missing:
            return True
        for start in range(position, len(tokens)):
            for end in range(start + 1, len(tokens) + 1):
                text = written(tokens[start:end])
                for p in missing:
                    if text == p and found_from(end, [q for q in missing if q != p]):
                        return True
        return False

    return found_from(0, list(phrases))


def search(log_probs, phrases, beam_size, n_best=1, limits=None, glues=(False,) * V):
    limits = limits or [LIMIT - sum(len(p) for p in own) for own in phrases]  # grows by the phrases' bytes again
    return constrained_search(
        TableModel(log_probs), torch.arange(len(phrases)), None, limits, beam_size, 1.0,
        [[phrase(p) for p in own] for own in phrases], glues, n_best,
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("phrases", [[b"ab"], [b"c", b"a"], [b"bab"], [b"abc", b"b"]])
def test_a_beam_that_drops_nothing_finds_the_best_translation_with_the_phrases(seed, phrases):
    log_probs = random_log_probs(seed, V)
    (found,) = search(log_probs, [phrases], 5**LIMIT, n_best=3)
    expected = sorted(
        (
            (probability_of(log_probs, 0, t) / (len(t) + 1), list(t))
            for t in all_translations(V, LIMIT)
            if spelled_without_overlap(t, phrases)
        ),
        reverse=True,
    )
    for hypothesis in found:
        assert hypothesis.finished and all(p in written(hypothesis.tokens) for p in phrases)
    assert found[0].tokens == expected[0][1]
    assert found[0].score == pytest.approx(expected[0][0], abs=1e-5)


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
