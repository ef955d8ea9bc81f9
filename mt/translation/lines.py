"""Texts in, as many texts out, in order, whatever engine translates them."""

import copy
import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Self

from mt.config import DecodeConfig
from mt.data.filters import is_empty
from mt.data.tags import tag_ids
from mt.tokenizer import TokenizerPair
from mt.translation.beam import Hypothesis

_LINES_SHOWN = 10  # in a warning

Found = Iterable[tuple[list[int], list[list[Hypothesis]]]]  # batch after batch: indices of sources, what is found


@dataclass(frozen=True)
class Translation:
    text: str  # one line
    score: float  # sum of log probabilities in nats / length^length_penalty; 0 for an empty source
    tokens: list[int]  # target ids without <s> and </s>
    source_truncated: bool  # the source was longer than decode.max_source_tokens, and its end was not read
    unfinished: bool  # stopped at its longest length, before </s>


class LineTranslator(ABC):
    """What all engines have in common; an engine adds `search`.

    Texts are translated each for itself: neighbours and batch sizes change only the speed (float32; in half precision
    a near-tie can fall the other way).
    """

    def __init__(self, tokenizers: TokenizerPair, decode: DecodeConfig) -> None:
        self.tokenizers, self.decode = tokenizers, decode
        tag_ids(decode.tags, tokenizers.source)

    def with_tags(self, tags: str) -> Self:
        """Returns the same translator with other tags before each source. Raises ValueError for an unknown one."""
        tag_ids(tags, self.tokenizers.source)
        other = copy.copy(self)
        other.decode = replace(self.decode, tags=tags)
        return other

    @abstractmethod
    def search(
        self, texts: list[str], sources: list[list[int]], n_best: int
    ) -> Iterator[tuple[list[int], list[list[Hypothesis]]]]:
        """Yields, batch after batch, indices of sources and for each 1 to n_best hypotheses, best first.

        Of all sources that hold tokens, in any order; longer ones than decode.max_source_tokens are cut to it. n_best
        is at most decode.beam_size.
        """

    def translate(self, texts: list[str], progress: Callable[[int], None] | None = None) -> list[str]:
        """Returns one line of text for each text, in order; see translate_n_best."""
        return [best.text for best in self.translate_best(texts, progress)]

    def translate_best(self, texts: list[str], progress: Callable[[int], None] | None = None) -> list[Translation]:
        """Returns the best translation of each text, in order; see translate_n_best."""
        return [best for best, *_ in self.translate_n_best(texts, 1, progress)]

    def translate_n_best(
        self,
        texts: list[str],
        n_best: int,
        progress: Callable[[int], None] | None = None,
        first_line: int = 1,
        names: Sequence[str] | None = None,
    ) -> list[list[Translation]]:
        """Returns for each text, in order, its 1 to n_best best translations, which all differ in their text.

        A text without visible characters has "" as its only translation. `progress` is called with the number of texts
        done so far, after each batch. Warns of sources that were cut and of unfinished translations, by the texts' own
        names or else by line numbers from first_line on. Raises ValueError unless 1 <= n_best <= decode.beam_size.
        """
        beam_size = self.decode.beam_size
        if not 1 <= n_best <= beam_size:
            raise ValueError(
                f"n_best={n_best}: must be between 1 and decode.beam_size={beam_size}; raise decode.beam_size"
            )
        sources = self.sources(texts)
        results = self.results(
            sources, self.search(texts, sources, n_best), progress, names or lines(texts, first_line)
        )
        return [_without_equal_texts(translations) for translations in results]

    def count_tokens(self, texts: list[str]) -> list[int]:
        """Returns the number of source tokens of each text, </s> not counted."""
        return [len(ids) for ids in self.tokenizers.source.encode(texts)] if texts else []

    def sources(self, texts: list[str]) -> list[list[int]]:
        """Returns the ids of each text after those of the tags, none for a text without visible characters."""
        ids = self.tokenizers.source.encode(texts) if texts else []
        tags = tag_ids(self.decode.tags, self.tokenizers.source)
        return [[] if is_empty(text) else tags + own for text, own in zip(texts, ids, strict=True)]

    def results(
        self, sources: list[list[int]], found: Found, progress: Callable[[int], None] | None, names: Sequence[str]
    ) -> list[list[Translation]]:
        """Returns the translations of each source, of what a search found; an empty source has one, "".

        names: of the sources, for warnings.
        """
        results = [[Translation("", 0.0, [], False, False)] for _ in sources]
        done = sum(not ids for ids in sources)
        for batch, of_sources in found:
            for index, hypotheses in zip(batch, of_sources, strict=True):
                truncated = len(sources[index]) > self.decode.max_source_tokens
                results[index] = [
                    Translation(self.tokenizers.target.decode(h.tokens), h.score, h.tokens, truncated, not h.finished)
                    for h in hypotheses
                ]
            done += len(batch)
            if progress is not None:
                progress(done)
        self._warn(sources, results, names)
        return results

    def _warn(self, sources: list[list[int]], results: list[list[Translation]], names: Sequence[str]) -> None:
        limit = self.decode.max_source_tokens
        named = zip(names, sources, strict=True)
        cut = [f"{name} ({len(ids)} tokens)" for name, ids in named if len(ids) > limit]
        if cut:
            warnings.warn(
                f"cut to decode.max_source_tokens={limit} tokens, the rest is not translated: {_list(cut)}",
                stacklevel=4,
            )
        unfinished = [name for name, found in zip(names, results, strict=True) if found[0].unfinished]
        if unfinished:
            warnings.warn(
                f"{len(unfinished)} of {len(results)} translations reached their longest length (decode."
                f"max_length_ratio, decode.max_length_offset) and are unfinished: {_list(unfinished)}",
                stacklevel=4,
            )


def longest_output(decode: DecodeConfig, source_tokens: int) -> int:
    """Returns how many tokens the output of a source may have, </s> counted."""
    return math.ceil(decode.max_length_ratio * source_tokens) + decode.max_length_offset


def lines(texts: list[str], first_line: int) -> list[str]:
    """Returns the names of texts that are lines, for warnings."""
    return [f"line {line}" for line in range(first_line, first_line + len(texts))]


def _without_equal_texts(translations: list[Translation]) -> list[Translation]:
    """Returns the best of each text: one text can be cut into pieces in several ways."""
    by_text: dict[str, Translation] = {}
    for translation in translations:
        by_text.setdefault(translation.text, translation)
    return list(by_text.values())


def _list(lines: list[str]) -> str:
    more = f" and {len(lines) - _LINES_SHOWN} more" if len(lines) > _LINES_SHOWN else ""
    return ", ".join(lines[:_LINES_SHOWN]) + more
