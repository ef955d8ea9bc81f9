"""gettext catalogues: what has no translation yet gets one, marked fuzzy; all other lines stay to the byte."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from mt.documents.content import decode, encode
from mt.documents.texts import TextTranslator

_STATEMENT = re.compile(r'(?:(msgctxt|msgid_plural|msgid|msgstr(?:\[\d{1,3}\])?)\s*)?"((?:[^"\\]|\\.)*)"')
_CHARSET = re.compile(rb"Content-Type:[^\n\"]*charset=([\w.:-]+)", re.IGNORECASE)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
_BYTE = re.compile(r"\\(?:x([0-9A-Fa-f]{1,2})|([0-7]{1,3}))")
_ESCAPES = re.compile(r"(?:\\(?:x[0-9A-Fa-f]{1,2}|[0-7]{1,3}))+|\\(.)")
_ESCAPE = str.maketrans({"\\": "\\\\", '"': '\\"'} | {character: f"\\{name}" for name, character in _ESCAPED.items()})


@dataclass
class Entry:
    """A message: its strings by keyword, and the lines (first, end) that they stand in."""

    strings: dict[str, list[str]] = field(default_factory=dict)  # of each line
    lines: dict[str, tuple[int, int]] = field(default_factory=dict)
    flags: list[str] = field(default_factory=list)  # "fuzzy", "c-format"
    flags_line: int | None = None
    flags_before: int | None = None  # the line that a new line of flags comes before

    def targets(self) -> list[str]:
        return [keyword for keyword in self.strings if keyword.startswith("msgstr")]

    def is_wanted(self) -> bool:
        return any(self.strings["msgid"]) and not any(any(self.strings[keyword]) for keyword in self.targets())

    def source_of(self, target: str) -> str:
        """Returns the string that a target translates: of two or more plural forms the first is the singular."""
        first_of_many = target == "msgstr[0]" and len(self.targets()) > 1
        source = self.strings["msgid"] if first_of_many else self.strings.get("msgid_plural", self.strings["msgid"])
        return "".join(source)


def translate_po(data: bytes, name: str, texts: TextTranslator) -> bytes:
    """Returns the catalogue with every empty msgstr filled and its entry marked fuzzy.

    Entries with a translation, fuzzy ones too, obsolete ones and the header stay. Raises ValueError with file and line
    for what is no catalogue.
    """
    charset = _CHARSET.search(data)
    named = charset[1].decode() if charset else "utf-8"
    text, encoding, mark = decode(data, name, "utf-8" if named == "CHARSET" else named)
    lines: list[str | None] = text.split("\n")
    wanted = [entry for entry in entries(lines, name, encoding) if entry.is_wanted()]
    places = [(entry, target) for entry in wanted for target in entry.targets()]
    translations = texts.strings([entry.source_of(target) for entry, target in places])
    for (entry, target), translation in zip(places, translations, strict=True):
        start, end = entry.lines[target]
        many = entry.lines["msgid"][1] - entry.lines["msgid"][0] > 1
        new = f"{_line_end(lines[start])}\n".join(_statement(target, translation, many))
        lines[start:end] = [new + _line_end(lines[start]), *[None] * (end - start - 1)]
    for entry in wanted:
        if entry.flags_line is None:
            before = lines[entry.flags_before]
            lines[entry.flags_before] = f"#, fuzzy{_line_end(before)}\n{before}"
        elif not re.search(r"\bfuzzy\b", lines[entry.flags_line]):
            lines[entry.flags_line] = lines[entry.flags_line].replace("#,", "#, fuzzy,", 1)
    return encode("\n".join(line for line in lines if line is not None), name, encoding, mark)


def entries(lines: Iterable[str], name: str, encoding: str = "utf-8") -> Iterator[Entry]:
    """Yields the messages of a catalogue, the header among them, without the obsolete ones.

    encoding: the catalogue's, in which bytes are escaped (\\303\\274, \\xc3\\xbc).
    Raises ValueError with file and line for what is no catalogue.
    """
    entry, keyword, number = Entry(), None, -1
    for number, line in enumerate(lines):
        stripped = line.strip()
        if not stripped or (stripped.startswith("#~")):
            continue
        if stripped.startswith("#"):
            if entry.targets():
                yield _complete(entry, name, number)
                entry, keyword = Entry(), None
            if stripped.startswith("#,"):
                entry.flags_line = number
                entry.flags += [flag.strip() for flag in stripped[2:].split(",")]
            if stripped.startswith("#|") and entry.flags_before is None:
                entry.flags_before = number
            continue
        found = _STATEMENT.fullmatch(stripped)
        if found is None or (found[1] is None and keyword is None):
            raise ValueError(f'{name}, line {number + 1}: must be a comment or a statement such as msgid "text"')
        if found[1] is not None:
            keyword = found[1]
            if keyword in ("msgctxt", "msgid") and entry.targets():
                yield _complete(entry, name, number)
                entry = Entry()
            if keyword in entry.strings:
                raise ValueError(f"{name}, line {number + 1}: a second {keyword} in one entry")
            if entry.flags_before is None:
                entry.flags_before = number
            entry.strings[keyword], entry.lines[keyword] = [], (number, number)
        try:
            entry.strings[keyword].append(_ESCAPES.sub(lambda match: _unescaped(match, encoding), found[2]))
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{name}, line {number + 1}: its escaped bytes are not valid {encoding.upper()}: write the characters"
            ) from error
        entry.lines[keyword] = (entry.lines[keyword][0], number + 1)
    if entry.strings:
        yield _complete(entry, name, number + 1)


def _unescaped(match: re.Match[str], encoding: str) -> str:
    if match[1] is not None:
        return _ESCAPED.get(match[1], match[1])
    values = (int(x, 16) if x else int(octal, 8) % 256 for x, octal in _BYTE.findall(match[0]))
    return bytes(values).decode(encoding)


def _line_end(line: str) -> str:
    return "\r" if line.endswith("\r") else ""


def _complete(entry: Entry, name: str, number: int) -> Entry:
    """Returns the entry. Raises ValueError where it lacks a msgid or a msgstr."""
    if "msgid" not in entry.strings or not entry.targets():
        missing = "msgstr" if "msgid" in entry.strings else "msgid"
        raise ValueError(f"{name}, line {number}: the entry that ends here has no {missing}")
    return entry


def _statement(keyword: str, text: str, many: bool) -> list[str]:
    """Returns the lines that give a keyword a string: one for each line of the text where it has many."""
    parts = re.findall("[^\n]*\n|[^\n]+", text)
    if many or len(parts) > 1:
        return [f'{keyword} ""', *(f'"{part.translate(_ESCAPE)}"' for part in parts)]
    return [f'{keyword} "{text.translate(_ESCAPE)}"']
