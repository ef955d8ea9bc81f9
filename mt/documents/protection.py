"""Placeholders: what must come out of a translation as it went in.

A text is translated with its placeholders, and the translation is kept where each came out as often as it went in.
Where it did not, the text between them is translated piece by piece. So no placeholder depends on what the model does.
"""

import re
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import groupby

# Where a part could match the same characters in several ways it is bounded: time stays linear.
_BRACED = "[^{}]"
for _ in range(4):  # braces within braces, as deep as the variables of a plural form within a choice
    _BRACED = rf"(?:[^{{}}]|\{{{_BRACED}{{0,500}}\}})"
_PLACEHOLDER = re.compile(
    r"""
      (?P<tag>     </?[A-Za-z][^<>]{0,2000}> )
    | (?P<url>     \b(?:https?|ftp)://[\w\-.~:/?\#\[\]@!$&'()*+,;=%]+(?<![.,;:!?')\]])
                   | \bwww\.[\w\-.~/?\#&=%+]+(?<![.?]) )
    | (?P<mail>    (?<![\w.%+-])[\w.%+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8} )
    | (?P<brace>   [$%\#]?\{BRACED{0,500}\} )
    | (?P<percent> %% | %L?\d{1,2}(?![\w$]|\.\d)
                   | (?<!\d)%(?:\(\w{1,50}\)|\d{1,2}\$)?[-+\#0]{0,4}\d{0,4}(?:\.\d{1,3})?
                     (?:hh?|ll?|[qLjzt])?[diouxXeEfFgGcrsaA@] )
    | (?P<entity>  &(?:[A-Za-z][A-Za-z0-9]{1,31}|\#[0-9]{1,7}|\#[xX][0-9A-Fa-f]{1,6}); )
    # a time, date, version or address; an amount (1,000.5) is none: other languages write it otherwise
    | (?P<number>  (?<![\w.:/-])(?:\d{1,2}:\d{2}(?::\d{2})?
                   |\d{1,4}(?P<mark>[-/.])\d{1,4}(?:(?P=mark)\d{1,4}){1,6})(?![\w:]) )
    """.replace("BRACED", _BRACED),
    re.VERBOSE | re.ASCII,
)
_CODE = re.compile(r"<\d{1,6}>")  # how a translator is shown a Code
_SHOWN_CHARACTERS = 40  # in a warning


@dataclass(frozen=True)
class Code:
    """Mark-up inside a text. It is never translated, and codes stay in their order."""

    raw: str


Text = list[str | Code]  # what a person reads, with the mark-up in it
Translate = Callable[[list[str]], list[str]]
Space = Callable[[str, str, str], str]  # from what stands before it, itself in the source, and what stands behind


def plain(text: Text) -> str:
    """Returns a text without its codes."""
    return "".join(part for part in text if isinstance(part, str))


def merged(text: Text) -> Text:
    """Returns the same text with neighbouring strings as one, neighbouring codes too, and without empty ones."""
    full = (part for part in text if part not in ("", Code("")))
    return [
        Code("".join(part.raw for part in parts)) if kind is Code else "".join(parts)
        for kind, parts in groupby(full, type)
    ]


def has_words(text: str) -> bool:
    """Returns whether a letter stands outside the placeholders; text without, such as "3 + %d", has no language."""
    return any(character.isalpha() for character in _PLACEHOLDER.sub("", text))


