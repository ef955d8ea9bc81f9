import pytest

from mt.data import filters
from mt.data.scripts import ScriptShare, scripts_of


@pytest.mark.parametrize(
    ("source", "target", "same"),
    [
        ("in 1,000 days", "in 1.000 Tagen", True),
        ("1 000 000", "1,000,000", True),
        ("05/12/2003 at 10", "10 Uhr, 12.05.2003", True),
        ("2003 100 people", "100 Leute 2003", True),  # no number of seven digits
        ("three and 3", "drei", True),  # single digits are often words
        ("٢٠٢٠", "2020", True),
        ("007", "7x 07", True),
        ("30", "dreißig", False),
        ("12 12", "12", False),
        ("1999", "1998", False),
        ("9" * 9999, "9" * 9999, True),
    ],
)
def test_numbers(source: str, target: str, same: bool) -> None:
    assert filters.number_mismatch(source, target) == (None if same else "number mismatch")
    assert filters.number_mismatch(target, source) == (None if same else "number mismatch")


@pytest.mark.parametrize(
    ("source", "target", "same"),
    [
        ("(a) [b] {c}", "{c}【b】（a）", True),
        ("a", "b", True),
        ("(a", "a)", False),
        ("(a)", "[a]", False),
        ("(a)", "a", False),
    ],
)
def test_brackets(source: str, target: str, same: bool) -> None:
    assert filters.bracket_mismatch(source, target) == (None if same else "bracket mismatch")


def test_a_lost_character_names_its_side() -> None:
    assert filters.replacement_character("m \ufffd r", "x") == "replacement character in source"
    assert filters.replacement_character("x", "m \ufffd r") == "replacement character in target"
    assert filters.replacement_character("x", "y") is None


def test_what_a_repair_would_change() -> None:
    check = filters.changed_by(str.lower, "case")
    assert [check("A", "b"), check("a", "B"), check("a", "b")] == ["case in source", "case in target", None]


@pytest.mark.parametrize(
    ("language", "text", "share"),
    [
        ("en", "plain ASCII 123", 1),
        ("de", "schön ж", 5 / 6),
        ("zh-Hans", "我a", 1 / 2),
        ("ja", "日本のカーー", 1),  # ー belongs to several scripts
        ("ru", "да no", 1 / 2),
        ("sr_Latn", "да", 0),
        ("ko", "!? 12", 1),
        ("hi", "हिन्दी", 1),
    ],
)
def test_script_share(language: str, text: str, share: float) -> None:
    assert ScriptShare(language).of(text) == pytest.approx(share)


def test_wrong_scripts() -> None:
    check = filters.wrong_script("en", "zh", 0.5)
    assert check("Привет", "你好") == "wrong source script"
    assert check("hello", "hello") == "wrong target script"
    assert check("hello", "你好 OK") is None


@pytest.mark.parametrize(("language", "message"), [("xx", "as in xx-Latn"), ("en-Qqqq", "no script Qqqq")])
def test_unknown_scripts_are_refused(language: str, message: str) -> None:
    with pytest.raises(ValueError, match=rf"^data.target_language={language}: .*min_script_share.*{message}"):
        filters.wrong_script("en", language, 0.5)


def test_a_script_that_is_named_needs_no_row() -> None:
    assert scripts_of("xx-Cyrl-RS") == ["Cyrl"] and scripts_of("zh_Hant") == ["Hani"]
