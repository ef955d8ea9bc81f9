"""JSON Lines: an object with both fields on each line."""

import json
from collections.abc import Iterator
from typing import BinaryIO

from mt.data.files import text_lines
from mt.data.readers.rows import row_pair
from mt.data.sides import Pair, Sides


def jsonl_pairs(file: BinaryIO, name: str, sides: Sides) -> Iterator[Pair]:
    """Yields both fields of each line. Raises ValueError with file and line for what has no two texts."""
    for number, line in enumerate(text_lines(file, name), start=1):
        place = f"{name}, line {number}"
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{place}: not valid JSON ({error})") from error
        if not isinstance(row, dict):
            source, target = sides.fields
            raise ValueError(f'{place}: must be a JSON object such as {{"{source}": ..., "{target}": ...}}')
        yield row_pair(row, sides, place)
