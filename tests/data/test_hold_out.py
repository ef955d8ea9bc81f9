from collections import Counter

import pytest

from mt.data.hold_out import split_pairs

PAIRS = [(f"Red tea {i}!", f"roter Tee {i}") for i in range(60)]
AGAIN = [(f"red TEA {i}", f"Rottee {i}") for i in range(60)]


def splits(pairs: list[tuple[str, str]], valid: int = 5, test: int = 7, seed: int = 1) -> tuple[dict, Counter[str]]:
    found: dict[str, list[tuple[str, str]]] = {"train": [], "valid": [], "test": []}
    dropped: Counter[str] = Counter()
    for split, pair in split_pairs(lambda: iter(pairs), valid, test, seed, dropped):
        found[split].append(pair)
    return found, dropped


def number(pair: tuple[str, str]) -> str:
    return "".join(filter(str.isdigit, pair[0]))


def test_no_sentence_stands_in_two_splits() -> None:
    found, dropped = splits(PAIRS + AGAIN)
    assert [len(found[name]) for name in ("train", "valid", "test")] == [96, 5, 7]
    assert dropped == {"source in valid": 5, "source in test": 7}
    held_out = [number(pair) for pair in found["valid"] + found["test"]]
    assert len(set(held_out)) == 12 and not {number(pair) for pair in found["train"]} & set(held_out)
    assert found["train"] == [pair for pair in PAIRS + AGAIN if number(pair) not in held_out]  # in order


def test_the_seed_decides_and_a_corpus_may_grow() -> None:
    found, _ = splits(PAIRS)
    assert splits(list(reversed(PAIRS)))[0]["test"] == list(reversed(found["test"])) and splits(PAIRS)[0] == found
    assert splits(PAIRS, seed=2)[0]["test"] != found["test"]
    grown = splits([*PAIRS, ("white tea", "weißer Tee")])[0]
    assert len(set(grown["test"]) & set(found["test"])) >= 6


def test_pairs_with_an_empty_side_are_never_held_out() -> None:
    empty = [("\u200b", "leer"), ("", "leer"), ("lone tea", " ")]
    found, _ = splits([*PAIRS[:3], *empty], 1, 1)
    assert len(found["train"]) == 4 and set(empty) < set(found["train"])


def test_too_few_sentences() -> None:
    with pytest.raises(ValueError, match="60 different source sentences, but --valid=30 and --test=30 must leave some"):
        splits(PAIRS + AGAIN, 30, 30)
    with pytest.raises(ValueError, match="there are 0 different"):
        splits([("", "x")], 1, 0)
