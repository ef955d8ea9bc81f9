from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from mt.config import CleaningConfig, CorpusConfig, DataConfig
from mt.data import clean as room
from mt.data.clean import Cleaner, token_reasons
from mt.data.files import read_lines
from mt.data.filters import is_empty

LONG = "x" * 19


def clean(pairs: list[tuple[str, str]], **settings: object) -> tuple[list[tuple[str, str]], Counter]:
    cleaner = Cleaner(DataConfig(cleaning=CleaningConfig(**settings)))
    return list(cleaner.clean(pairs)), cleaner.dropped


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


def test_near_duplicates() -> None:
    pairs = [("Tea.", "茶。"), ("tea", "茶"), ("tea", "水"), ("Tea.", "茶。")]
    assert clean(pairs, drop_near_duplicates=True) == ([pairs[0], pairs[2]], Counter({"near duplicate": 2}))
    assert clean(pairs, drop_near_duplicates=True, drop_duplicates=True)[1] == {"near duplicate": 1, "duplicate": 1}


def test_filters_judge_repaired_text_and_one_order_holds(monkeypatch) -> None:
    """Whatever the size of a batch."""
    pairs = [
        ("&amp;quot;a&#9;b", "x"),
        ("&#8203;", "x"),
        ("&lt;", "&lt;"),
        ("\x0b", "x"),
        ("a\ufffd(", "[12]"),
        ("<", "<"),
    ]
    settings = {
        "html_entities": "repair", "control_characters": "repair", "drop_identical": True, "drop_duplicates": True,
        "drop_replacement_characters": True, "drop_bracket_mismatch": True, "drop_number_mismatch": True,
    }  # fmt: skip
    for size in (1, 2, 10):
        monkeypatch.setattr(room, "BATCH_PAIRS", size)
        cleaner = Cleaner(DataConfig(cleaning=CleaningConfig(**settings)))
        assert list(cleaner.clean(pairs)) == [('"a b', "x")]
        assert cleaner.dropped == {"empty source": 2, "identical": 2, "replacement character in source": 1}
        assert cleaner.repaired == {
            "source HTML entities": 3, "target HTML entities": 1, "source control characters": 2,
        }  # fmt: skip
        assert [step.name for step in cleaner.steps][:4] == [
            "HTML entities",
            "control characters",
            "empty",
            "characters",
        ]
        assert (cleaner.left["read"], cleaner.left["HTML entities"], cleaner.left["empty"]) == (6, 6, 4)
        assert (cleaner.left["identical"], cleaner.lost["identical"], cleaner.left["duplicates"]) == (2, 2, 1)


@pytest.mark.parametrize(
    ("setting", "text", "reason"),
    [
        ("html_entities", "a &amp; b", "HTML entities in target"),
        ("control_characters", "a\u200bb", "control characters in target"),
        ("mojibake", "schÃ¶n", "mojibake in target"),
    ],
)
def test_what_can_be_repaired_can_be_dropped(setting: str, text: str, reason: str) -> None:
    if setting == "mojibake":
        pytest.importorskip("ftfy")
    assert clean([("a", text), ("a", "b")], **{setting: "drop"}) == ([("a", "b")], Counter({reason: 1}))
    assert clean([("a", text)]) == ([("a", text)], Counter())


def held_out_data(folder: Path, **settings: object) -> DataConfig:
    (folder / "valid.tsv").write_text("Good day.\tGuten Tag.\n")
    return DataConfig(valid={"main": CorpusConfig(path=str(folder / "valid.tsv"))}, cleaning=CleaningConfig(**settings))


def test_what_stands_in_validation_is_dropped_unless_asked_not_to(tmp_path: Path) -> None:
    pairs = [("good day", "Hallo"), ("hi", "guten tag"), ("hi", "Hallo")]
    cleaner = Cleaner(held_out_data(tmp_path))
    assert list(cleaner.clean(pairs)) == [("hi", "Hallo")]
    assert cleaner.dropped == {"source in valid": 1, "target in valid": 1}
    assert list(Cleaner(held_out_data(tmp_path, drop_held_out="none")).clean(pairs)) == pairs


def test_tokens() -> None:
    source, target = np.array([0, 1, 5, 9, 3, 30, 9]), np.array([9, 0, 4, 3, 9, 10, 10])
    found = token_reasons(source, target, CleaningConfig(max_tokens=8, max_token_ratio=2.5))
    assert {reason: np.flatnonzero(drops).tolist() for reason, drops in found.items()} == {
        "empty source": [0], "empty target": [1], "too many source tokens": [3, 5, 6], "too many target tokens": [4],
        "token ratio": [],
    }  # fmt: skip
    found = token_reasons(source, target, CleaningConfig(max_token_ratio=2.5))
    assert np.flatnonzero(found["token ratio"]).tolist() == [5]
    assert "token ratio" not in token_reasons(source, target, CleaningConfig())


def messy_pairs() -> list[tuple[str, str]]:
    folder = Path(__file__).parents[2] / "../shared/data/messy-en-de"
    if not folder.exists():
        pytest.skip("shared/data/messy-en-de is absent")
    return list(zip(read_lines(folder / "src-train.txt"), read_lines(folder / "tgt-train.txt"), strict=True))


def test_messy_real_text() -> None:
    pairs = messy_pairs()
    kept, counts = clean(pairs)
    assert len(pairs) == len(kept) + counts.total() == 10_000
    assert counts["empty source"] + counts["empty target"] >= 1
