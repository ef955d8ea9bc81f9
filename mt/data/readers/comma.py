"""Comma-separated values as RFC 4180 has them: quoted by double quotes, "" for one of them, line breaks inside quotes.

The first row names the columns, unless both fields are column numbers from 0: then there is no such row.
"""

import csv
from collections.abc import Iterator
from typing import BinaryIO

from mt.data.files import text_lines
from mt.data.readers.rows import missing_field
from mt.data.readers.tsv import tsv_columns, wrong_columns
from mt.data.sides import Pair, Sides, one_line


def csv_pairs(file: BinaryIO, name: str, sides: Sides) -> Iterator[Pair]:
    """Yields both fields of each row.

    Raises ValueError with file and line for a quotation mark out of place, a row with another number of columns, and a
    field of more than 131,072 characters (whose quotation mark was never closed).
    """
    # A row is what the csv module makes of whole lines; a line ends at LF only.
    rows, start = csv.reader((line + "\n" for line in text_lines(file, name)), strict=True), 1
    try:
        if all(field is not None and field.isdigit() for field in (sides.source_field, sides.target_field)):
            columns, expected = tsv_columns(sides), 0
        else:
            header = next(rows, None)
            if header is None:
                return
            columns, expected = _named_columns(header, f"{name}, line 1", sides), len(header)
        needed, start = max(columns) + 1, rows.line_num + 1
        for row in rows:
            expected = expected or len(row)
            if len(row) != expected or len(row) < needed:
                raise wrong_columns(len(row), expected, needed, f"{name}, line {start}", sides)
            yield one_line(row[columns[0]]), one_line(row[columns[1]])
            start = rows.line_num + 1
    except csv.Error as error:
        rule = "fields with commas, quotation marks or line breaks must be quoted"
        raise ValueError(f"{name}, the row that begins in line {start}: is not CSV ({error}): {rule}") from error


def _named_columns(header: list[str], place: str, sides: Sides) -> tuple[int, int]:
    columns = []
    for field, setting in zip(sides.fields, ("source_field", "target_field"), strict=True):
        if header.count(field) > 1:
            raise ValueError(f"{place}: names two columns {field!r}: rename one, or set {sides.name}.{setting}")
        if field not in header:
            remedy = f"{sides.name}.{setting} (where no row names the columns, both fields to numbers from 0)"
            raise missing_field(field, header, remedy, place)
        columns.append(header.index(field))
    return columns[0], columns[1]
