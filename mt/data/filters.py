"""Why a pair is dropped: each filter is a function of source and target that returns a reason, or None to keep it."""

import re
from collections.abc import Callable

from mt.data.scripts import ScriptShare

Filter = Callable[[str, str], str | None]

# Anything but white space, controls, lone surrogates and what Unicode calls default ignorable (zero-width characters,
# directions, fillers, variation selectors, tags): something that can be seen.
_VISIBLE = re.compile(
    "[^\\s\x00-\x1f\x7f-\x9f\ud800-\udfff\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
    "\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U000e0000-\U000e0fff]"
)
_RATIO_CHARACTERS = 20  # shorter texts have no meaningful length ratio
_BRACKET = re.compile(r"[()\[\]{}（）［］【】｛｝]")
_PLAIN_BRACKETS = str.maketrans("（）［］【】｛｝", "()[][]{}")
# 1,000 and 1.000 and 1 000 are one number, whatever stands between its groups of three digits
_GROUPED = re.compile(r"(?<![\d.,])\d{1,3}(?:[.,'’\u00a0\u2009\u202f ]\d{3})+(?!\d)")
_NUMBER = re.compile(r"\d{2,}")
_NO_DIGIT = re.compile(r"\D+")


def is_empty(text: str) -> bool:
    """Returns whether nothing in the text can be seen: white space, control and default ignorable characters only."""
    return not "!" <= text[:1] <= "~" and _VISIBLE.search(text) is None  # a search takes five times as long


def empty(source: str, target: str) -> str | None:
    """Returns which side has nothing to see."""
    if is_empty(source):
        return "empty source"
    return "empty target" if is_empty(target) else None


def too_many_characters(limit: int) -> Filter:
    """Returns the filter of sides with more characters than `limit`."""

    def reason(source: str, target: str) -> str | None:
        if len(source) > limit:
            return "too many source characters"
        return "too many target characters" if len(target) > limit else None

    return reason


def length_ratio(limit: float) -> Filter:
    """Returns the filter of pairs with a side of 20 or more characters, over `limit` times as long as the other."""

    def reason(source: str, target: str) -> str | None:
        shorter, longer = len(source.strip()), len(target.strip())
        if shorter > longer:
            shorter, longer = longer, shorter
        return "length ratio" if longer >= _RATIO_CHARACTERS and longer > limit * shorter else None

    return reason


def identical(source: str, target: str) -> str | None:
    """Returns a reason where both sides are equal, white space around them aside."""
    return "identical" if source.strip() == target.strip() else None


def replacement_character(source: str, target: str) -> str | None:
    """Returns which side has U+FFFD, which stands where a character was lost."""
    if "\ufffd" in source:
        return "replacement character in source"
    return "replacement character in target" if "\ufffd" in target else None


def bracket_mismatch(source: str, target: str) -> str | None:
    """Returns a reason where the sides differ in the number of opening or closing round, square or curly brackets.

    Full-width brackets count as plain ones, and 【】 as square ones; the order does not matter.
    """
    return "bracket mismatch" if _brackets(source) != _brackets(target) else None


def _brackets(text: str) -> list[str]:
    found = _BRACKET.findall(text)
    return sorted("".join(found).translate(_PLAIN_BRACKETS)) if found else found


def number_mismatch(source: str, target: str) -> str | None:
    """Returns a reason where the sides differ in their numbers of two or more digits, in any order.

    Separators between groups of three digits do not count, nor leading zeros; digits of all scripts are equal. Single
    digits, which many write as words, are left out.
    """
    return "number mismatch" if _numbers(source) != _numbers(target) else None


def _numbers(text: str) -> list[int]:
    if _NUMBER.search(text) is None:
        return []
    joined = _GROUPED.sub(lambda number: _NO_DIGIT.sub("", number[0]), text)
    return sorted(_value(number) for number in _NUMBER.findall(joined))


def _value(digits: str) -> int:
    return int(digits[:4000])  # Python refuses numbers of more than 4300 digits


def wrong_script(source_language: str, target_language: str, least_share: float) -> Filter:
    """Returns the filter of sides of whose letters a smaller share is in the scripts of their language.

    Raises ValueError for a language whose scripts are not known.
    """
    source_share, target_share = (_script_share(side, language) for side, language in (
        ("source", source_language), ("target", target_language)))  # fmt: skip

    def reason(source: str, target: str) -> str | None:
        if source_share.of(source) < least_share:
            return "wrong source script"
        return "wrong target script" if target_share.of(target) < least_share else None

    return reason


def _script_share(side: str, language: str) -> ScriptShare:
    try:
        return ScriptShare(language)
    except ValueError as error:
        message = f"data.{side}_language={language}: data.cleaning.min_script_share needs its script: {error}"
        raise ValueError(message) from error


def changed_by(repair: Callable[[str], str], kind: str) -> Filter:
    """Returns the filter of pairs with a side that a repair would change."""

    def reason(source: str, target: str) -> str | None:
        if repair(source) != source:
            return f"{kind} in source"
        return f"{kind} in target" if repair(target) != target else None

    return reason
