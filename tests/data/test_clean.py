from collections import Counter
from pathlib import Path

import pytest

from mt.config import CleaningConfig
from mt.data.clean import clean_pairs, is_empty
from mt.data.files import read_lines

LONG = "x" * 19


def clean(pairs: list[tuple[str, str]], **settings: object) -> tuple[list[tuple[str, str]], Counter]:
    counts: Counter[str] = Counter()
    return list(clean_pairs(pairs, CleaningConfig(**settings), counts)), counts


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "\t\r\n",
        "\u3000",
        "\u200b",
        "\u00a0\ufeff",
        "\x0b\u2028",
        "\u00ad\0",
        "\u3164",
        "\u2066\ufe0f",
        "\ud800",
    ],
)
def test_nothing_to_see_is_empty(text: str) -> None:
    assert is_empty(text)
    kept, counts = clean([(text, "茶"), ("tea", text), ("tea", "茶")])
    assert kept == [("tea", "茶")]
    assert counts == {"empty source": 1, "empty target": 1}


@pytest.mark.parametrize("first", ["", "!", "~", "a", "\x7f", "\x1f", "é", "茶", "\u200b", "\ud800"])
def test_what_can_be_seen_may_stand_anywhere(first: str) -> None:
    assert is_empty(first) == (first in ("", "\x7f", "\x1f", "\u200b", "\ud800"))
    assert not is_empty(f"{first}\u200bx") and not is_empty(f"{first}茶")


def test_kept_pairs_are_unchanged() -> None:
    pairs = [(" tea\u200b\r", "\u3000茶 "), ('"', "\ufffd"), (".", "。")]
    assert clean(pairs) == (pairs, Counter())


@pytest.mark.parametrize(
    ("pair", "settings", "reason"),
    [
        (("abcd", "x"), {"max_characters": 3}, "too many source characters"),
        (("x", "abcd"), {"max_characters": 3}, "too many target characters"),
        (("abc", "abc"), {"max_characters": 3}, None),
        ((LONG + "x", "xx"), {"max_length_ratio": 9}, "length ratio"),
        (("xx", LONG + "x"), {"max_length_ratio": 9}, "length ratio"),
        ((LONG[1:] * 10, LONG + "x"), {"max_length_ratio": 9}, None),
        ((LONG, "x"), {"max_length_ratio": 9}, None),  # too short for a ratio to mean anything
        ((LONG + "x", "x"), {"max_length_ratio": 0}, None),
        (("tea", "tea "), {"drop_identical": True}, "identical"),
        (("tea", "tea"), {}, None),
    ],
)
def test_reasons(pair: tuple[str, str], settings: dict, reason: str | None) -> None:
    kept, counts = clean([pair], **settings)
    assert kept == ([] if reason else [pair])
    assert counts == ({reason: 1} if reason else {})


def test_duplicates_are_pairs_not_sides() -> None:
    pairs = [("a", "b"), ("a", "c"), ("a", "b"), ("d", "b"), ("a", "b")]
    kept, counts = clean(pairs, drop_duplicates=True)
    assert kept == [("a", "b"), ("a", "c"), ("d", "b")]
    assert counts == {"duplicate": 2}
    assert clean(pairs)[0] == pairs


def test_where_a_side_ends_tells_pairs_apart() -> None:
    pairs = [("a\nb", "c"), ("a", "b\nc"), ("1 a", "b"), ("1", " ab")]
    assert clean(pairs, drop_duplicates=True) == (pairs, Counter())


def test_messy_real_text() -> None:
    folder = Path(__file__).parents[2] / "../shared/data/messy-en-de"
    if not folder.exists():
        pytest.skip("shared/data/messy-en-de is absent")
    pairs = list(zip(read_lines(folder / "src-train.txt"), read_lines(folder / "tgt-train.txt"), strict=True))
    kept, counts = clean(pairs)
    assert len(pairs) == len(kept) + counts.total() == 10_000
    assert counts["empty source"] + counts["empty target"] >= 1
