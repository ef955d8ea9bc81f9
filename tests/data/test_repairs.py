import sys

import pytest

from mt.data.repairs import decode_entities, mojibake_repair, replace_controls


@pytest.mark.parametrize(
    ("text", "decoded"),
    [
        ("&quot; I &apos;m &quot; &#91; &#x5d; &amp;", '" I \'m " [ ] &'),
        ("&amp;quot;", '"'),
        ("&amp;amp;amp;lt;", "&lt;"),  # three times, no more
        ("AT&T; &copy 2020 &timesheet; &notit; &foo;", "AT&T; &copy 2020 &timesheet; &notit; &foo;"),
        ("a&#10;b&#x2028;c&NewLine;d", "a b c d"),  # a pair stays a line
        ("&#150; &#xD800; &#0;", "– \ufffd \ufffd"),  # as HTML5 has it
        ("a & b; c", "a & b; c"),
        ("", ""),
    ],
)
def test_entities(text: str, decoded: str) -> None:
    assert decode_entities(text) == decoded


@pytest.mark.parametrize(
    ("text", "repaired"),
    [
        ("a\tb\x0bc\x85d\u2029e", "a b c d e"),
        ("Donau\u00addampf \ufeffx\u200by\u2060z", "Donaudampf xyz"),
        ("می\u200cخواهم", "می\u200cخواهم"),  # joiners and marks of direction mean something
        ("👨\u200d👩 \u200fab", "👨\u200d👩 \u200fab"),
        ("tea\u00a0茶\u3000x", "tea\u00a0茶\u3000x"),
    ],
)
def test_control_characters(text: str, repaired: str) -> None:
    assert replace_controls(text) == repaired


def test_mojibake() -> None:
    pytest.importorskip("ftfy")
    repair = mojibake_repair()
    assert repair("schÃ¶n, sâ€™il") == "schön, s’il"
    assert repair("\x93Hi\x94") == "“Hi”"
    for text in ("schön", "naïve café", "graðevine", "我爱中国，你呢？", "plain"):
        assert repair(text) == text


def test_mojibake_without_ftfy(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "ftfy", None)
    with pytest.raises(ValueError, match=r"data.cleaning.mojibake: .*pip install 'mt\[cleaning\]'"):
        mojibake_repair()
