import warnings

import pytest

from mt.translation.documents import sentence_translator


class Echo:
    """A translator whose tokens are words and which gives a text back in capitals."""

    class decode:
        max_source_tokens = 4

    def __init__(self) -> None:
        self.asked: list[str] = []

    def count_tokens(self, texts: list[str]) -> list[int]:
        return [len(text.split()) for text in texts]

    def translate_n_best(self, texts: list[str], n_best: int, names: list[str]) -> list[list[object]]:
        assert n_best == 1 and len(names) == len(texts)
        assert all(length <= 4 for length in self.count_tokens(texts))
        self.asked += texts
        found = [type("Translation", (), {"text": text.strip().upper()}) for text in texts]
        return [[translation] for translation in found]


def test_what_is_too_long_is_translated_in_parts_and_told() -> None:
    echo = Echo()
    with pytest.warns(
        UserWarning, match=r'max_source_tokens=4 tokens, translated in parts: "a b c, d e" \(5 tokens\)$'
    ):
        found = sentence_translator(echo, "en", "de")(["x", "a b c, d e", "y z"])
    assert found == ["X", "A B C, D E", "Y Z"] and echo.asked == ["x", "a b c,", " d e", "y z"]


def test_a_line_of_5000_words_is_complete() -> None:
    with warnings.catch_warnings(action="ignore"):
        (found,) = sentence_translator(Echo(), "en", "de")(["tea " * 5000])
    assert found.split() == ["TEA"] * 5000


def test_short_sentences_are_not_warned_of() -> None:
    with warnings.catch_warnings(action="error"):
        assert sentence_translator(Echo(), "en", "de")(["a b", "c"]) == ["A B", "C"]
