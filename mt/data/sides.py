"""What a reader needs to know to find both sides of a file, and the rules that hold for every format."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import BinaryIO

from mt.config import CorpusConfig, DataConfig

Pair = tuple[str, str]
_LINE_BREAK = re.compile(r"[ \t\r]*\n[ \t\r\n]*")
_SHOWN = 20  # names in a message
_SHOWN_CHARACTERS = 40  # of each


@dataclass(frozen=True)
class Sides:
    """Both sides of a corpus by field and by language, what else is wanted, and where what is not wanted is counted."""

    name: str  # "data.train.main", which stands in messages
    source_field: str | None
    target_field: str | None
    source_language: str
    target_language: str
    include_fuzzy: bool = False
    skipped: Counter[str] = field(default_factory=Counter, compare=False)  # units without a pair, by reason

    @classmethod
    def of(cls, config: CorpusConfig, data: DataConfig, name: str, skipped: Counter[str] | None = None) -> "Sides":
        """Returns the sides of a corpus; `skipped` counts from now on."""
        return cls(
            name,
            config.source_field,
            config.target_field,
            config.source_language or data.source_language,
            config.target_language or data.target_language,
            config.include_fuzzy,
            Counter() if skipped is None else skipped,
        )

    @property
    def fields(self) -> tuple[str, str]:
        """The names of both sides, in the formats that name them by language."""
        return self.source_field or self.source_language, self.target_field or self.target_language


Reader = Callable[[BinaryIO, str, Sides], Iterator[Pair]]  # an open file, its name in messages, and what is wanted


def one_line(text: str) -> str:
    """Returns the text with a space for each line break and the white space around it, none at the ends of the text.

    A text without LF stays as it is: CR, U+2028 and the like are no line breaks.
    """
    return _LINE_BREAK.sub(" ", text.strip(" \t\r\n")) if "\n" in text else text


def fitting_language(codes: Iterable[str], wanted: str) -> str | None:
    """Returns the first of a document's language codes that is the wanted one, else the first that fits it, else None.

    Case does not count, nor whether "-" or "_" stands between subtags. Codes fit where one is the other with more
    subtags: en fits en-US and en-US fits en, but en-GB does not fit en-US.
    """
    own = _subtags(wanted)
    fitting = None
    for code in codes:
        other = _subtags(code)
        if other == own:
            return code
        shorter = min(len(own), len(other))
        if fitting is None and code and own[:shorter] == other[:shorter]:
            fitting = code
    return fitting


def shown(names: Iterable[str]) -> str:
    """Returns some names out of a file for a message of one line."""
    few = list(names)
    parts = [" ".join(str(name)[:_SHOWN_CHARACTERS].split()) for name in few[:_SHOWN]]
    return ", ".join(parts) + (", ..." if len(few) > _SHOWN else "") if few else "none"


def _subtags(code: str) -> list[str]:
    return code.strip().lower().replace("_", "-").split("-")
