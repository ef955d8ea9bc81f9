"""Translation memories (TMX): a unit without the target language gets a variant in it; all else stays to the byte."""

import re
from dataclasses import dataclass, field

from mt.documents.content import Edit, edited
from mt.documents.protection import Code, Text
from mt.documents.texts import TextTranslator
from mt.documents.xml_events import Event, inline_text, inline_xml, language_matches, read_xml, write_xml, xml_events


@dataclass
class _Variant:
    """A tuv: its language and the events of its seg, with the bytes around them."""

    language: str
    attribute: str  # that names the language
    start: int  # behind the element before
    tag: int  # where the white space before it ends
    tag_end: int
    end: int = 0
    seg: list[Event] = field(default_factory=list)  # of its content
    seg_start: tuple[int, int] = (0, 0)  # of the tag <seg>
    seg_end: tuple[int, int] = (0, 0)


def translate_tmx(data: bytes, name: str, texts: TextTranslator) -> bytes:
    """Returns the memory with a tuv more in each unit that has the source language and not the target language.

    Raises ValueError with file and line for broken XML, and where no unit has the source language.
    """
    content, encoding, mark = read_xml(data, name)
    variants, languages = _wanted(content, name, texts)
    if not any(language_matches(language, texts.source_language) for language in languages):
        there = ", ".join(sorted(languages)) or "no languages"
        raise ValueError(f"{name}: no unit has the model's source language {texts.source_language}; there are {there}")
    sources = [_one_line(inline_text(content, variant.seg)) for variant in variants]
    edits: list[Edit[bytes]] = []
    for variant, found in zip(variants, texts(sources), strict=True):
        before_seg = content[variant.tag_end : variant.seg_start[0]]
        if b"<" in before_seg:  # notes and properties of the source
            before_seg = b""
        after_seg = re.match(rb"\s*", content[variant.seg_end[1] : variant.end])[0]
        tuv = f'<tuv {variant.attribute}="{texts.target_language}">'.encode()
        seg = f"<seg>{inline_xml(found)}</seg>".encode()
        new = content[variant.start : variant.tag] + tuv + before_seg + seg + after_seg + b"</tuv>"
        edits.append((variant.end, variant.end, new))
    return write_xml(edited(content, edits), name, encoding, mark)


def _wanted(content: bytes, name: str, texts: TextTranslator) -> tuple[list[_Variant], set[str]]:
    """Returns the source variants of the units to be translated, and all languages of the document."""
    wanted: list[_Variant] = []
    languages: set[str] = set()
    unit: list[_Variant] = []
    in_seg, space_start = False, 0
    for event in xml_events(content, name):
        if not in_seg and event.kind == "text" and not event.value.strip():
            continue  # white space: space_start stays where it began
        if event.kind == "start" and event.tag == "tu":
            unit = []
        elif event.kind == "start" and event.tag == "tuv":
            attribute = "xml:lang" if "xml:lang" in event.attributes else "lang"
            language = event.attributes.get(attribute, "")
            languages.add(language)
            unit.append(_Variant(language, attribute, space_start, event.start, event.end))
        elif event.kind == "start" and event.tag == "seg" and unit:
            in_seg = True
            unit[-1].seg_start = event.start, event.end
        elif event.kind == "end" and event.tag == "seg" and unit:
            in_seg = False
            unit[-1].seg_end = event.start, event.end
        elif in_seg:
            unit[-1].seg.append(event)
        elif event.kind == "end" and event.tag == "tuv" and unit:
            unit[-1].end = event.end
        elif event.kind == "end" and event.tag == "tu":
            source = [variant for variant in unit if language_matches(variant.language, texts.source_language)]
            has_target = any(language_matches(variant.language, texts.target_language) for variant in unit)
            if source and source[0].seg and not has_target:
                wanted.append(source[0])
            unit = []
        space_start = event.end
    return wanted, languages


def _one_line(text: Text) -> Text:
    """Returns the text in one line: white space with a line break is a space, other white space stays."""
    return [
        part if isinstance(part, Code) else re.sub(r"\s+", lambda space: " " if "\n" in space[0] else space[0], part)
        for part in text
    ]
