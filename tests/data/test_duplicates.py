import random
import unicodedata

import numpy as np
import pytest

from mt.config import CleaningConfig, CorpusConfig, DataConfig
from mt.data.duplicates import Seen, held_out, normal_form, repeated


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("Hello, World!", "hello world", True),
        ("ＡＢＣ １", "abc 1", True),
        ("STRASSE", "straße", True),
        ("हिन्दी", "हन्द", False),  # marks are part of the word
        ("C++", "C", False),
        ("1 apple", "2 apples", False),
        ("...", "!!!", False),  # nothing else to compare
    ],
)
def test_normal_forms(one: str, other: str, same: bool) -> None:
    assert (normal_form(one) == normal_form(other)) == same


def test_seen_is_a_set_in_small_arrays() -> None:
    generator, seen, known = np.random.default_rng(1), Seen(), set()
    for _ in range(300):
        keys = generator.integers(0, 4000, generator.integers(0, 40)).astype(np.uint64)
        for key, before in zip(keys.tolist(), seen.add(keys).tolist(), strict=True):
            assert before == (key in known)
            known.add(key)
    assert sum(map(len, seen._runs)) == len(known) > 2000
    assert len(seen._runs) <= 12 and all(run.itemsize == 8 for run in seen._runs)


def test_near_duplicates_are_found_across_calls() -> None:
    reasons = repeated("near duplicate", normal_form)
    assert reasons([("Tea.", "茶。"), ("tea", "茶")]) == [None, "near duplicate"]
    assert reasons([("TEA!", "茶！"), ("tea", "水")]) == ["near duplicate", None]


@pytest.fixture
def data(tmp_path) -> DataConfig:
    (tmp_path / "valid.tsv").write_text("Good day.\tGuten Tag.\n\tleer\n")
    (tmp_path / "test.tsv").write_text("See you!\tBis dann!\nempty\t\n")
    valid, test = (CorpusConfig(path=str(tmp_path / f"{name}.tsv")) for name in ("valid", "test"))
    return DataConfig(valid={"main": valid}, test={"main": test})


@pytest.mark.parametrize(
    ("what", "reasons"),
    [
        ("either_side", ["source in valid", "target in test", "source in valid", None, None]),
        ("source", ["source in valid", None, "source in valid", None, None]),
        ("both_sides", ["pair in valid", None, None, None, None]),
    ],
)
def test_what_is_held_out(data: DataConfig, what: str, reasons: list[str | None]) -> None:
    data.cleaning = CleaningConfig(drop_held_out=what)
    check = held_out(data)
    pairs = [("good day", "guten tag"), ("Later", "bis dann"), ("GOOD DAY", "Tag"), ("", "x"), ("day", "Tag")]
    assert [check(source, target) for source, target in pairs] == reasons


def test_latin_text_has_the_normal_form_of_any_text() -> None:
    letters = [chr(code) for code in range(256)]
    generator = random.Random(1)
    texts = ["", *letters, *("".join(generator.choices(letters, k=generator.randint(1, 9))) for _ in range(3000))]
    texts += ["".join(c for c in text if c.isalpha() and c not in "ªº") for text in texts]  # few of which are odd
    for text in texts:
        plain = unicodedata.normalize("NFKC", text)
        kept = "".join(c for c in plain.casefold() if unicodedata.category(c)[0] not in "PZC")
        assert normal_form(text) == (kept or plain.strip()), text
