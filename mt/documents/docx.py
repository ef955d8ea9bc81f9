"""Word documents (.docx): the text of paragraphs is translated; formatting, pictures and all other parts stay."""

import io
import lzma
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from mt.documents.content import LARGEST_BYTES, Edit, edited
from mt.documents.protection import Code, Text, merged
from mt.documents.texts import TextTranslator
from mt.documents.xml_events import escape, read_xml, write_xml, xml_events

_MAIN = re.compile(r"word/document\d*\.xml")
_PART = re.compile(r"word/(?:document\d*|header\d*|footer\d*|footnotes|endnotes|comments)\.xml")
_MOST_MEMBERS = 10_000
_LARGEST_SUM_BYTES = 4 * LARGEST_BYTES  # of all members
# what zipfile raises for damaged, encrypted and unknown content
_DAMAGED = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    EOFError,
    NotImplementedError,
    RuntimeError,
    OSError,
    ValueError,
    IndexError,
)
# The elements of text, whose prefix is mostly w:.
_NAMESPACE = re.compile(
    rb"""\sxmlns:?([\w.-]{0,100})\s*=\s*["']"""
    rb"""http://(?:schemas\.openxmlformats\.org/wordprocessingml/2006|purl\.oclc\.org/ooxml/wordprocessingml)/main["']"""
)
# What may stand between two texts of one formatting without being seen: Word cuts words into runs as it likes.
_UNSEEN = {"r", "t", "proofErr", "bookmarkStart", "bookmarkEnd", "lastRenderedPageBreak"}
_FORMATTING = {"rPr", "pPr"}
_BREAK = ";"  # the code between two groups of runs


@dataclass
class _Run:
    """A w:t element: its bytes and its text."""

    start: int
    end: int
    pieces: list[str] = field(default_factory=list)


@dataclass
class _Paragraph:
    """The texts of a paragraph, in groups that look alike and have nothing between them."""

    groups: list[list[_Run]] = field(default_factory=list)
    properties: bytes = b""  # of the last group
    goes_on: bool = False  # nothing that is seen came since the last text

    def text(self) -> Text:
        parts = [_text(group) for group in self.groups]
        return merged([piece for part in parts for piece in (Code(_BREAK), part)][1:])


def translate_docx(data: bytes, name: str, texts: TextTranslator) -> bytes:
    """Returns the document with the paragraphs of its body, headers, footers, notes and comments translated.

    Members without such text stay to the byte. Raises ValueError for what is no Word document or unpacks to more than
    LARGEST_BYTES a member.
    """
    with _opened(data, name) as source:
        members = _members(source, name)
        output = io.BytesIO()
        with zipfile.ZipFile(output, "w") as target:
            target.comment = source.comment
            for member, content in members:
                if _PART.fullmatch(member.filename):
                    content = _translate_part(content, f"{name}, {member.filename}", texts)
                target.writestr(member, content)
    return output.getvalue()


def _opened(data: bytes, name: str) -> zipfile.ZipFile:
    try:
        source = zipfile.ZipFile(io.BytesIO(data))
    except _DAMAGED as error:
        raise ValueError(f"{name}: is no Word document ({' '.join(str(error).split())})") from error
    if not any(_MAIN.fullmatch(member) for member in source.namelist()):
        raise ValueError(f"{name}: has no word/document.xml: is no Word document")
    if len(source.infolist()) > _MOST_MEMBERS:
        raise ValueError(f"{name}: has more than {_MOST_MEMBERS} members: is no Word document")
    return source


def _members(source: zipfile.ZipFile, name: str) -> list[tuple[zipfile.ZipInfo, bytes]]:
    """Returns the members with their contents, of which no more than is allowed is ever unpacked."""
    members, room = [], _LARGEST_SUM_BYTES
    for member in source.infolist():
        place, most = f"{name}, {member.filename}", min(LARGEST_BYTES, room)
        try:
            with source.open(member) as file:
                content = file.read(most + 1)
        except _DAMAGED as error:
            raise ValueError(f"{place}: cannot be unpacked ({' '.join(str(error).split())})") from error
        if len(content) > most:
            raise ValueError(f"{place}: unpacks to more than {most >> 20} MiB, the most for a document")
        members.append((member, content))
        room -= len(content)
    return members


def _translate_part(data: bytes, name: str, texts: TextTranslator) -> bytes:
    content, encoding, mark = read_xml(data, name)
    namespace = _NAMESPACE.search(content)
    named = namespace[1].decode() if namespace else "w"
    prefix = f"{named}:" if named else ""
    paragraphs = list(_paragraphs(content, name, prefix))
    sources = [paragraph.text() for paragraph in paragraphs]
    edits: list[Edit[bytes]] = []
    for paragraph, found in zip(paragraphs, texts(sources), strict=True):
        edits += _edits(paragraph, found, prefix)
    return write_xml(edited(content, sorted(edits)), name, encoding, mark)


def _paragraphs(content: bytes, name: str, prefix: str) -> Iterator[_Paragraph]:
    """Yields the paragraphs that have text. One within another (a text box) is no part of it, and comes before it."""
    around: list[_Paragraph] = []
    formatting, moved = 0, 0  # depths; what was moved away stands again where it is now
    properties, properties_start = b"", 0
    run: _Run | None = None
    for event in xml_events(content, name):
        if event.kind == "text" and run is not None:
            run.pieces.append(event.value)
        if event.kind not in ("start", "end"):
            continue
        element = event.value.removeprefix(prefix) if event.value.startswith(prefix) else ""
        if around and not formatting and element not in _UNSEEN | _FORMATTING:
            around[-1].goes_on = False
        match event.kind, element:
            case "start", "p":
                around.append(_Paragraph())
            case "start", "r":
                properties = b""
            case "start" | "end", "moveFrom":
                moved += 1 if event.kind == "start" else -1
            case "start", "rPr" | "pPr":
                formatting += 1
                properties_start = properties_start if formatting > 1 else event.start
            case "end", "rPr" | "pPr":
                formatting -= 1
                if not formatting:
                    properties = content[properties_start : event.end]
            case "start", "t":
                run = _Run(event.start, event.end)
            case "end", "t":
                run.end = event.end
                if around and run.pieces and not moved:
                    _add(around[-1], run, properties)
                run = None
            case "end", "p":
                paragraph = around.pop()
                if paragraph.groups:
                    yield paragraph


def _add(paragraph: _Paragraph, run: _Run, properties: bytes) -> None:
    if paragraph.goes_on and paragraph.properties == properties:
        paragraph.groups[-1].append(run)
    else:
        paragraph.groups.append([run])
    paragraph.properties, paragraph.goes_on = properties, True


def _text(group: list[_Run]) -> str:
    return "".join(piece for run in group for piece in run.pieces)


def _edits(paragraph: _Paragraph, found: Text, prefix: str) -> Iterator[Edit[bytes]]:
    """Yields what changes: the first run of a group gets its text, the others get none."""
    new, group = [""] * len(paragraph.groups), 0
    for part in found:
        if isinstance(part, Code):
            group += len(part.raw)
        else:
            new[group] += part
    for runs, text in zip(paragraph.groups, new, strict=True):
        if text != _text(runs):
            for index, run in enumerate(runs):
                xml = f'<{prefix}t xml:space="preserve">{escape(text if index == 0 else "")}</{prefix}t>'
                yield run.start, run.end, xml.encode()
