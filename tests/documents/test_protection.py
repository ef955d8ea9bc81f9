import re
import time
import warnings
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mt.documents.protection import Code, Text, Translate, merged, plain
from mt.documents.protection import translate_protected as translate_with_spaces
from mt.documents.texts import TextTranslator

PLACEHOLDERS = [
    "<b>", "</b>", '<a href="x">', "<br/>", "http://a.b/c?d=e", "https://x.org", "www.a.org/b", "me@x.org", "{name}",
    "{0:.2f}", "{}", "{{x}}", "${x}", "%{x}", "{n, plural, one {# file} other {# files}}",
    "{g, select, a {{n, plural, one {{x} file} other {{x} files}}} other {b}}", "%s", "%d", "%(count)d",
    "%1$s", "%5.2f", "%ld", "%@", "%%", "%1", "&amp;", "&#8230;", "&#x20AC;", "12:30", "2026-11-30", "192.168.0.1",
    "1.2.3",
]  # fmt: skip


def translate_protected(texts: list[Text], translate: Translate) -> list[Text]:
    return translate_with_spaces(texts, translate, lambda before, space, after: space)


def upper(texts: list[str]) -> list[str]:
    return [text.upper() for text in texts]


def garble(texts: list[str]) -> list[str]:
    """A model that loses every placeholder, and makes up none."""
    return [re.sub(r"[^a-z ]|\b\w+(?=@)", "", text).upper() for text in texts]


@pytest.mark.parametrize("placeholder", PLACEHOLDERS)
@pytest.mark.parametrize("translate", [upper, garble])
def test_a_placeholder_is_in_the_output_once(placeholder: str, translate) -> None:
    (found,) = translate_protected([[f"see {placeholder} and go"]], translate)
    assert found == [f"SEE {placeholder} AND GO"]


@pytest.mark.parametrize("text", ["100% of 3.5 a", "50 % done", "1,000.50", "a < b > c", "x & y", "5 {", "a@b", "1 0"])
def test_other_text_is_left_to_the_translator(text: str) -> None:
    assert translate_protected([[text]], lambda texts: ["x" for _ in texts]) == [["x"]]


def test_a_translation_that_keeps_all_is_used_whole_in_any_order() -> None:
    asked = []

    def swap(texts: list[str]) -> list[str]:
        asked.append(texts)
        return ["von %d und %s" for _ in texts]

    assert translate_protected([["%s of %d"]], swap) == [["von %d und %s"]]
    assert asked == [["%s of %d"], []]


def test_codes_stay_in_their_order() -> None:
    text: Text = ["go ", Code("<g 1>"), "here", Code("</g>"), " now"]
    kept = translate_protected([text], lambda texts: ["jetzt <1>hier<2> los" for _ in texts])
    assert kept == [["jetzt ", Code("<g 1>"), "hier", Code("</g>"), " los"]]
    crossed = translate_protected([text], lambda texts: ["<2>x<1>" if "<1>" in t else t.upper() for t in texts])
    assert crossed == [["GO ", Code("<g 1>"), "HERE", Code("</g>"), " NOW"]]


def test_text_that_looks_like_a_code_is_no_code() -> None:
    text: Text = ["go <1> ", Code("<b>"), "here"]
    assert translate_protected([text], upper) == [["GO <1> ", Code("<b>"), "HERE"]]
    assert translate_protected([["go <1>"]], upper) == [["GO <1>"]]


def test_a_made_up_variable_is_refused_and_told() -> None:
    with pytest.warns(UserWarning, match="1 of 2 texts stay untranslated.*'bad text'"):
        found = translate_protected([["bad text"], ["good"]], lambda texts: [t.replace("text", "%s") for t in texts])
    assert found == [["bad text"], ["good"]]


def test_a_number_may_come_in() -> None:
    assert translate_protected([["at half past ten"]], lambda texts: ["um 10:30"]) == [["um 10:30"]]


@pytest.mark.parametrize(
    ("source", "target", "text", "expected"),
    [
        ("en", "zh", ["tea ", Code("<b>"), "cup", Code("</b>"), " a"], ["茶", Code("<b>"), "茶", Code("</b>"), "茶"]),
        ("zh", "en", ["茶", Code("<b>"), "杯", Code("</b>"), "{a}."], ["x ", Code("<b>"), "x", Code("</b>"), " {a}."]),
    ],
)
def test_pieces_are_joined_as_the_target_language_does(source: str, target: str, text: Text, expected: Text) -> None:
    translator = TextTranslator(source, target, lambda texts: ["茶" if target == "zh" else "x" for _ in texts])
    assert translator([text]) == [expected]


WORDS = st.sampled_from(
    ["tea", "good", ". ", " ", "\n", "{a}", "%s", "<b>", "http://x.y/z", "&lt;", " 1.2.3 ", "", "!"]
)
MODELS = {
    "drops": lambda text: re.sub(r"[<{%&].*", "", text),
    "doubles": lambda text: f"{text} {text}",
    "empties": lambda text: "",
    "garbles": lambda text: "".join(reversed(text)),
    "keeps": lambda text: text,
}


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(st.one_of(WORDS, st.just(Code("<g>"))), max_size=8), max_size=4), st.sampled_from([*MODELS]))
def test_whatever_a_model_does_placeholders_survive(texts: list[Text], model: str) -> None:
    with warnings.catch_warnings(action="ignore"):
        found = TextTranslator("en", "zh", lambda sentences: [MODELS[model](s) for s in sentences])(texts)
    assert len(found) == len(texts)
    pattern = re.compile(r"\{a\}|%s|<b>|http://x\.y/z|&lt;|1\.2\.3|\n")

    def joined(text: Text) -> str:
        return "".join(part.raw if isinstance(part, Code) else part for part in text)

    def codes(text: Text) -> str:
        return "".join(part.raw for part in text if isinstance(part, Code))

    for before, after in zip(texts, found, strict=True):
        if "http" not in plain(before):  # which takes what stands behind it
            assert Counter(pattern.findall(plain(after))) == Counter(pattern.findall(plain(before))), joined(after)
        assert codes(after) == codes(before)
        if model == "keeps":
            assert joined(after).replace(" ", "") == joined(before).replace(" ", "")


@pytest.mark.parametrize(
    "unit", ["<a ", "{", "{a", "{ {", "%", "&a", "a@", "http://", "1.", "a.b@c.", "www.", "<1>", "a", "{{} "]
)
def test_no_pattern_takes_more_than_linear_time(unit: str) -> None:
    text = unit * (200_000 // len(unit))
    start = time.process_time()
    translate_protected([[text]], lambda texts: texts)
    assert time.process_time() - start < 5


def test_a_number_may_stand_beside_other_characters() -> None:
    assert translate_protected([["open 9:00–10:00"]], lambda texts: ["offen 9:00-10:00h"]) == [["offen 9:00-10:00h"]]


@pytest.mark.parametrize("placeholder", PLACEHOLDERS)
def test_a_placeholder_alone_is_not_translated(placeholder: str) -> None:
    asked = []
    text = f"{placeholder} - {placeholder}"
    found = TextTranslator("en", "de", lambda sentences: asked.extend(sentences) or sentences).strings([text])
    assert found == [text] and asked == []


def test_a_number_of_qt_stays_before_a_stop() -> None:
    assert translate_protected([["open %1."]], garble) == [["OPEN %1."]]


def test_many_strings_are_merged_in_linear_time() -> None:
    start = time.process_time()
    assert merged(["tea "] * 400_000) == ["tea " * 400_000]
    assert time.process_time() - start < 3  # quadratic time would be far more
