"""Web pages (.html): text and the attributes that people read are translated; tags and scripts stay to the byte."""

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Literal

from mt.documents.content import Edit, decode, edited
from mt.documents.protection import Code, Text, merged, plain
from mt.documents.texts import TextTranslator

_META_CHARSET = re.compile(rb"""<meta[^>]{0,500}?charset\s*=\s*["']?\s*([A-Za-z0-9._:-]{1,40})""", re.IGNORECASE)
_BLANK = " \t\n\r\f"  # white space in HTML
_SPACE = re.compile(f"[{_BLANK}]+")
_ATTRIBUTE = re.compile(r"""[\s/]([^\s=/>"']+)\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s>"']+))""")
_TAG_START = re.compile("<[A-Za-z/!?]")
# Elements within a sentence; every other tag ends it.
_INLINE = set(
    "a abbr acronym b bdi bdo big cite data del dfn em font i img ins label mark q s small span strike strong sub sup "
    "time tt u wbr".split()
)
_OPAQUE_INLINE = {"code", "kbd", "samp", "var", "svg", "math"}  # part of a sentence, but no words
_OPAQUE = set("pre script style textarea template object iframe xmp listing plaintext noembed noframes".split())
_VOID = set("area base br col embed hr img input link meta param source track wbr".split())
_READ_ATTRIBUTES = {"alt", "title", "placeholder", "aria-label"}
_READ_META = {"description", "keywords", "og:title", "og:description", "twitter:title", "twitter:description"}
_MOST_UNCLOSED = 1000
_BUTTONS = {"submit", "button", "reset"}
# What browsers read instead of an encoding that a page names (https://encoding.spec.whatwg.org).
_READ_AS = {
    "ascii": "cp1252",
    "us-ascii": "cp1252",
    "iso-8859-1": "cp1252",
    "gb2312": "gbk",
    "shift_jis": "cp932",
    "euc-kr": "cp949",
    "utf-16": "utf-8",
}


def translate_html(data: bytes, name: str, texts: TextTranslator) -> bytes:
    """Returns the page with its texts translated. Elements with translate="no" or the class notranslate stay.

    A character that the page's encoding lacks becomes a reference such as &#20013;. Raises ValueError for what is not
    in that encoding, and for what is no web page.
    """
    declared = _META_CHARSET.search(data[:2048])
    named = declared[1].decode().lower() if declared else "utf-8"
    page, encoding, mark = decode(data, name, _READ_AS.get(named, named))
    for opening, closing in (("<", ">"), ("<!--", "-->")):  # html.parser would take quadratic time
        if page.count(opening, page.rfind(closing) + 1) > _MOST_UNCLOSED:
            raise ValueError(f"{name}: has more than {_MOST_UNCLOSED} {opening} that nothing closes: is no web page")
    for places in (_attributes, _texts):
        found = list(places(page, name))
        sources = [source for _, _, source in found]
        edits: list[Edit[str]] = [
            (start, end, _text_markup(translation) if places is _texts else _value_markup(translation, page[start - 1]))
            for (start, end, source), translation in zip(found, texts(sources), strict=True)
            if translation != source
        ]
        page = edited(page, edits)
    return mark + page.encode(encoding, errors="xmlcharrefreplace")


@dataclass(frozen=True)
class _Event:
    kind: Literal["start", "end", "text", "comment", "other"]
    start: int
    end: int
    value: str = ""  # tag or text
    attributes: dict[str, str] = field(default_factory=dict)


def _attributes(page: str, name: str) -> Iterator[tuple[int, int, Text]]:
    """Yields the places and values of attributes that are read as text."""
    for event in _translatable(_Reader(page, name).events()):
        if event.kind != "start" or _is_marked_to_stay(event):
            continue
        names = set(_READ_ATTRIBUTES)
        if event.value == "meta" and (
            event.attributes.get("name", event.attributes.get("property", "")).lower() in _READ_META
        ):
            names.add("content")
        if event.value == "input" and event.attributes.get("type", "").lower() in _BUTTONS:
            names.add("value")
        for match in _ATTRIBUTE.finditer(page, event.start, event.end):
            if match[1].lower() in names:
                yield *match.span(match.lastindex), [html.unescape(match[match.lastindex])]


def _texts(page: str, name: str) -> Iterator[tuple[int, int, Text]]:
    """Yields the places and contents of texts: what stands between two tags that end a sentence."""
    parts: list[tuple[int, int, str | Code]] = []
    opaque = ""  # the element whose content is a code, and how often it is open in itself
    depth = 0
    for event in [*_translatable(_Reader(page, name).events()), _Event("other", len(page), len(page))]:
        raw = page[event.start : event.end]
        if depth:
            parts.append((event.start, event.end, Code(raw)))
            if event.value == opaque:
                depth += {"start": 1, "end": -1}.get(event.kind, 0)
        elif event.kind == "start" and event.value in _OPAQUE_INLINE:
            opaque, depth = event.value, 1
            parts.append((event.start, event.end, Code(raw)))
        elif event.kind == "text":
            parts.append((event.start, event.end, event.value))
        elif event.kind == "comment" or (event.kind in ("start", "end") and event.value in _INLINE):
            parts.append((event.start, event.end, Code(raw)))
        else:
            yield from _unit(page, parts)
            parts = []


