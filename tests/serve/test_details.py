import math

import pytest

pytest.importorskip("fastapi", reason="needs mt's extra serve")

from mt.serve.details import explain, find_words
from mt.translation.translator import load_translator
from tests.serve.small_server import make_run


def texts(text, pieces, language):
    """Returns the words of a text that is cut into these pieces."""
    spans, place = [], 0
    for piece in pieces:
        spans.append((place, place + len(piece)))
        place += len(piece)
    assert place == len(text)
    return [(text[word.start : word.end], word.pieces) for word in find_words(text, spans, language)]


@pytest.mark.parametrize(
    ("pieces", "language", "expected"),
    [
        (["I", " lo", "ve", " tea", "."], "en", [("I", (0,)), ("love", (1, 2)), ("tea", (3,)), (".", (4,))]),
        (
            ["«", "T", "ea", "»", " ", "to", "day"],
            "fr",
            [("«", (0,)), ("Tea", (1, 2)), ("»", (3,)), ("today", (4, 5, 6))],
        ),
        (
            ["我", "喜欢", "中", "国", "。"],
            "zh",
            [("我", (0,)), ("喜欢", (1,)), ("中", (2,)), ("国", (3,)), ("。", (4,))],
        ),
        (["M", "a", "ry", " ", "的", "茶"], "zh", [("Mary", (0, 1, 2)), ("的", (3, 4)), ("茶", (5,))]),
        (["", "", "你", "好"], "zh", [("你", (0, 1, 2)), ("好", (3,))]),  # a character in bytes
        (["a", "", "é", "b"], "fr", [("aéb", (0, 1, 2, 3))]),
        ([" ", " "], "en", []),
        ([], "en", []),
    ],
)
def test_words(pieces, language, expected):
    assert texts("".join(pieces), pieces, language) == expected


@pytest.fixture(scope="module")
def translator(tmp_path_factory):
    return load_translator(make_run(tmp_path_factory.mktemp("runs") / "small"), "cpu")


def test_probability_and_attention_are_those_of_the_forced_pass(translator):
    source, translation = "they drink  green tea", "sie trinken grünen Tee"
    found = explain(translator, ("en", "de"), source, translation)
    words = [source[word["start"] : word["end"]] for word in found["source"]]
    assert words == source.split()
    assert [translation[word["start"] : word["end"]] for word in found["target"]] == translation.split()
    ids = translator.tokenizers.target.encode([translation])[0]
    view = translator.force(translator.sources([source]), [ids])[0]
    spans = translator.tokenizers.target.spans(translation)
    for word in found["target"]:
        own = [i for i, (start, end) in enumerate(spans) if start >= word["start"] - 1 and end <= word["end"] and end]
        assert word["probability"] == pytest.approx(min(math.exp(view.log_probs[i]) for i in own))
        assert len(word["attention"]) == 4 and all(share >= 0 for share in word["attention"])
        to_the_end = sum(float(view.attention[i, -1]) for i in own) / len(own)
        assert sum(word["attention"]) == pytest.approx(1 - to_the_end, abs=1e-5)


@pytest.mark.parametrize(("source", "translation"), [("", "Tee"), ("tea", ""), (" ", " "), ("🫖 tea", "Tee 🫖")])
def test_odd_texts(translator, source, translation):
    found = explain(translator, ("en", "de"), source, translation)
    assert len(found["target"]) == (len(translation.split()) if source.strip() else 0)


@pytest.mark.slow
def test_what_is_longer_than_the_model_reads_is_no_error(translator):
    found = explain(translator, ("en", "de"), "tea " * 1100, "Tee " * 1300)
    assert len(found["source"]) == 1100 and len(found["target"]) == 1300
