"""Glossaries: source terms and the target terms that their translations must hold."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from mt.data.files import read_lines
from mt.translation.phrases import in_word


@dataclass(frozen=True)
class Glossary:
    """Target terms by source term. A term all in lower case is found in any case, another one as it is written."""

    terms: dict[str, str]

    @staticmethod
    def read(path: Path) -> "Glossary":
        """Returns the glossary of a TSV file: source term, tab, target term; empty lines and lines with # are left out.

        Raises ValueError naming the line where a column is missing or empty, or a source term has two translations.
        """
        terms: dict[str, str] = {}
        for number, line in enumerate(read_lines(path), start=1):
            if not line.strip() or line.startswith("#"):
                continue
            columns = [" ".join(column.split()) for column in line.split("\t")]
            if len(columns) != 2 or not all(columns):
                raise ValueError(
                    f"{path}: line {number}: expected a source term, a tab and a target term, got {line!r}"
                )
            source, target = columns
            if terms.setdefault(source, target) != target:
                raise ValueError(
                    f"{path}: line {number}: {source!r} is translated as {target!r}, but before as "
                    f"{terms[source]!r}: keep one"
                )
        if not terms:
            raise ValueError(f"{path}: no terms in this glossary; each line is a source term, a tab and a target term")
        return Glossary(terms)

    def targets_in(self, text: str) -> tuple[str, ...]:
        """Returns the target terms of all source terms in a text, in order; of overlapping ones the longest counts.

        A term begins and ends where a word does; characters of scripts without spaces are words of their own. Any white
        space is as good as another.
        """
        text = " ".join(text.split())
        found, place = [], 0
        while place < len(text):
            match = next((end for end in self._ends(text, place) if self._target(text[place:end]) is not None), None)
            if match is not None:
                found.append(self._target(text[place:match]))
            place = match or place + 1
        return tuple(dict.fromkeys(target for target in found if target is not None))

    @cached_property
    def _lengths(self) -> list[int]:
        return sorted({len(source) for source in self.terms}, reverse=True)

    def _ends(self, text: str, place: int) -> Iterator[int]:
        """Yields where a term that begins at `place` can end, the furthest first."""
        if place and in_word(text[place - 1]) and in_word(text[place]):
            return
        for length in self._lengths:
            end = place + length
            if end <= len(text) and not (end < len(text) and in_word(text[end - 1]) and in_word(text[end])):
                yield end

    def _target(self, words: str) -> str | None:
        return self.terms.get(words, self.terms.get(words.lower()))  # a key in lower case stands for any case