def translate_protected(texts: list[Text], translate: Translate, space: Space) -> list[Text]:
    """Returns the translations of texts, in which each code and placeholder of the source stands as often as there.

    Texts have no white space at their ends. Most are translated once; those that lose a placeholder a second time, in
    pieces, between which `space` tells what stands. A piece stays as it is where its translation makes up a
    placeholder, which a warning tells.
    """
    shown = [_show(text) for text in texts]
    results = [
        _restored(text, source, found) for text, source, found in zip(texts, shown, translate(shown), strict=True)
    ]
    failed = [index for index, result in enumerate(results) if result is None]
    pieces = [_pieces(texts[index]) for index in failed]
    wanted = [piece.strip() for parts in pieces for piece in parts if _is_words(piece)]
    translations = iter(zip(wanted, translate(wanted), strict=True))
    kept = []
    for index, parts in zip(failed, pieces, strict=True):
        result: Text = []
        for piece in parts:
            if _is_words(piece):
                source, found = next(translations)
                if _exact(found) != _exact(source):
                    kept.append(source)
                    found = source
                result.append(with_ends_of(piece, found))
            else:
                result.append(piece)
        results[index] = merged(_spaced(result, space))
    if kept:
        warnings.warn(
            f"{len(kept)} of {len(texts)} texts stay untranslated, since their translation has a tag, address or "
            f"variable that they have not: {kept[0][:_SHOWN_CHARACTERS]!r}{' and more' if len(kept) > 1 else ''}",
            stacklevel=3,
        )
    return results


def with_ends_of(source: str, text: str) -> str:
    """Returns a text, stripped, between the white space that stands at the ends of the source."""
    core = source.strip()
    start = source.find(core)
    return source[:start] + text.strip() + source[start + len(core) :]


def mask_placeholders(text: str) -> str:
    """Returns a text of the same length with letters in the place of placeholders, for finding ends of sentences."""
    return _PLACEHOLDER.sub(lambda match: "X" * len(match[0]), text)


def _is_words(piece: str | Code) -> bool:
    return isinstance(piece, str) and has_words(piece)


def _show(text: Text) -> str:
    """Returns what a translator sees: <1>, <2>, ... for the codes."""
    parts, codes = [], 0
    for part in text:
        codes += isinstance(part, Code)
        parts.append(f"<{codes}>" if isinstance(part, Code) else part)
    return "".join(parts)


def _exact(text: str) -> Counter[str]:
    """Returns the placeholders that a translation may not add."""
    return Counter(match[0] for match in _PLACEHOLDER.finditer(text) if match.lastgroup != "number")


def _numbers(text: str) -> Counter[str]:
    return Counter(match["number"] for match in _PLACEHOLDER.finditer(text) if match["number"])


def _restored(text: Text, shown: str, translation: str) -> Text | None:
    """Returns the translation with the codes of the source in it, or None where it is not to be used."""
    codes = [part for part in text if isinstance(part, Code)]
    expected = [f"<{number}>" for number in range(1, len(codes) + 1)] if codes else _CODE.findall(shown)
    if _CODE.findall(translation) != expected:
        return None
    if _exact(translation) != _exact(shown):
        return None
    numbers = _numbers(translation)
    for number, count in _numbers(shown).items():  # to look for each in the text would take quadratic time
        if numbers[number] != count and translation.count(number) != shown.count(number):
            return None
    if not codes:
        return [translation.strip()]
    strings = _CODE.split(translation.strip())
    return [part for pair in zip(strings, [*codes, ""], strict=True) for part in pair if part != ""]


def _spaced(pieces: Text, space: Space) -> Text:
    """Returns the pieces with the white space between two strings, and beside the codes there, as `space` has it."""
    result: Text = []
    last: int | None = None  # of the strings
    for piece in pieces:
        if isinstance(piece, str):
            if last is not None:
                before, after = result[last].rstrip(), piece.lstrip()
                old = result[last][len(before) :] + piece[: len(piece) - len(after)]
                new = space(before, old, after)
                if new != old:
                    closes = isinstance(result[-1], Code) and result[-1].raw.startswith("</")
                    result[last] = before + ("" if closes else new)
                    piece = (new if closes else "") + after
            last = len(result)
        result.append(piece)
    return result


def _pieces(text: Text) -> Text:
    """Returns the codes, the placeholders and what stands between them, in order."""
    pieces: Text = []
    for part in text:
        if isinstance(part, Code):
            pieces.append(part)
            continue
        end = 0
        for match in _PLACEHOLDER.finditer(part):
            pieces += [part[end : match.start()], match[0]]
            end = match.end()
        pieces.append(part[end:])
    return [piece for piece in pieces if piece != ""]
