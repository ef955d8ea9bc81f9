"""Scores that a corpus brings along: one number a pair and column, as filters of web text write them."""

import json
import math
from collections.abc import Iterator
from pathlib import Path

from mt.config import CorpusConfig
from mt.data.files import read_lines

_FORMATS = (".tsv", ".jsonl")
_SETTING = "data.cleaning.min_scores"


def check_scores(config: CorpusConfig, columns: list[str], name: str) -> None:
    """Raises ValueError, naming the corpus, where it is of a format without columns or lacks one in its first line."""
    if _format(config) not in _FORMATS:
        raise ValueError(
            f"{_SETTING}: {name} has no columns: they are read from .tsv and .jsonl files (.gz too), set as "
            f"{name}.path; leave {_SETTING} out"
        )
    for column in columns if _format(config) == ".tsv" else ():
        if not (column.isascii() and column.isdigit()):
            raise ValueError(f"{_SETTING}: {column!r} must be a column number from 0, as {name} is a TSV file")
    next(read_scores(config, columns, name), None)


def read_scores(config: CorpusConfig, columns: list[str], name: str) -> Iterator[list[float]]:
    """Yields the numbers in the given columns of each line. Raises ValueError with file and line for what is none."""
    tsv = _format(config) == ".tsv"
    for number, line in enumerate(read_lines(Path(config.path)), start=1):
        place = f"{config.path}, line {number}"
        row = dict(enumerate(line.split("\t"))) if tsv else json.loads(line)
        yield [_score(row, int(column) if tsv else column, place) for column in columns]


def _format(config: CorpusConfig) -> str:
    return Path((config.path or "").lower().removesuffix(".gz")).suffix


def _score(row: dict, column: int | str, place: str) -> float:
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
