import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mt.documents.sentences import cut_long, space_between, split_sentences

SENTENCES = {
    "en": [
        "Dr. Smith went to Washington. ",
        "He arrived at 3 p.m. on Monday. ",
        '"Really?" she asked. ',
        "See e.g. Fig. 3.5 for $3.50, i.e. nothing. ",
        "Visit http://a.b/c.d?e=f. ",
        "The U.S. Army left!  ",
        "And then?",
    ],
    "de": ["Das ist z. B. gut. ", "Am 3. Oktober kam Dr. Müller, d.h. er fuhr. ", "Er sagte: „Komm!“ ", "Nr. 5 da."],
    "zh": ["我爱中国。", "你呢？", "我也是！", "他说：“我来了。”", "好……走吧。", "3.5元。"],
    "ja": ["私は学生です。", "あなたは？", "はい！"],
    "ar": ["مرحبا بالعالم. ", "كيف حالك؟ ", "أنا بخير."],
    "he": ["שלום עולם. ", "מה שלומך? ", "טוב."],
}


@pytest.mark.parametrize("language", SENTENCES)
def test_sentences_end_where_a_reader_ends_them(language: str) -> None:
    assert split_sentences("".join(SENTENCES[language]), language) == SENTENCES[language]


@pytest.mark.parametrize("language", ["en", "zh_CN", "cmn", "EN", "xx", ""])
def test_any_language_code_is_taken(language: str) -> None:
    assert split_sentences("Good tea. 我爱中国。你呢？", language) == ["Good tea. ", "我爱中国。", "你呢？"]


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet='ab. ?!。！？”“"(\n\u2028\u00a0😀1', max_size=200), st.sampled_from(["en", "de", "zh", "ar"]))
def test_no_character_is_lost(text: str, language: str) -> None:
    assert "".join(split_sentences(text, language)) == text


def test_a_sentence_over_the_edge_of_a_window_stays_whole() -> None:
    sentences = ["they read good books. ", "green tea is late! "] * 1000
    assert split_sentences("".join(sentences), "en") == sentences
    assert split_sentences("tea " * 5000, "en") == ["tea " * 5000]


def test_an_abbreviation_at_the_edge_of_a_window_ends_nothing() -> None:
    sentences = ["tea is good. "] * 306 + ["xxxxxxxxxx they met Dr. Smith today. ", "tea is good."]  # 4,000 with Dr
    assert split_sentences("".join(sentences), "en") == sentences


@pytest.mark.parametrize(
    "text",
    ["我爱中国。" * 200_000, "“Hi. " * 200_000, "tea " * 250_000, "." * 1_000_000, "e.g. " * 200_000, '". ' * 300_000],
    ids=["Chinese", "open quotes", "words", "stops", "abbreviations", "quotes"],
)
def test_a_megabyte_in_a_line_ends_in_time(text: str) -> None:
    start = time.process_time()
    assert "".join(split_sentences(text, "en")) == text
    assert time.process_time() - start < 10  # quadratic time would be minutes


def count(texts: list[str]) -> list[int]:
    """Words and marks, and a token for each letter of what is longer than three letters."""
    return [sum(1 if len(word) <= 3 else len(word) for word in text.replace(",", " , ").split()) for text in texts]


def test_a_long_sentence_is_cut_at_clauses_first() -> None:
    text = "a b c, d e f, g h i, j k l."
    assert cut_long(text, 8, count) == ["a b c, d e f,", " g h i, j k l."]
    assert cut_long("a b c d e f g h i, j", 4, count) == ["a b c d ", "e f g h ", "i,", " j"]
    assert cut_long("我们，你们，他们。", 3, lambda texts: list(map(len, texts))) == ["我们，", "你们，", "他们。"]


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet="ab ,，。;xyz", max_size=300), st.integers(1, 20))
def test_parts_fit_and_nothing_is_lost(text: str, limit: int) -> None:
    parts = cut_long(text, limit, count)
    assert "".join(parts) == text
    assert all(length <= limit for length in count(parts))


def test_a_megabyte_without_a_break_is_cut() -> None:
    parts = cut_long("x" * 1_000_000, 256, lambda texts: [len(text) for text in texts])
    assert max(map(len, parts)) <= 256 and sum(map(len, parts)) == 1_000_000


def test_a_character_of_too_many_tokens_is_named() -> None:
    with pytest.raises(ValueError, match="max_source_tokens=2: U.FDFA alone"):
        cut_long("\ufdfa", 2, lambda texts: [18 * len(text) for text in texts])


@pytest.mark.parametrize(
    ("before", "space", "after", "source", "target", "expected"),
    [
        ("我爱你。", " ", "你呢？", "en", "zh", ""),
        ("OK.", " ", "Yes.", "en", "zh_CN", " "),
        ("我爱你。", "\n\n", "你呢？", "en", "zh", "\n\n"),
        ("I love you.", "", "And you?", "zh", "en", " "),
        ("I love you.", " ", "And you?", "en", "de", " "),
        ("a.", "", "b.", "en", "de", ""),
        ("", " ", "b.", "en", "zh", " "),
        ("사랑해.", " ", "너는?", "en", "ko", " "),
    ],
)
def test_white_space_between_sentences(
    before: str, space: str, after: str, source: str, target: str, expected: str
) -> None:
    assert space_between(before, space, after, source, target) == expected
