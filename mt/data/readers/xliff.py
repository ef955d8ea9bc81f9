"""XLIFF 1.2 and 2.x: a pair from each trans-unit or segment that has a translation."""

from collections.abc import Iterator
from typing import Any, BinaryIO

from mt.data.readers.xml import children, local_name, segment_text, xml_elements
from mt.data.sides import Pair, Sides, fitting_language, one_line, shown

_UNTRANSLATED = {"new", "needs-translation", "initial"}  # states of a target whose text is no translation
_FUZZY_QUALIFIERS = {"fuzzy-match", "leveraged-mt", "mt-suggestion"}


def xliff_pairs(file: BinaryIO, name: str, sides: Sides) -> Iterator[Pair]:
    """Yields a pair for each unit with a translation; others are counted in sides.skipped.

    A document from the target into the source language is read the other way round. Raises ValueError for what is not
    XLIFF, and where no part of it has both languages.
    """
    languages: dict[str, None] = {}
    swapped: bool | None = None
    found = False
    units = 0
    heads, ends = ("xliff", "file"), ("trans-unit", "segment", "unit", "group", "file")
    for event, element in xml_elements(file, name, "xliff", heads, ends):
        if event == "start":
            there = _languages(element)
            if there is not None:
                languages[" > ".join(code or "?" for code in there)] = None
                swapped = _swapped(there, sides)
                found |= swapped is not None
        elif local_name(element) in ("trans-unit", "segment"):
            units += 1
            reason, pair = _unit(element, f"{name}, unit {units}", sides)
            reason = "unit of other languages" if swapped is None else reason
            if reason:
                sides.skipped[reason] += 1
            else:
                yield pair[::-1] if swapped else pair
    if units and not found:
        source, target = sides.fields
        raise ValueError(
            f"{name}: nothing is from {source} into {target}; there is {shown(languages)}: set "
            f"{sides.name}.source_field and .target_field"
        )


def _languages(element: Any) -> tuple[str, str] | None:
    """Returns the source and target language that an element names (file in 1.2, xliff in 2.x), "" for none."""
    if local_name(element) == "xliff":
        return (element.get("srcLang"), element.get("trgLang") or "") if element.get("srcLang") else None
    if element.get("source-language"):
        return element.get("source-language"), element.get("target-language") or ""
    return None


def _swapped(there: tuple[str, str], sides: Sides) -> bool | None:
    """Returns whether a document is from the target into the source language; None: it has other languages."""
    for swapped, (source, target) in enumerate((sides.fields, sides.fields[::-1])):
        if fitting_language(there[:1], source) is not None:
            if not there[1] or fitting_language(there[1:], target) is not None:
                return bool(swapped)
    return None


def _unit(unit: Any, place: str, sides: Sides) -> tuple[str, Pair]:
    """Returns why a unit gives no pair ("": it does), and the pair."""
    around = [unit, *unit.iterancestors()]
    translate = next((element.get("translate") for element in around if element.get("translate")), "yes")
    sources, targets = children(unit, "source"), children(unit, "target")
    source = one_line(segment_text(sources[0], place)) if sources else ""
    target = one_line(segment_text(targets[0], place)) if targets else ""
    state = unit.get("state") or (targets[0].get("state") if targets else "") or ""
    qualifier = (targets[0].get("state-qualifier") if targets else "") or ""
    if translate == "no":
        reason = "unit not to be translated"
    elif not source.strip():
        reason = "unit without source"
    elif not target.strip() or state in _UNTRANSLATED:
        reason = "unit without target"
    elif not sides.include_fuzzy and (
        state.startswith("needs-") or qualifier in _FUZZY_QUALIFIERS or qualifier.startswith("rejected-")
    ):
        reason = "fuzzy unit"
    else:
        reason = ""
    return reason, (source, target)
