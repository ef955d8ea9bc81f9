"""Translation memories (TMX): a pair from each unit that has a variant in both languages."""

from collections.abc import Iterator
from typing import Any, BinaryIO

from mt.data.readers.xml import children, segment_text, xml_elements
from mt.data.sides import Pair, Sides, fitting_language, one_line, shown

_XML_LANGUAGE = "{http://www.w3.org/XML/1998/namespace}lang"


def tmx_pairs(file: BinaryIO, name: str, sides: Sides) -> Iterator[Pair]:
    """Yields a pair for each unit; of several variants in a language the first. Others are counted in sides.skipped.

    Raises ValueError for what is not TMX, and where no unit has the source or the target language.
    """
    languages: dict[str, None] = {}
    found = [False, False]
    for number, (_, unit) in enumerate(xml_elements(file, name, "tmx", (), ("tu",)), start=1):
        variants: dict[str, Any] = {}
        for variant in children(unit, "tuv"):
            variants.setdefault(variant.get(_XML_LANGUAGE) or variant.get("lang") or "", variant)
        languages |= dict.fromkeys(variants)
        texts = []
        for side, wanted in enumerate(sides.fields):
            language = fitting_language(variants, wanted)
            found[side] |= language is not None
            segments = children(variants[language], "seg") if language is not None else []
            texts.append(one_line(segment_text(segments[0], f"{name}, unit {number}")) if segments else "")
        if texts[0].strip() and texts[1].strip():
            yield texts[0], texts[1]
        else:
            sides.skipped["unit without source" if not texts[0].strip() else "unit without target"] += 1
    for side, setting in enumerate(("source_field", "target_field")):
        if languages and not found[side]:
            raise ValueError(
                f"{name}: no unit has the language {sides.fields[side]}; there are {shown(languages)}: set "
                f"{sides.name}.{setting}"
            )
