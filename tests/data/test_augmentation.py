"""Changes to training pairs: what each makes of a text, and what none of them touches."""

import random
import re

import numpy as np
import pytest

from mt.config import AugmentationConfig
from mt.data.augmentation import (
    Augmenter,
    in_capitals,
    in_lower_case,
    is_on,
    joined,
    partners,
    with_placeholder,
    with_typos,
    without_punctuation,
)
from mt.documents.protection import mask_placeholders


def own(seed=0):
    return random.Random(seed)


def test_case():
    pair = ("Green Tea in Zürich", "Grüner Tee, Straße")
    assert in_lower_case(pair, own()) == ("green tea in zürich", pair[1])
    assert in_capitals(pair, own()) == ("GREEN TEA IN ZÜRICH", "GRÜNER TEE, STRASSE")


@pytest.mark.parametrize(
    ("source", "bare"),
    [
        ('"Well," she said, "it\'s 3.50 - or 1,000."', "Well she said it's 3.50 or 1,000"),
        ("“Really?” (yes!)", "Really yes"),
        ("¿Qué? ¡No!", "Qué No"),
        ("你好，世界。", "你好世界"),
        ("a state-of-the-art model.", "a state-of-the-art model"),
        ("50% & more", "50% & more"),
        ("...", "..."),
    ],
)
def test_punctuation_between_words_goes_and_inside_words_stays(source, bare):
    assert without_punctuation((source, "x."), own()) == (bare, "x.")


def test_typos_are_few_and_in_letters():
    source = "The old 12 horses drink water, and 3 young dogs eat bread in the garden of the castle."
    kinds = set()
    for seed in range(200):
        changed, target = with_typos((source, "ziel"), own(seed))
        assert target == "ziel"
        assert sum(c.isdigit() for c in changed) == 3 and changed.count(",") == 1 and changed.endswith(".")
        assert abs(len(changed) - len(source)) <= 3 and changed.count(" ") == source.count(" ")
        kinds.add(len(changed) - len(source))
    assert {-1, 0, 1} <= kinds
    assert with_typos(("1 2 3", "x"), own()) == ("1 2 3", "x")


def test_a_word_of_both_sides_becomes_the_same_placeholder():
    pair = ("Tom bought 30 apples in Berlin.", "Tom kaufte in Berlin 30 Äpfel.")
    seen = set()
    for seed in range(300):
        source, target = with_placeholder(pair, own(seed))
        new = [word for word in source.rstrip(".").split() if word not in pair[0].replace(".", "").split()]
        assert len(new) == 1 and source.count(new[0]) == target.count(new[0]) == 1
        seen.add(new[0])
        assert mask_placeholders(source) != source or re.match(r"@|\[|<\d", new[0])
    assert len(seen) > 100 and "%s" in seen


@pytest.mark.parametrize(
    "pair",
    [("the cat", "die Katze"), ("in Berlin", "Berliner"), ("Tom and Tom", "Tom"), ("a b", "a c"), ("{n} Tom", "Tim")],
)
def test_without_a_word_of_both_sides_nothing_changes(pair):
    assert with_placeholder(pair, own()) == pair


def test_between_east_asian_characters_a_word_stands_for_itself():
    source, target = with_placeholder(("I am Tom, 30.", "我是Tom。"), own(3))
    assert "Tom" not in source and "Tom" not in target and target.startswith("我是") and target.endswith("。")


def test_text_with_placeholders_is_left_alone():
    augmenter = Augmenter(AugmentationConfig(lowercase_probability=1, typo_probability=1, punctuation_probability=1))
    for source in ("Open {file}, please.", "Save %s!", "See https://a.org/B.", "<b>Bold</b> Text."):
        assert augmenter.change((source, "x"), [True, True, True], own()) == (source, "x")
    assert augmenter.change(("Plain Text.", "x"), [True, True, True], own())[0].islower()


def test_pairs_go_on_with_one_of_their_corpus_that_has_room():
    wanted = np.array([True] * 5 + [False] * 5)
    corpora = np.array([0, 0, 1, 1, 2, 0, 0, 1, 1, 0])
    tokens = np.array([10, 10, 10, 10, 10, 10, 95, 10, 10, 10])
    for seed in range(50):
        found = partners(wanted, corpora, tokens, 100, own(seed))
        others = [other for other in found.tolist() if other >= 0]
        assert len(others) == len(set(others)) and all(found[other] == -2 for other in others)
        assert (found == -2).sum() == len(others) >= 2
        assert found[4] == -1 and found[6] == -1  # alone in its corpus; too long
        assert all(corpora[pair] == corpora[other] for pair, other in enumerate(found.tolist()) if other >= 0)


def test_sentences_are_joined_as_the_language_writes():
    pairs = ("Red tea.", "红茶。"), ("Rice.", "米。")
    assert joined(*pairs, ("en", "zh")) == ("Red tea. Rice.", "红茶。米。")
    assert joined(*pairs, ("en", "de")) == ("Red tea. Rice.", "红茶。 米。")


def test_chances_are_kept_and_off_is_off():
    assert not is_on(AugmentationConfig()) and is_on(AugmentationConfig(merging_probability=0.1))
    augmenter = Augmenter(AugmentationConfig(lowercase_probability=0.2, merging_probability=0.4))
    going_on, changes = augmenter.draw(20_000, np.random.default_rng(1))
    assert going_on.mean() == pytest.approx(0.4, abs=0.02) and changes.shape == (1, 20_000)
    assert changes.mean() == pytest.approx(0.2, abs=0.02)
