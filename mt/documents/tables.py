"""Texts a line (.txt) and tables (.jsonl, .tsv, .csv): row by row, in bounded memory."""

import csv
import io
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice
from typing import BinaryIO

from mt.documents.content import LARGEST_BYTES, decode_line
from mt.documents.texts import TextTranslator

_ROWS_AT_ONCE = 2000
_NAMES_SHOWN, _NAMES_CHARACTERS = 20, 300  # in a message
_SEPARATORS = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029]")  # no translated line may fall apart in two
_OBJECT_END = re.compile(r"\}\s*\Z")
_QUOTED = re.compile('"[^"]*"?')  # in CSV


@dataclass(frozen=True)
class Fields:
    """Which field is translated, and the name of the new one. A number is a column of a table without names."""

    source: str
    target: str


@dataclass(frozen=True)
class _Row:
    line: str  # as it stands in the file (of CSV: the lines), with its end
    text: str | None  # what is to be translated; None: nothing


def translate_lines(file: BinaryIO, name: str, texts: TextTranslator) -> Iterator[bytes]:
    """Yields a line, ended by LF, for each line. Raises ValueError with file and line for what is not UTF-8."""
    rows = (_Row(line, _unmarked(line).removesuffix("\n").removesuffix("\r")) for _, line in _lines(file, name))
    for _, found in _translated(rows, texts):
        yield f"{_SEPARATORS.sub(' ', found)}\n".encode()


def translate_jsonl(file: BinaryIO, name: str, texts: TextTranslator, fields: Fields) -> Iterator[bytes]:
    """Yields each JSON object with one field more, at its end; the rest of the line stays to the byte.

    Raises ValueError with file and line for what is no JSON object, has no such field or has the new one already.
    """
    for row, found in _translated(_objects(file, name, fields), texts):
        end = len(row.line[: _OBJECT_END.search(row.line).start()].rstrip())
        new = f", {json.dumps(fields.target, ensure_ascii=False)}: {json.dumps(found, ensure_ascii=False)}"
        yield f"{row.line[:end]}{new}{row.line[end:]}".encode()


def translate_tsv(file: BinaryIO, name: str, texts: TextTranslator, fields: Fields) -> Iterator[bytes]:
    """Yields each line with one column more; the rest of the line stays to the byte.

    Fields are split at tabs and nothing else. A source field that is a number from 0 is a column; else the first line
    has the names. Raises ValueError with file and line for a line of another number of columns.
    """
    records = ((number, line, _unmarked(line).rstrip("\r\n").split("\t")) for number, line in _lines(file, name))
    for row, found in _translated(_cells(records, name, fields), texts, header=fields.target):
        yield _with_column(row.line, "\t" + _SEPARATORS.sub(" ", found.replace("\t", " ")))


def translate_csv(file: BinaryIO, name: str, texts: TextTranslator, fields: Fields) -> Iterator[bytes]:
    """Yields each record with one column more; the rest of the record stays to the byte.

    The comma separates, or the semicolon where the first line has no comma outside quotation marks. A source field that
    is a number from 0 is a column; else the first record has the names. Raises ValueError with file and line for a
    record of another number of columns, and for quotation marks that do not close.
    """
    lines = _lines(file, name)
    first = next(lines, None)
    if first is None:
        raise ValueError(f"{name}: the file is empty")
    unquoted = _QUOTED.sub("", first[1])
    delimiter = ";" if ";" in unquoted and "," not in unquoted else ","
    records = _records(chain([first], lines), name, delimiter)
    for row, found in _translated(_cells(records, name, fields), texts, header=fields.target):
        cell = io.StringIO()
        # Of two cells, as one that is empty would be quoted; \r\n, as only what may end a line is quoted in a cell.
        csv.writer(cell, delimiter=delimiter, lineterminator="\r\n").writerow([found, ""])
        yield _with_column(row.line, delimiter + cell.getvalue().removesuffix(f"{delimiter}\r\n"))


