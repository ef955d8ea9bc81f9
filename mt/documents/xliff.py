"""XLIFF 1.2 and 2.x: empty targets are filled, with the state of a machine translation; all else stays to the byte."""

import re
from dataclasses import dataclass, field

from mt.documents.content import Edit, edited, line_of
from mt.documents.texts import TextTranslator
from mt.documents.xml_events import Event, inline_text, inline_xml, language_matches, read_xml, write_xml, xml_events

_ATTRIBUTE = re.compile(r"""\s([^\s=]+)\s*=\s*("[^"]*"|'[^']*')""")
_UNTRANSLATED = {"new", "needs-translation"}  # states of a target whose text is no translation
_MACHINE_MADE = {"state": "needs-review-translation", "state-qualifier": "mt-suggestion"}  # 2.x: state="translated"


@dataclass
class _Unit:
    """A trans-unit (1.2) or segment (2.x), by the events of its children."""

    start: Event
    translate: bool
    source: list[Event] = field(default_factory=list)  # with its own tags
    segmented: list[Event] = field(default_factory=list)
    target: list[Event] = field(default_factory=list)

    def is_wanted(self) -> bool:
        if not self.translate or len(self.source) <= 2 or self.start.attributes.get("approved") == "yes":
            return False
        filled = any(event.kind == "start" or event.value.strip() for event in self.target[1:-1])
        return not filled or self.target[0].attributes.get("state") in _UNTRANSLATED


def translate_xliff(data: bytes, name: str, texts: TextTranslator) -> bytes:
    """Returns the document with a target in each unit that has none, or one without text or of state new.

    Units of translate="no" and approved ones stay. Raises ValueError with file and line for broken XML, and where the
    document's languages are not the model's.
    """
    content, encoding, mark = read_xml(data, name)
    units, heads, version = _read(content, name)
    edits = [edit for head in heads for edit in _languages(content, name, head, version, texts)]
    wanted = [unit for unit in units if unit.is_wanted()]
    sources = [inline_text(content, unit.source[1:-1]) for unit in wanted]
    for unit, found in zip(wanted, texts(sources), strict=True):
        edits += _target(content, unit, inline_xml(found), version)
    return write_xml(edited(content, sorted(edits, key=lambda edit: edit[:2])), name, encoding, mark)


def _read(content: bytes, name: str) -> tuple[list[_Unit], list[Event], str]:
    """Returns the units, the elements that name languages, and the version."""
    units: list[_Unit] = []
    heads: list[Event] = []
    version = ""
    path: list[tuple[str, bool]] = []  # names of the elements around, and whether they are to be translated
    child: list[Event] | None = None  # the source or target that we are in
    for event in xml_events(content, name):
        parent, translate = path[-1] if path else ("", True)
        if event.kind == "start":
            if not path and event.tag != "xliff":
                raise ValueError(f"{name}: the root element is {event.value}: must be xliff")
            version = version or event.attributes.get("version", "1.2")
            translate = event.attributes.get("translate", "yes" if translate else "no") != "no"
            if event.tag in ("xliff", "file") and len(path) < 2:
                heads.append(event)
            if event.tag in ("segment", "trans-unit"):
                units.append(_Unit(event, translate))
            if parent in ("segment", "trans-unit") and event.tag in ("source", "seg-source", "target"):
                unit = units[-1]
                child = {"source": unit.source, "seg-source": unit.segmented, "target": unit.target}[event.tag]
                child_depth = len(path)
                if child:
                    raise ValueError(f"{name}, line {line_of(content, event.start)}: a second {event.tag} in one unit")
            path.append((event.tag, translate))
        if child is not None:
            child.append(event)
        if event.kind == "end":
            path.pop()
            if child is not None and len(path) == child_depth:
                child = None
    return units, heads, version


def _languages(content: bytes, name: str, head: Event, version: str, texts: TextTranslator) -> list[Edit[bytes]]:
    """Returns the edit that names the target language where nothing does. Raises ValueError for other languages."""
    new = version.startswith("2")
    if head.tag != ("xliff" if new else "file"):
        return []
    names = ("srcLang", "trgLang") if new else ("source-language", "target-language")
    for attribute, language in zip(names, (texts.source_language, texts.target_language), strict=True):
        there = head.attributes.get(attribute)
        if there and not language_matches(there, language):
            line = line_of(content, head.start)
            raise ValueError(f"{name}, line {line}: {attribute}={there}, but the model has {language}: use another run")
    if head.attributes.get(names[1]):
        return []
    return [_attributes_set(content, head, {names[1]: texts.target_language})]


def _target(content: bytes, unit: _Unit, xml: str, version: str) -> list[Edit[bytes]]:
    """Returns the edits that give a unit its target."""
    new = version.startswith("2")
    edits = [_attributes_set(content, unit.start, {"state": "translated"})] if new else []
    states = {} if new else _MACHINE_MADE
    if unit.target:
        first, last = unit.target[0], unit.target[-1]
        _, _, tag = _attributes_set(content, first, states) if states else (0, 0, content[first.start : first.end])
        if tag.endswith(b"/>"):
            tag = tag[:-2].rstrip() + b">"
        return [*edits, (first.start, last.end, tag + xml.encode() + f"</{_tag_name(tag)}>".encode())]
    last = (unit.segmented or unit.source)[-1]
    source = unit.source[0]
    tag = _tag_name(content[source.start : source.end]).replace("source", "target")
    attributes = "".join(f' {key}="{value}"' for key, value in states.items())
    space = re.search(rb"\s*\Z", content[max(0, source.start - 200) : source.start])[0]
    return [*edits, (last.end, last.end, space + f"<{tag}{attributes}>{xml}</{tag}>".encode())]


def _attributes_set(content: bytes, start: Event, values: dict[str, str]) -> Edit[bytes]:
    """Returns the edit that gives a start tag these attributes, besides its own."""
    tag = content[start.start : start.end].decode()
    for key, value in values.items():
        place = next((match.span(2) for match in _ATTRIBUTE.finditer(tag) if match[1] == key), None)
        if place is None:
            end = tag.removesuffix(">").removesuffix("/").rstrip()
            tag = f'{end} {key}="{value}"{tag[len(end) :]}'
        else:
            tag = f'{tag[: place[0]]}"{value}"{tag[place[1] :]}'
    return start.start, start.end, tag.encode()


def _tag_name(tag: bytes) -> str:
    return re.match(rb"<([^\s/>]+)", tag)[1].decode()
