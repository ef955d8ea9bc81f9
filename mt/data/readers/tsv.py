"""Tab-separated values: fields are split at tabs and nothing else; a quotation mark is a character like any other."""

from collections.abc import Iterator
from typing import BinaryIO

from mt.data.files import text_lines
from mt.data.sides import Pair, Sides


def tsv_pairs(file: BinaryIO, name: str, sides: Sides) -> Iterator[Pair]:
    """Yields both fields of each line. Raises ValueError with file and line for another number of columns."""
    source_column, target_column = tsv_columns(sides)
    needed, expected = max(source_column, target_column) + 1, 0
    for number, line in enumerate(text_lines(file, name), start=1):
        row = line.split("\t")
        expected = expected or len(row)
        if len(row) != expected or len(row) < needed:
            raise wrong_columns(len(row), expected, needed, f"{name}, line {number}", sides)
        yield row[source_column], row[target_column]


def tsv_columns(sides: Sides) -> tuple[int, int]:
    """Returns the numbers of both columns, from 0. Raises ValueError for a field that is no number."""
    columns = []
    for setting, value in (("source_field", sides.source_field or "0"), ("target_field", sides.target_field or "1")):
        if not (value.isascii() and value.isdigit() and len(value) < 10):
            raise ValueError(f"{sides.name}.{setting}={value}: must be a column number from 0 for a TSV file")
        columns.append(int(value))
    return columns[0], columns[1]


def wrong_columns(found: int, expected: int, needed: int, place: str, sides: Sides) -> ValueError:
    """Returns the error of a row with another number of columns than the first, or than the fields need."""
    rule = f"at least {needed} are needed" if found < needed else f"the first line has {expected}"
    return ValueError(f"{place}: has {found} columns, but {rule} ({sides.name})")
