"""Sentences of a text: cut and put together again without losing a character."""

import re
import unicodedata
from collections.abc import Callable

from mt.languages import WITHOUT_SPACES, primary_language

_WINDOW_CHARACTERS = 4000  # the segmenter takes quadratic time where quotation marks or Chinese sentences are many
_WIDE_STOP = re.compile(r"(?<=[。！？])(?=[^\s。！？…”’」』）】》〉〕)\]])")  # sentencex does not cut before a digit
# Clause punctuation that may end a part of a sentence that is too long.
_CLAUSE_END = re.compile(r"(?<=[,;:)—])(?=\s)|(?<=[，；：、。！？،؛।])")
_WORD_START = re.compile(r"(?<=\s)(?=\S)")


def split_sentences(text: str, language: str) -> list[str]:
    """Returns the sentences of a text, each with the white space behind it: joined, they are the text.

    `language` is a code such as en, de or zh_CN. An unknown one gets general rules. Takes linear time.
    """
    from sentencex import segment

    code = primary_language(language)
    sentences: list[str] = []
    pending: list[str] = []  # windows without an end of a sentence
    start = 0
    while start < len(text):
        window = text[start : start + _WINDOW_CHARACTERS]
        found = [sentence for sentence in segment(code, window) if sentence]
        if "".join(found) != window:  # never lose a character, whatever a later segmenter does
            found = [window]
        if start + len(window) < len(text):
            if len(found) == 1:
                pending += found
                start += len(window)
                continue
            found.pop()  # its end may lie behind the window: the next window begins with it
        start += sum(map(len, found))
        sentences += ["".join([*pending, found[0]]), *found[1:]]
        pending = []
    return [part for sentence in sentences for part in _WIDE_STOP.split(sentence)]


def cut_long(text: str, limit: int, count: Callable[[list[str]], list[int]]) -> list[str]:
    """Returns parts of at most `limit` tokens each, which joined are the text.

    It is cut behind clause punctuation, else before a word, else anywhere. `count` returns the tokens of each text.
    Raises ValueError where one character has more tokens than the limit.
    """
    parts = [text]
    for boundary in (_CLAUSE_END, _WORD_START):
        parts = [piece for part in parts for piece in _packed(part, boundary, limit, count)]
    return [piece for part in parts for piece in _halved(part, limit, count)]


def space_between(before: str, space: str, after: str, source_language: str, target_language: str) -> str:
    """Returns the white space between two translated sentences or parts, of which `space` stood between the sources.

    A space beside Chinese or Japanese characters goes where the target language has none there; where the source
    language has none and the target has, one comes in, but beside a bracket or before a mark. Everything else stays.
    """
    if not before or not after:
        return space
    from_spaceless = primary_language(source_language) in WITHOUT_SPACES
    to_spaceless = primary_language(target_language) in WITHOUT_SPACES
    wide = is_wide(before[-1]) or is_wide(after[0])
    if to_spaceless and wide and set(space) == {" "}:
        return ""
    if from_spaceless and not to_spaceless and not wide and not space:
        return "" if before[-1] in "([" or after[0] in ",.;:!?)]" else " "
    return space


def is_wide(character: str) -> bool:
    """Returns whether a character is as wide as a Chinese one."""
    return unicodedata.east_asian_width(character) in "WF"


def _packed(text: str, boundary: re.Pattern[str], limit: int, count: Callable[[list[str]], list[int]]) -> list[str]:
    """Returns the text in few parts, cut at boundaries only, of at most `limit` tokens if boundaries allow it."""
    if count([text])[0] <= limit:
        return [text]
    pieces = boundary.split(text)
    parts, tokens = [""], 0
    for piece, length in zip(pieces, count(pieces), strict=True):
        if parts[-1] and tokens + length > limit:
            parts.append("")
            tokens = 0
        parts[-1] += piece
        tokens += length
    return parts


def _halved(text: str, limit: int, count: Callable[[list[str]], list[int]]) -> list[str]:
    waiting, parts = [text], []
    while waiting:
        part = waiting.pop()
        if count([part])[0] <= limit:
            parts.append(part)
        elif len(part) == 1:
            raise ValueError(f"decode.max_source_tokens={limit}: U+{ord(part):04X} alone has more tokens: raise it")
        else:
            waiting += [part[len(part) // 2 :], part[: len(part) // 2]]
    return parts
