"""The content of a document: read within bounds, decoded, and edited in places, so that all else stays to the byte."""

import codecs
from typing import BinaryIO, TypeVar

LARGEST_BYTES = 64 * 2**20  # of a document that is read whole, and of each part of a packed one
# Codecs of Python in which no document is written.
_NO_ENCODINGS = {"idna", "punycode", "undefined", "unicode-escape", "raw-unicode-escape", "utf-7"}
_BOMS = (("utf-8", codecs.BOM_UTF8), ("utf-16-le", codecs.BOM_UTF16_LE), ("utf-16-be", codecs.BOM_UTF16_BE))

Content = TypeVar("Content", str, bytes)
Edit = tuple[int, int, Content]  # from here, up to here, what comes there instead


def read_whole(file: BinaryIO, name: str) -> bytes:
    """Returns the bytes of a document. Raises ValueError where it is empty or has more than LARGEST_BYTES."""
    data = file.read(LARGEST_BYTES + 1)
    if not data:
        raise ValueError(f"{name}: the file is empty")
    if len(data) > LARGEST_BYTES:
        raise ValueError(f"{name}: has more than {LARGEST_BYTES >> 20} MiB, the most for this format: split the file")
    return data


def decode(data: bytes, name: str, encoding: str) -> tuple[str, str, bytes]:
    """Returns a document's text, its encoding and its byte order mark, which is not in the text.

    The mark wins against `encoding`. Raises ValueError with the line for bytes that are no such text, and for text
    with a NUL; also where encoding the text again would give other bytes.
    """
    mark = b""
    for marked, bytes_ in _BOMS:
        if data.startswith(bytes_):
            encoding, mark = marked, bytes_
    try:
        if codecs.lookup(encoding).name in _NO_ENCODINGS:
            raise LookupError(encoding)
        text = data[len(mark) :].decode(encoding)
    except LookupError as error:
        raise ValueError(f"{name}: the encoding {encoding!r} that it names is not known: convert the file") from error
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, len(mark) + error.start) + 1
        raise ValueError(
            f"{name}, line {line}: byte 0x{data[len(mark) + error.start]:02x} is not valid {encoding.upper()}: "
            "convert the file"
        ) from error
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise ValueError(f"{name}, line {line}: has a NUL character: is no text file")
    if text.encode(encoding) != data[len(mark) :]:
        raise ValueError(f"{name}: some bytes would change in its encoding {encoding}: convert the file to UTF-8")
    return text, encoding, mark


def decode_line(line: bytes, place: str) -> str:
    """Returns the text of a line. Raises ValueError, naming the place, for what is not UTF-8, and for a NUL."""
    if b"\0" in line:
        raise ValueError(f"{place}: has a NUL byte: must be UTF-8 text: convert the file")
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{place}: byte {error.start + 1} (0x{line[error.start]:02x}) is not valid UTF-8: convert the file"
        ) from error


def encode(text: str, name: str, encoding: str, mark: bytes = b"") -> bytes:
    """Returns the bytes of a text. Raises ValueError where the encoding lacks one of its characters."""
    try:
        return mark + text.encode(encoding)
    except UnicodeEncodeError as error:
        character = text[error.start]
        raise ValueError(
            f"{name}: its encoding {encoding} has no {character!r} (U+{ord(character):04X}), which the translation "
            "needs: convert the file to UTF-8"
        ) from error


def edited(content: Content, edits: list[Edit[Content]]) -> Content:
    """Returns the content with the edits made, which are in order and do not overlap."""
    parts, end = [], 0
    for start, stop, new in edits:
        parts += [content[end:start], new]
        end = stop
    parts.append(content[end:])
    return content[:0].join(parts)


def line_of(content: Content, offset: int) -> int:
    """Returns the number, from 1, of the line that holds the offset."""
    newline = "\n" if isinstance(content, str) else b"\n"
    return content.count(newline, 0, offset) + 1
