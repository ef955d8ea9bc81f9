"""XML read element by element, for corpora that do not fit into memory; and the text of a segment with codes in it.

Entities are never expanded and nothing outside the file is read: a file that declares an entity is refused.
"""

from collections.abc import Iterator
from typing import Any, BinaryIO

# Elements that hold a document's own code, in TMX and XLIFF: left out with what is in them. Of others (hi, g, mrk, pc,
# ...) the text stays.
_CODES = {"bpt", "ept", "ph", "it", "ut", "x", "bx", "ex", "sc", "ec", "cp"}
_LINE_BREAKS = {"lb", "xlf:lb"}  # kinds of code that stand for one


def xml_elements(
    file: BinaryIO, name: str, root: str, starts: tuple[str, ...], ends: tuple[str, ...]
) -> Iterator[tuple[str, Any]]:
    """Yields ("start", element) of each element of `starts`, without its content, and ("end", element) of `ends`.

    Elements are named without namespace. What came to an end is forgotten when the next one is asked for. Raises
    ValueError with file and line for what is not well-formed, and for another root element than `root`.
    """
    try:
        from lxml import etree
    except ImportError as error:
        raise ValueError(f"{name}: reading it needs the package lxml: pip install 'mt[corpora]'") from error
    tags = [f"{{*}}{tag}" for tag in {root, *starts, *ends}]
    parser = etree.iterparse(
        file, ("start", "end"), tag=tags, load_dtd=False, no_network=True, resolve_entities=False,
        remove_comments=True, remove_pis=True,
    )  # fmt: skip
    is_checked = False
    etree.clear_error_log()  # one for all that a thread reads
    try:
        for event, element in parser:
            tag = local_name(element)
            if not is_checked:
                _check_root(element.getroottree(), name, root)
                is_checked = True
            if event == "start":
                if tag in starts:
                    yield event, element
            elif tag in ends:
                yield event, element
                element.clear()
                while element.getprevious() is not None:
                    del element.getparent()[0]
    except etree.XMLSyntaxError as error:
        # after an entity that nobody declared the parser begins anew, and fails again: the first error counts
        line, message = next(((e.line, e.message) for e in error.error_log), (error.lineno, error.msg))
        why = " ".join((message or "no content").partition(", line ")[0].split())[:200]
        remedy = ": write its character" if why.startswith("Entity ") else ""
        raise ValueError(f"{name}, line {line or 1}: is not XML ({why}){remedy}") from error
    if not is_checked:
        raise ValueError(f"{name}: the root element must be {root}")


def _check_root(tree: Any, name: str, root: str) -> None:
    found = tree.getroot()
    if local_name(found) != root:
        raise ValueError(f"{name}: the root element is {local_name(found)[:40]}: must be {root}")
    declared = tree.docinfo.internalDTD
    for entity in declared.iterentities() if declared is not None else ():
        raise ValueError(f"{name}: declares the entity {entity.name[:40]!r}: remove it")


def local_name(element: Any) -> str:
    """Returns an element's name without its namespace; "" of what is no element."""
    return element.tag.rpartition("}")[2] if isinstance(element.tag, str) else ""


def children(element: Any, name: str) -> list[Any]:
    """Returns the elements of that name that stand directly in this one."""
    return [child for child in element if local_name(child) == name]


def segment_text(element: Any, place: str) -> str:
    """Returns the text of a segment without its codes. Raises ValueError for an entity, naming the place."""
    parts = [element.text or ""]
    for child in element:
        tag = local_name(child)
        if not tag:
            raise ValueError(f"{place}: has the entity {str(child.text)[:40]}, which is not expanded: write its text")
        if tag not in _CODES:
            parts.append(segment_text(child, place))
        elif _LINE_BREAKS & {child.get("ctype"), child.get("type"), child.get("subType")}:
            parts.append("\n")
        parts.append(child.tail or "")
    return "".join(parts)
