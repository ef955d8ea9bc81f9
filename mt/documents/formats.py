"""Formats of documents by name and by file extension, and the one way to translate any of them."""

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import BinaryIO

from mt.documents.content import read_whole
from mt.documents.tables import Fields
from mt.documents.texts import TextTranslator

FORMATS = ("text", "jsonl", "tsv", "csv", "po", "srt", "vtt", "tmx", "xliff", "html", "md", "docx")
_EXTENSIONS = {f".{name}": name for name in FORMATS if name != "text"} | {
    ".pot": "po",
    ".xlf": "xliff",
    ".htm": "html",
    ".markdown": "md",
}


def document_format(path: Path | None, given: str | None) -> str:
    """Returns the name of a file's format: the given one, or by its extension, or text.

    Raises ValueError for an unknown name and for a packed document.
    """
    if given is not None:
        if given not in FORMATS:
            raise ValueError(f"--format={given}: must be one of {', '.join(FORMATS)}")
        return given
    if path is None:
        return "text"
    packed = path.suffix.lower() == ".gz"
    found = _EXTENSIONS.get(Path(path.stem).suffix.lower() if packed else path.suffix.lower(), "text")
    if packed and found != "text":
        raise ValueError(f"{path}: only text is read from .gz: unpack it, or give --format text")
    return found


def translate_document(
    format: str, file: BinaryIO, name: str, texts: TextTranslator, fields: Fields
) -> Iterator[bytes]:
    """Yields the translated document in the same format, in parts; `name` stands in messages.

    Text and tables are read and written row by row. Raises ValueError, with file and line where known, for what is not
    of the format.
    """
    from mt.documents import docx, html, markdown, po, subtitles, tables, tmx, xliff

    for package in ["sentencex"] * texts.split + ["markdown_it"] * (format == "md"):
        if find_spec(package) is None:
            raise ValueError(f"the package {package} is missing: pip install 'mt[documents]'")

    match format:
        case "text":
            yield from tables.translate_lines(file, name, texts)
        case "jsonl":
            yield from tables.translate_jsonl(file, name, texts, fields)
        case "tsv":
            yield from tables.translate_tsv(file, name, texts, fields)
        case "csv":
            yield from tables.translate_csv(file, name, texts, fields)
        case "po":
            yield po.translate_po(read_whole(file, name), name, texts)
        case "srt" | "vtt":
            yield subtitles.translate_subtitles(read_whole(file, name), name, texts)
        case "tmx":
            yield tmx.translate_tmx(read_whole(file, name), name, texts)
        case "xliff":
            yield xliff.translate_xliff(read_whole(file, name), name, texts)
        case "html":
            yield html.translate_html(read_whole(file, name), name, texts)
        case "md":
            yield markdown.translate_markdown(read_whole(file, name), name, texts)
        case "docx":
            yield docx.translate_docx(read_whole(file, name), name, texts)
        case _:
            raise ValueError(f"format={format}: must be one of {', '.join(FORMATS)}")
