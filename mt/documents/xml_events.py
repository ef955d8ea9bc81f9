"""XML as a stream of events that know their bytes, so that a document is edited in places and else stays as it is.

Entities are never expanded and nothing outside the document is read: a document that declares an entity is refused.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal
from xml.parsers import expat

from mt.documents.content import decode
from mt.documents.protection import Code, Text, merged

_BLOCK_BYTES = 1 << 16
_DECLARED = re.compile(rb"""<\?xml[^>]{0,200}?encoding\s*=\s*["']([A-Za-z0-9._:-]{1,40})["']""")
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_NATIVE = {"bpt", "ept", "ph", "it", "ut", "x", "bx", "ex", "sc", "ec", "cp"}  # of TMX and XLIFF
_DEEPEST = 1000  # elements within elements


@dataclass(frozen=True)
class Event:
    """A part of the document: data[start:end]. All events in order are the document.

    An empty element <a/> gives two events, the second of which has no bytes.
    """

    kind: Literal["start", "end", "text", "other"]
    start: int
    end: int
    value: str = ""  # a text, or the name of an element, with its prefix
    attributes: dict[str, str] = field(default_factory=dict)  # with prefixes

    @property
    def tag(self) -> str:
        """The name of an element without its prefix."""
        return self.value.rpartition(":")[2]


def read_xml(data: bytes, name: str) -> tuple[bytes, str, bytes]:
    """Returns an XML document as UTF-8, its own encoding and its byte order mark, for `write_xml`."""
    declared = _DECLARED.match(data[:400].removeprefix(b"\xef\xbb\xbf"))
    text, encoding, mark = decode(data, name, declared[1].decode() if declared else "utf-8")
    return text.encode(), encoding, mark


def write_xml(data: bytes, name: str, encoding: str, mark: bytes) -> bytes:
    """Returns UTF-8 XML in its own encoding; what that lacks becomes a reference such as &#x4E2D;."""
    if encoding.lower().replace("_", "-") in ("utf-8", "utf8"):
        return mark + data
    return mark + data.decode().encode(encoding, errors="xmlcharrefreplace")


def xml_events(data: bytes, name: str) -> Iterator[Event]:
    """Yields the events of a UTF-8 document. Raises ValueError with file and line for what is not well-formed."""
    parser = expat.ParserCreate(encoding="utf-8")
    parser.buffer_text = False
    found: list[Event] = []
    depth = 0

    def add(kind: str, value: str = "", attributes: dict[str, str] | None = None) -> None:
        found.append(Event(kind, parser.CurrentByteIndex, -1, value, attributes or {}))

    def start(tag: str, attributes: dict[str, str]) -> None:
        nonlocal depth
        depth += 1
        if depth > _DEEPEST:
            raise ValueError(f"{name}, line {parser.CurrentLineNumber}: more than {_DEEPEST} elements in each other")
        add("start", tag, attributes)

    def end(tag: str) -> None:
        nonlocal depth
        depth -= 1
        add("end", tag)

    def refuse(entity: str, *_: object) -> None:
        raise ValueError(f"{name}, line {parser.CurrentLineNumber}: declares the entity {entity!r}: remove it")

    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.CharacterDataHandler = lambda text: add("text", text)
    parser.DefaultHandler = lambda text: add("other")
    parser.EntityDeclHandler = refuse
    parser.SkippedEntityHandler = lambda entity, parameter: add("other")
    waiting: Event | None = None
    for offset in range(0, len(data) + 1, _BLOCK_BYTES):
        block = data[offset : offset + _BLOCK_BYTES]
        try:
            parser.Parse(block, offset + _BLOCK_BYTES > len(data))
        except expat.ExpatError as error:
            raise ValueError(f"{name}, line {error.lineno}: is not XML ({expat.ErrorString(error.code)})") from error
        for event in found:
            if waiting is not None:
                yield _ended(waiting, event.start)
            waiting = event
        found.clear()
    if waiting is not None:
        yield _ended(waiting, len(data))


def escape(text: str) -> str:
    """Returns the text as it is written between two tags."""
    text = _NOT_XML.sub(" ", text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return text.replace("\r", "&#13;")


def inline_text(data: bytes, events: list[Event]) -> Text:
    """Returns the text of an element's content, with the mark-up in it as codes.

    Elements of native code (ph, bpt, x, ...) and what is marked as not to be translated are codes as a whole; of others
    (g, hi, ...) the tags are.
    """
    text: Text = []
    native: list[Event] = []  # the elements that we are in, from the first one that is a code as a whole on
    for event in events:
        raw = data[event.start : event.end]
        if native or (event.kind == "start" and (event.tag in _NATIVE or _stays(event))):
            native += [event] if event.kind == "start" else []
            text.append(Code(raw.decode()))
            if event.kind == "end":
                native.pop()
        elif event.kind == "text":
            text.append(event.value)
        elif raw not in (b"<![CDATA[", b"]]>"):
            text.append(Code(raw.decode()))
    return merged(text)


def inline_xml(text: Text) -> str:
    """Returns the text as it is written inside an element."""
    return "".join(part.raw if isinstance(part, Code) else escape(part) for part in text)


def language_matches(code: str, wanted: str) -> bool:
    """Returns whether a document's language code is the wanted one, or that with another country or script."""
    code, wanted = (value.strip().lower().replace("_", "-") for value in (code, wanted))
    return code == wanted or code.split("-")[0] == wanted.split("-")[0]


def _stays(event: Event) -> bool:
    return event.attributes.get("translate") == "no" or event.attributes.get("mtype") == "protected"


def _ended(event: Event, end: int) -> Event:
    return Event(event.kind, event.start, end, event.value, event.attributes)
