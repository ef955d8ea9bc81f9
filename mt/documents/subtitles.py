"""Subtitles, SubRip (.srt) and WebVTT (.vtt): the text of each cue is translated, everything else stays to the byte."""

import re
from collections.abc import Iterator

from mt.documents.content import Edit, decode, edited, encode, line_of
from mt.documents.protection import Code, Text, merged
from mt.documents.sentences import is_wide
from mt.documents.texts import TextTranslator
from mt.languages import WITHOUT_SPACES, primary_language

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
    spaceless = primary_language(texts.source_language) in WITHOUT_SPACES
    sources = [_codes(text[start:end], spaceless) for start, end in places]
    edits: list[Edit[str]] = []
    for (start, end), source, found in zip(places, sources, texts(sources), strict=True):
        if found != source:
            lines = text.count("\n", start, end) + 1
            line_end = "\r\n" if "\r\n" in text[start:end] else "\n"
            edits.append((start, end, line_end.join(_wrapped(found, lines))))
    return encode(edited(text, edits), name, encoding, mark)


def _cues(text: str, name: str) -> Iterator[tuple[int, int]]:
    """Yields where the texts of cues begin and end: behind a timing, up to a blank line or the next cue.

    In SubRip what stands behind a blank line is text of the cue too; in WebVTT it may be a comment or a style.
    """
    lines = list(_LINE.finditer(text))
    goes_on = not text.startswith("WEBVTT")
    number, in_cue, found = 0, False, False
    while number < len(lines):
        first = number
        while number < len(lines) and lines[number][1].strip() and "-->" not in lines[number][1]:
            number += 1
        is_timing = number < len(lines) and "-->" in lines[number][1]
        end = number
        if is_timing and end > first and lines[end - 1][1].strip().isdecimal():
            end -= 1  # the number of the next cue
        if in_cue and end > first:
            yield lines[first].start(1), lines[end - 1].end(1)
        if is_timing and not _TIMING.fullmatch(lines[number][1]):
            line = line_of(text, lines[number].start())
            raise ValueError(f"{name}, line {line}: must be a timing such as 00:01:02,500 --> 00:01:04,000")
        in_cue, found = is_timing or (in_cue and goes_on), found or is_timing
        number += 1
    if not found:
        raise ValueError(f"{name}: has no timing such as 00:01:02,500 --> 00:01:04,000: is no file of subtitles")


def _spoken(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yields the places of a cue that are texts of their own: all of it, or what each speaker says."""
    lines = [(start + line.start(1), start + line.end(1)) for line in _LINE.finditer(text[start:end]) if line[1]]
    for (_, before_end), (line_start, line_end) in zip(lines, lines[1:], strict=False):  # one pair less than lines
        if _SPEAKER.match(_TAG.sub("", text[line_start:line_end])):
            yield start, before_end
            start = line_start
    yield start, end


def _codes(cue: str, spaceless: bool) -> Text:
    """Returns the text of a cue in one line, with its tags as codes."""
    text: Text = []
    for index, part in enumerate(_TAG.split(cue)):
        if index % 2:
            text.append(Code(part))
            continue
        dash = _SPEAKER.match(part) if not any(isinstance(piece, str) for piece in text) else None
        start = dash.end() if dash else 0
        rest = _one_line(part[start:], spaceless)
        text += [Code(part[:start])] * (start > 0) + [rest] * (rest != "")
    return merged(text)


def _one_line(text: str, spaceless: bool) -> str:
    """Returns the text in one line, in which Chinese and Japanese go on without a space."""

    def joint(line_break: re.Match[str]) -> str:
        start, end = line_break.span()
        return "" if spaceless and all(map(is_wide, text[max(0, start - 1) : start] + text[end : end + 1])) else " "

    return _LINE_BREAK.sub(joint, text)


def _wrapped(text: Text, count: int) -> list[str]:
    """Returns a text in at most `count` lines of about equal width."""
    units = _units(text)
    total = sum(width for _, width in units)
    lines: list[list[str]] = [[]]
    done = 0
    for unit, width in units:
        if len(lines) < count and lines[-1] and done + width / 2 > total * len(lines) / count:
            lines.append([])
        lines[-1].append(unit)
        done += width
    return ["".join(line).strip(" ") for line in lines]


def _units(text: Text) -> list[tuple[str, int]]:
    """Returns what a line may end between, with its width: words or Chinese characters, and the tags around them."""
    units: list[tuple[str, int]] = []
    unit: list[str] = []
    before, opening, width = "", "", 0
    for piece in (piece for part in text for piece in ([part] if isinstance(part, Code) else part)):
        if isinstance(piece, Code) and piece.raw.startswith("</"):
            unit.append(piece.raw)
        elif isinstance(piece, Code):
            opening += piece.raw  # goes with what stands behind it
        else:
            if _may_break(before, piece):
                units.append(("".join(unit), width))
                unit, width = [], 0
            unit += [opening, piece]
            before, opening, width = piece, "", width + (2 if is_wide(piece) else 1)
    return [*units, ("".join([*unit, opening]), width)]


def _may_break(before: str, character: str) -> bool:
    if not before or character == " " or character in _NO_LINE_START:
        return False
    return before == " " or is_wide(before) or is_wide(character)
