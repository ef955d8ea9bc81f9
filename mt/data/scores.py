"""Scores that a corpus brings along: one number a pair and column, as filters of web text write them."""

import csv
import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from mt.config import CorpusConfig
from mt.data.files import READ_ERRORS, files_of, open_file, reason, suffixes, text_lines
from mt.data.readers.formats import SEEKING, STREAMED

_SETTING = "data.cleaning.min_scores"
_Rows = Iterator[tuple[str, dict[str, Any]]]  # the place for messages, and values by column


def check_scores(config: CorpusConfig, columns: list[str], name: str) -> None:
    """Raises ValueError, naming the corpus, where it is of a format without columns or lacks one in its first row."""
    for path in _files(config, name):
        for column in columns if _are_numbers(config, path) else ():
            if not (column.isascii() and column.isdigit()):
                raise ValueError(
                    f"{_SETTING}: {column!r} must be a column number from 0, as {path.name} of {name} names no columns"
                )
        next(_file_scores(config, columns, path), None)


def read_scores(config: CorpusConfig, columns: list[str], name: str) -> Iterator[list[float]]:
    """Yields the numbers in the given columns of each pair, in the order in which the corpus is read.

    Raises ValueError with file and line, or row, for what is none.
    """
    for path in _files(config, name):
        yield from _file_scores(config, columns, path)


def _files(config: CorpusConfig, name: str) -> list[Path]:
    files = [] if config.path is None else files_of(config.path, f"{name}.path", (*STREAMED, *SEEKING))
    if not files or any(suffixes(path.name)[0] not in _ROWS for path in files):
        raise ValueError(
            f"{_SETTING}: {name} has no columns: they are read from {', '.join(_ROWS)} files, set as {name}.path; "
            f"leave {_SETTING} out"
        )
    return files


def _file_scores(config: CorpusConfig, columns: list[str], path: Path) -> Iterator[list[float]]:
    rows = _ROWS[suffixes(path.name)[0]]
    try:
        with open_file(path) as file:
            for place, row in rows(file, str(path), config, columns):
                yield [_score(row, column, place) for column in columns]
    except READ_ERRORS as error:
        raise ValueError(f"{path}: {reason(error)}") from error


def _are_numbers(config: CorpusConfig, path: Path) -> bool:
    """Returns whether the columns of a file have numbers in place of names."""
    fields = config.source_field, config.target_field
    kind = suffixes(path.name)[0]
    return kind == ".tsv" or (kind == ".csv" and all(field is not None and field.isdigit() for field in fields))


def _tsv_rows(file: BinaryIO, name: str, config: CorpusConfig, columns: list[str]) -> _Rows:
    for number, line in enumerate(text_lines(file, name), start=1):
        yield f"{name}, line {number}", _numbered(line.split("\t"))


def _csv_rows(file: BinaryIO, name: str, config: CorpusConfig, columns: list[str]) -> _Rows:
    rows = csv.reader((line + "\n" for line in text_lines(file, name)), strict=True)  # as the pairs are read
    header = None if _are_numbers(config, Path(name)) else next(rows, None)
    for number, row in enumerate(rows, start=1):
        values = _numbered(row) if header is None else dict(zip(header, row, strict=False))
        yield f"{name}, row {number}", values


def _numbered(row: list[str]) -> dict[str, str]:
    return {str(column): value for column, value in enumerate(row)}


def _jsonl_rows(file: BinaryIO, name: str, config: CorpusConfig, columns: list[str]) -> _Rows:
    for number, line in enumerate(text_lines(file, name), start=1):
        yield f"{name}, line {number}", json.loads(line)


def _parquet_rows(file: BinaryIO, name: str, config: CorpusConfig, columns: list[str]) -> _Rows:
    import pyarrow.parquet

    table = pyarrow.parquet.ParquetFile(file)
    there = [column for column in columns if column in table.schema_arrow.names]
    number = 0
    for batch in table.iter_batches(columns=there or None):
        for row in batch.to_pylist():
            number += 1
            yield f"{name}, row {number}", row


_ROWS: dict[str, Callable[[BinaryIO, str, CorpusConfig, list[str]], _Rows]] = {
    ".tsv": _tsv_rows,
    ".csv": _csv_rows,
    ".jsonl": _jsonl_rows,
    ".parquet": _parquet_rows,
}


def _score(row: dict[str, Any], column: str, place: str) -> float:
    """Returns the number in a column. Raises ValueError for what is none: nobody can say whether to keep that pair."""
    if column not in row:
        raise ValueError(f"{place}: has no column {column!r}, which {_SETTING} names")
    value = row[column]
    try:
        score = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        score = math.nan
    if math.isnan(score):
        raise ValueError(f"{place}: column {column!r} has {str(value)[:40]!r}: {_SETTING} needs a number there")
    return score
