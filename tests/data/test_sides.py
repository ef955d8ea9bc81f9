import pytest

from mt.data.sides import fitting_language, one_line, shown


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("Two\n lines", "Two lines"),
        ("\n  Two \t\r\n\n  lines\n", "Two lines"),
        (" a  b ", " a  b "),
        ("a\rb\u2028c\x0bd", "a\rb\u2028c\x0bd"),
        ("\n", ""),
        ("茶\u3000\n米", "茶\u3000 米"),
    ],
)
def test_line_breaks_become_spaces(text: str, line: str) -> None:
    assert one_line(text) == line


@pytest.mark.parametrize(
    ("codes", "wanted", "found"),
    [
        (["de", "en-US"], "en", "en-US"),
        (["EN"], "en", "EN"),
        (["en-GB", "en"], "en", "en"),  # the same code wins against an earlier one that fits
        (["en-GB", "en-US"], "en", "en-GB"),
        (["zh_CN"], "zh-cn", "zh_CN"),
        (["zh"], "zh-Hans", "zh"),
        (["en-GB"], "en-US", None),
        (["eng", "english", "e", ""], "en", None),
        ([], "en", None),
    ],
)
def test_languages(codes: list[str], wanted: str, found: str | None) -> None:
    assert fitting_language(codes, wanted) == found


def test_names_in_a_message_are_few_short_and_on_one_line() -> None:
    assert shown([]) == "none" and shown(["a\nb", "c"]) == "a b, c"
    many = shown(["x" * 1000] * 1000)
    assert many.endswith(", ...") and len(many) < 1000
