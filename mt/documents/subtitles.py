"""Subtitles, SubRip (.srt) and WebVTT (.vtt): the text of each cue is translated, everything else stays to the byte."""

import re
from collections.abc import Iterator

from mt.documents.content import Edit, decode, edited, encode, line_of
from mt.documents.protection import Code, Text, merged
from mt.documents.sentences import is_wide
from mt.documents.texts import TextTranslator

_TIME = r"(?:\d{1,6}:)?\d{1,2}:\d{1,2}[,.]\d{1,3}"
_TIMING = re.compile(rf"[ \t]*{_TIME}[ \t]*-->[ \t]*{_TIME}(?:[ \t][^\r\n]*)?")
_LINE = re.compile(r"([^\n]*?)\r?(?:\n|\Z)")
_TAG = re.compile(r"(</?[A-Za-z0-9.:][^<>\n]{0,500}>|\{\\[^{}\n]{1,200}\})")  # <i>, <v Ann>, <00:01.000>, {\an8}
_SPEAKER = re.compile(r"\s*(?:[-–—‐]|>>)\s*")  # each line is said by somebody else
_LINE_BREAK = re.compile(r"[ \t]?\r?\n[ \t]*")
_NO_LINE_START = set("，。！？、；：）」』】》”’…,.!?;:)]}%")  # what may not begin a line


def translate_subtitles(data: bytes, name: str, texts: TextTranslator) -> bytes:
    """Returns the subtitles with the text of each cue translated.

    A sentence that runs over the lines of a cue is translated as one, and wrapped to as many lines. Lines that begin
    with a dash, of different speakers, stay apart. Raises ValueError for a file without a cue.
    """
    text, encoding, mark = decode(data, name, "utf-8")
    places = [place for start, end in _cues(text, name) for place in _spoken(text, start, end)]
    sources = [_codes(text[start:end]) for start, end in places]
    edits: list[Edit[str]] = []
    for (start, end), source, found in zip(places, sources, texts(sources), strict=True):
        if found != source:
            lines = text.count("\n", start, end) + 1
            line_end = "\r\n" if "\r\n" in text[start:end] else "\n"
            edits.append((start, end, line_end.join(_wrapped(found, lines))))
    return encode(edited(text, edits), name, encoding, mark)


def _cues(text: str, name: str) -> Iterator[tuple[int, int]]:
    """Yields where the text of each cue begins and ends: behind its timing, up to the end before a blank line."""
    lines = list(_LINE.finditer(text))
    number, found = 0, False
    while number < len(lines):
        timing = lines[number][1]
        number += 1
        if "-->" not in timing:
            continue
        if not _TIMING.fullmatch(timing):
            line = line_of(text, lines[number - 1].start())
            raise ValueError(f"{name}, line {line}: must be a timing such as 00:01:02,500 --> 00:01:04,000")
        found = True
        first = number
        while number < len(lines) and lines[number][1].strip() and "-->" not in lines[number][1]:
            number += 1
        if number > first:
            yield lines[first].start(1), lines[number - 1].end(1)
    if not found:
        raise ValueError(f"{name}: has no timing such as 00:01:02,500 --> 00:01:04,000: is no file of subtitles")


def _spoken(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yields the places of a cue that are texts of their own: all of it, or each line where speakers change."""
    lines = [(start + line.start(1), start + line.end(1)) for line in _LINE.finditer(text[start:end]) if line[1]]
    if len(lines) > 1 and any(_SPEAKER.match(_TAG.sub("", text[a:b])) for a, b in lines[1:]):
        yield from lines
    else:
        yield start, end


def _codes(cue: str) -> Text:
    """Returns the text of a cue in one line, with its tags as codes."""
    text: Text = []
    for index, part in enumerate(_TAG.split(cue)):
        if index % 2:
            text.append(Code(part))
            continue
        dash = _SPEAKER.match(part) if not any(isinstance(piece, str) for piece in text) else None
        start = dash.end() if dash else 0
        text += [Code(part[:start])] * (start > 0) + [_LINE_BREAK.sub(" ", part[start:])] * (start < len(part))
    return merged(text)


def _wrapped(text: Text, count: int) -> list[str]:
    """Returns a text in at most `count` lines of about equal width."""
    units = [unit for part in text for unit in ([part] if isinstance(part, Code) else _breakable(part))]
    total = sum(_width(unit) for unit in units)
    lines, done = [""], 0
    for unit in units:
        width = _width(unit)
        if len(lines) < count and lines[-1] and done + width / 2 > total * len(lines) / count:
            lines.append("")
        lines[-1] += unit.raw if isinstance(unit, Code) else unit
        done += width
    return [line.strip(" ") for line in lines]


def _breakable(text: str) -> list[str]:
    """Returns the parts of a text between which a line may end: words, or Chinese characters."""
    parts: list[str] = []
    for character in text:
        before = parts[-1][-1] if parts else ""
        may_break = before == " " or (before and (is_wide(before) or is_wide(character)))
        if parts and (not may_break or character == " " or character in _NO_LINE_START):
            parts[-1] += character
        else:
            parts.append(character)
    return parts


def _width(unit: str | Code) -> int:
    return 0 if isinstance(unit, Code) else sum(2 if is_wide(character) else 1 for character in unit)
