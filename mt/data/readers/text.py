"""Two text files: line n of one translates line n of the other."""

import itertools
from collections.abc import Iterable, Iterator

from mt.data.sides import Pair


def line_pairs(
    source_lines: Iterable[str], target_lines: Iterable[str], source: str, target: str, name: str
) -> Iterator[Pair]:
    """Yields line by line. Raises ValueError where one side ends before the other; `source`, `target`: their names."""
    for number, (one, other) in enumerate(itertools.zip_longest(source_lines, target_lines), start=1):
        if one is None or other is None:
            shorter = source if one is None else target
            raise ValueError(f"{name}: {shorter} ends after line {number - 1}, the other side goes on")
        yield one, other