def _lines(file: BinaryIO, name: str) -> Iterator[tuple[int, str]]:
    """Yields the number and the text of each line, with its end; the first with a byte order mark, if it has one."""
    for number, line in enumerate(iter(lambda: file.readline(LARGEST_BYTES + 1), b""), 1):
        if len(line) > LARGEST_BYTES:
            raise ValueError(f"{name}, line {number}: has more than {LARGEST_BYTES >> 20} MiB: is no text file")
        yield number, decode_line(line, f"{name}, line {number}")


def _translated(rows: Iterator[_Row], texts: TextTranslator, header: str = "") -> Iterator[tuple[_Row, str]]:
    """Yields each row with its translation, or the header where it has no text."""
    while chunk := list(islice(rows, _ROWS_AT_ONCE)):
        found = iter(texts.strings([row.text for row in chunk if row.text is not None]))
        yield from ((row, header if row.text is None else next(found)) for row in chunk)


def _objects(file: BinaryIO, name: str, fields: Fields) -> Iterator[_Row]:
    for number, line in _lines(file, name):
        place = f"{name}, line {number}"
        try:
            row = json.loads(_unmarked(line))
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{place}: not valid JSON ({error})") from error
        if not isinstance(row, dict):
            raise ValueError(f'{place}: must be a JSON object such as {{"{fields.source}": "text"}}')
        text = row[_check_names(list(row), fields, place)]
        if not isinstance(text, str):
            raise ValueError(f"{place}: field {fields.source!r} must be text, got {type(text).__name__}: set --field")
        if any("\ud800" <= character <= "\udfff" for character in text):
            raise ValueError(f"{place}: field {fields.source!r} has half a surrogate pair, which is not valid Unicode")
        yield _Row(line, text)


def _records(lines: Iterator[tuple[int, str]], name: str, delimiter: str) -> Iterator[tuple[int, str, list[str]]]:
    """Yields the number of the first line, the lines and the cells of each CSV record."""
    raw: list[str] = []
    last = 0

    def taken() -> Iterator[str]:
        nonlocal last
        for number, line in lines:
            last = number
            raw.append(line)
            yield _unmarked(line)

    reader = csv.reader(taken(), delimiter=delimiter, strict=True)
    while True:
        try:
            cells = next(reader, None)
        except csv.Error as error:
            raise ValueError(f"{name}, line {last - len(raw) + 1}: not a CSV record ({error})") from error
        if cells is None:
            return
        yield last - len(raw) + 1, "".join(raw), cells
        raw.clear()


def _cells(records: Iterator[tuple[int, str, list[str]]], name: str, fields: Fields) -> Iterator[_Row]:
    """Yields a row for each record, the first without a text where it has the names of the columns."""
    column = int(fields.source) if fields.source.isascii() and fields.source.isdigit() else None
    expected = 0
    for number, line, cells in records:
        place = f"{name}, line {number}"
        if column is None:
            column, expected = cells.index(_check_names(cells, fields, place)), len(cells)
            yield _Row(line, None)
            continue
        expected = expected or len(cells)
        if len(cells) != expected or len(cells) <= column:
            needed = f"the first has {expected}" if len(cells) != expected else f"--field={column} needs {column + 1}"
            raise ValueError(f"{place}: has {len(cells)} columns, but {needed}")
        yield _Row(line, cells[column])


def _check_names(names: list[str], fields: Fields, place: str) -> str:
    """Returns the name of the source field. Raises ValueError where it is not there, or the target is."""
    if fields.source not in names:
        there = " ".join(", ".join(names[:_NAMES_SHOWN]).split()) or "none"
        raise ValueError(f"{place}: no field {fields.source!r}; there are {there[:_NAMES_CHARACTERS]}: set --field")
    if fields.target in names:
        raise ValueError(f"{place}: there is a field {fields.target!r} already: set --new-field")
    return fields.source


def _unmarked(line: str) -> str:
    """Returns the line without the byte order mark of a file's first line."""
    return line.removeprefix("\ufeff")


def _with_column(line: str, column: str) -> bytes:
    content = line.rstrip("\r\n")
    return f"{content}{column}{line[len(content) :]}".encode()
