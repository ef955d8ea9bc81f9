"""gettext catalogues, as text (.po) and compiled (.mo): a pair from each message that has a translation."""

import itertools
import re
import struct
from collections.abc import Iterator
from typing import BinaryIO

from mt.data.files import decode_lines
from mt.data.sides import Pair, Sides, fitting_language, one_line
from mt.documents.po import entries

_CHARSET = re.compile(r"Content-Type:[^\n\"]*charset=([\w.:-]+)", re.IGNORECASE)
_LANGUAGE = re.compile(r"^Language:[ \t]*([^\s]+)", re.IGNORECASE | re.MULTILINE)
_ASCII = bytes(range(32, 127))
_HEADER_LINES = 1000  # at most, up to the one with the charset: comments with names may come first
_MO_MAGIC = {b"\xde\x12\x04\x95": "<", b"\x95\x04\x12\xde": ">"}  # byte order
_MO_HEADER_BYTES = 28


def po_pairs(file: BinaryIO, name: str, sides: Sides) -> Iterator[Pair]:
    """Yields the pairs of each translated message; the others are counted in sides.skipped.

    Raises ValueError with file and line for what is no catalogue, and for one into another language.
    """
    head: list[bytes] = []
    for line in itertools.islice(file, _HEADER_LINES):
        head.append(line)
        if _CHARSET.search(line.decode("latin-1")):
            break
    encoding = _charset(b"".join(head[-1:]).decode("latin-1"), name)
    order = _Order(sides, name)
    for entry in entries(decode_lines(itertools.chain(head, file), name, encoding=encoding), name, encoding):
        strings = {keyword: "".join(string) for keyword, string in entry.strings.items()}
        forms = [strings[keyword] for keyword in entry.targets()]
        if not strings["msgid"] and "msgctxt" not in strings:
            order.read_header(forms[0])
        elif "fuzzy" in entry.flags and not sides.include_fuzzy:
            sides.skipped["fuzzy entry"] += 1
        else:
            yield from order.pairs(strings["msgid"], strings.get("msgid_plural"), forms)


def mo_pairs(file: BinaryIO, name: str, sides: Sides) -> Iterator[Pair]:
    """Yields the pairs of each message, as `po_pairs` does. A compiled catalogue has no fuzzy and no obsolete ones."""
    order, encoding = _Order(sides, name), "utf-8"
    for number, (key, value) in enumerate(_mo_strings(file, name), start=1):
        if not key:
            encoding = _charset(value.decode("latin-1"), name)
        try:
            message, translation = key.decode(encoding), value.decode(encoding)
        except UnicodeDecodeError as error:
            raise ValueError(f"{name}, message {number}: is not valid {encoding.upper()}: compile it anew") from error
        if not message:
            order.read_header(translation)
            continue
        singular, _, plural = message.rpartition("\x04")[2].partition("\0")
        yield from order.pairs(singular, plural or None, translation.split("\0") if plural else [translation])


class _Order:
    """Which side a catalogue's translations are: the one of the language that its header names, else the target."""

    def __init__(self, sides: Sides, name: str) -> None:
        self._sides, self._name = sides, name
        named = (sides.source_field or "msgid", sides.target_field or "msgstr")
        self._swapped = named == ("msgstr", "msgid")
        self._is_set = sides.source_field is not None or sides.target_field is not None
        if named != ("msgid", "msgstr") and not self._swapped:
            raise ValueError(
                f"{sides.name}.source_field={named[0]}, target_field={named[1]}: must be msgid and msgstr, or msgstr "
                "and msgid, for a gettext catalogue"
            )

    def read_header(self, header: str) -> None:
        """Takes the language from the header. Raises ValueError where it is neither side's."""
        language = _LANGUAGE.search(header)
        if language is None or self._is_set:
            return
        source, target = self._sides.source_language, self._sides.target_language
        if fitting_language([language[1]], target) is None:
            if fitting_language([language[1]], source) is None:
                raise ValueError(
                    f"{self._name}: its header names the language {language[1][:40]}, which is neither {source} nor "
                    f"{target}: remove it from {self._sides.name}, or set .source_field=msgid there"
                )
            self._swapped = True

    def pairs(self, singular: str, plural: str | None, forms: list[str]) -> list[Pair]:
        """Returns the pairs of a message.

        With one or two plural forms these are the singular with the first and the plural with the last; with more, the
        plural with the last alone, as it depends on the language which of the others is the singular.
        """
        pairs = [(singular, forms[0])]
        if plural is not None:
            pairs = ([] if len(forms) > 2 else pairs) + [(plural, forms[-1])]
        pairs = [(one_line(source), one_line(target)) for source, target in pairs]
        if not all(source.strip() and target.strip() for source, target in pairs):
            self._sides.skipped["entry without translation"] += 1
            return []
        return [(target, source) for source, target in pairs] if self._swapped else pairs


def _charset(text: str, name: str) -> str:
    """Returns the encoding that a header names, UTF-8 where it names none.

    Raises ValueError for an unknown one, and for one that writes ASCII in another way, where LF would end no line.
    """
    found = _CHARSET.search(text)
    encoding = found[1] if found and found[1] != "CHARSET" else "utf-8"
    try:
        if _ASCII.decode(encoding) == _ASCII.decode():
            return encoding
    except (LookupError, UnicodeError):
        pass
    raise ValueError(f"{name}: names the encoding {encoding[:40]!r}, which cannot be read: convert it to UTF-8")


def _mo_strings(file: BinaryIO, name: str) -> Iterator[tuple[bytes, bytes]]:
    """Yields each message and its translation as they are stored."""
    header = file.read(_MO_HEADER_BYTES)
    order = _MO_MAGIC.get(header[:4])
    if order is None or len(header) < _MO_HEADER_BYTES:
        raise ValueError(f"{name}: is no compiled gettext catalogue")
    count, *tables = struct.unpack(f"{order}3I", header[8:20])
    size = file.seek(0, 2)
    if any(table + 8 * count > size for table in tables):
        raise ValueError(f"{name}: is cut off: its tables of {count} messages lie behind its end")
    places = []
    for table in tables:
        file.seek(table)
        places.append(file.read(8 * count))
    for number in range(count):
        strings = []
        for table in places:
            length, start = struct.unpack_from(f"{order}2I", table, 8 * number)
            if start + length > size:
                raise ValueError(f"{name}, message {number + 1}: lies behind the end of the file, which is cut off")
            file.seek(start)
            strings.append(file.read(length))
        yield strings[0], strings[1]
