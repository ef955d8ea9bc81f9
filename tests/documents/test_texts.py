"""A text sentence by sentence is the same text."""

import pytest

from mt.documents.texts import TextTranslator

TEXTS = [
    "",
    " ",
    "One.",
    "One. Two!  Three?\n\n  Four. \n",
    "See https://a.org/b. It costs 5%. {name} is here.",
    "12:30\nNoon.",
    "一。二！三？",
    "Same. Same. Same. Other. Same.",
]


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("languages", [("en", "de"), ("en", "zh"), ("zh", "en")])
def test_pairs_are_the_whole(text, languages):
    asked = []

    def translate(texts):
        asked.append(texts)
        return [f"字{each.lower()}字" if languages[1] == "zh" else f"x{each.upper()}" for each in texts]

    texts = TextTranslator(*languages, translate)
    pairs = list(texts.pairs(text))
    assert "".join(source for source, _ in pairs) == text
    assert "".join(translation for _, translation in pairs) == texts.strings([text])[0]


def test_pairs_come_one_by_one_and_then_more_together():
    asked = []

    def translate(texts):
        asked.extend([len(texts)] * bool(texts))
        return texts

    sentences = [f"They eat {number} bowls of rice." for number in range(8)]
    found = TextTranslator("en", "de", translate).pairs(" ".join(sentences))
    assert next(found) == (sentences[0], sentences[0]) and asked == [1]
    assert len(list(found)) == 7 and asked == [1, 2, 4, 1]