def _unit(page: str, parts: list[tuple[int, int, str | Code]]) -> Iterator[tuple[int, int, Text]]:
    """Yields what parts have between their first and their last word."""
    words = [index for index, (_, _, part) in enumerate(parts) if isinstance(part, str) and part.strip(_BLANK)]
    if not words:
        return
    parts = parts[words[0] : words[-1] + 1]
    start, end = parts[0][0], parts[-1][1]
    text = merged([part if isinstance(part, Code) else _SPACE.sub(" ", part) for _, _, part in parts])
    if page[start : start + 1] in _BLANK and isinstance(text[0], str):
        text[0] = text[0].removeprefix(" ")
        start += len(page[start:end]) - len(page[start:end].lstrip(_BLANK))
    if page[end - 1 : end] in _BLANK and isinstance(text[-1], str):
        text[-1] = text[-1].removesuffix(" ")
        end -= len(page[start:end]) - len(page[start:end].rstrip(_BLANK))
    yield start, end, text


def _translatable(events: Iterator[_Event]) -> Iterator[_Event]:
    """Yields the events; those of an element that is not to be translated come as one "other", or as one comment."""
    skipped, depth = "", 0
    for event in events:
        if depth:
            if event.value == skipped:
                depth += {"start": 1, "end": -1}.get(event.kind, 0)
            yield _Event("comment" if skipped in _INLINE | _OPAQUE_INLINE else "other", event.start, event.end)
            continue
        yield event
        if event.kind == "start" and event.value not in _VOID:
            if event.value in _OPAQUE or _is_marked_to_stay(event):
                skipped, depth = event.value, 1


def _is_marked_to_stay(start: _Event) -> bool:
    """Returns whether an element, with its attributes, is marked as not to be translated."""
    marked = start.attributes.get("translate", "").lower() == "no"
    return marked or "notranslate" in start.attributes.get("class", "").split()


def _text_markup(text: Text) -> str:
    return "".join(part.raw if isinstance(part, Code) else _escaped(part, quote=False) for part in text)


def _value_markup(text: Text, before: str) -> str:
    """Returns the value of an attribute, behind a quotation mark or else in two of its own."""
    value = _escaped(plain(text), quote=True)
    return value if before in ("'", '"') else f'"{value}"'


def _escaped(text: str, quote: bool) -> str:
    return html.escape(text, quote).replace("\xa0", "&nbsp;")


class _Reader(HTMLParser):
    """Records where each tag, text and comment begins, and how long a text is; all else ends where the next begins."""

    def __init__(self, page: str, name: str) -> None:
        super().__init__(convert_charrefs=False)
        cut_off = _TAG_START.search(page, page.rfind(">") + 1)
        self._page = page[: cut_off.start()] if cut_off else page
        self._line_starts = [0, *(match.end() for match in re.finditer("\n", page))]
        self._found: list[tuple[str, int, str, dict[str, str]]] = []
        try:
            self.feed(self._page.replace("&", "."))  # behind some &# it takes the rest of the page for one text
            self.close()
        except AssertionError as error:  # of declarations such as <![a[
            raise ValueError(f"{name}: is no web page ({error})") from error

    def events(self) -> Iterator[_Event]:
        """Yields the events of the page, which in order are all of it, but for a tag that its end cuts off."""
        starts = [*(start for _, start, _, _ in self._found[1:]), len(self._page)]  # of the next events
        for (kind, start, value, attributes), next_start in zip(self._found, starts, strict=False):
            if kind == "text":
                end = start + len(value)
                yield _Event("text", start, end, html.unescape(self._page[start:end]))
                if end < next_start:
                    yield _Event("comment", end, next_start)  # as the parser passes over </>
            else:
                yield _Event(kind, start, next_start, value, attributes)

    def _add(self, kind: str, value: str = "", attributes: list[tuple[str, str | None]] | None = None) -> None:
        line, column = self.getpos()
        named = {key: text or "" for key, text in attributes or ()}
        self._found.append((kind, self._line_starts[line - 1] + column, value, named))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._add("start", tag, attrs)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._add("start", tag, attrs)
        if tag in ("svg", "math"):  # the only ones that <tag/> closes
            self._add("end", tag)

    def handle_endtag(self, tag: str) -> None:
        self._add("end", tag)

    def handle_data(self, data: str) -> None:
        if data.startswith("<") and len(data) > 1:  # a tag that nothing closes
            self._add("other")
        else:
            self._add("text", data)

    def handle_comment(self, data: str) -> None:
        self._add("comment")

    def handle_decl(self, decl: str) -> None:
        self._add("other")

    def handle_pi(self, data: str) -> None:
        self._add("other")

    def unknown_decl(self, data: str) -> None:
        self._add("other")
