"""What a run would train on, without training: the funnel of cleaning, samples of it, lengths and tokens.

Pairs stream through; what is kept is counts, samples, and what the steps themselves keep (hashes of duplicates).
"""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from mt.config import DataConfig
from mt.data.clean import SCORES, TOKENS, Cleaner, Pair, clean_corpora, in_batches, token_reasons
from mt.data.histogram import Histogram
from mt.data.own_settings import own_settings
from mt.tokenizer import Tokenizer, TokenizerPair

_SAMPLE_CHARACTERS = 300
_CONTEXT = 60  # characters of a repaired text before the first that changed


@dataclass(frozen=True)
class FunnelRow:
    """One step: how many texts it repaired or how many pairs it dropped, and the pairs left after it.

    The first one is reading, which drops what a file holds without a translation.
    """

    step: str
    repaired: int
    dropped: int
    left: int


class Samples:
    """A few of the pairs that each reason dropped, and of the texts that each repair changed, drawn by a seed.

    Each is a uniform sample, whatever there is of other kinds.
    """

    def __init__(self, size: int, seed: int) -> None:
        self.size, self.seed = size, seed
        self.seen: Counter[str] = Counter()
        self.drawn: dict[str, list[Pair]] = {}  # source and target, or before and after
        self._generators: dict[str, random.Random] = {}

    def dropped(self, reason: str, pair: Pair) -> None:
        """Notes a pair that was dropped."""
        place = self._place(reason)
        if place is not None:
            self._keep(reason, place, (_beginning(pair[0]), _beginning(pair[1])))

    def repaired(self, kind: str, before: str, after: str) -> None:
        """Notes a text that was changed."""
        place = self._place(kind)
        if place is not None:
            first = next((i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), len(after))
            start = max(0, first - _CONTEXT)
            self._keep(kind, place, (_beginning(before[start:]), _beginning(after[start:])))

    def _place(self, kind: str) -> int | None:
        """Returns where in the sample the next one belongs, None for nowhere (reservoir sampling, Vitter, 1985)."""
        self.seen[kind] += 1
        if self.seen[kind] <= self.size:
            return self.seen[kind] - 1
        generator = self._generators.setdefault(kind, random.Random(f"{self.seed} {kind}"))
        place = generator.randrange(self.seen[kind])
        return place if place < self.size else None

    def _keep(self, kind: str, place: int, texts: Pair) -> None:
        self.drawn.setdefault(kind, [("", "")] * self.size)[place] = texts


class Tokens:
    """The tokens of one side: how many, which pieces of the vocabulary, and what has no piece."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.pieces = np.zeros(tokenizer.size, dtype=np.int64)  # how often each occurs
        # A character without a piece is spelled in UTF-8 bytes; one of them, no continuation byte, begins it.
        self._begins_spelled = np.array(
            [tokenizer.is_byte(i) and tokenizer.piece_bytes[i][0] & 0xC0 != 0x80 for i in range(tokenizer.size)]
        )
        self.characters = 0

    def add(self, ids: list[list[int]], characters: int) -> None:
        """Counts the tokens of more texts, which have so many characters."""
        flat = np.fromiter((i for one in ids for i in one), np.int64)
        self.pieces += np.bincount(flat, minlength=len(self.pieces))
        self.characters += characters

    @property
    def count(self) -> int:
        """Returns the number of tokens."""
        return int(self.pieces.sum())

    @property
    def spelled(self) -> int:
        """Returns the number of characters that have no piece, and are spelled in bytes."""
        return int(self.pieces[self._begins_spelled].sum())


@dataclass(frozen=True)
class Survey:
    """What is known of data.train after cleaning."""

    funnel: list[FunnelRow]
    dropped: Counter[str]  # pairs by reason
    repaired: Counter[str]  # texts by kind
    samples: Samples
    characters: Histogram  # of the pairs that are left
    token_lengths: Histogram | None  # None without tokenizers
    tokens: tuple[Tokens, Tokens] | None  # of source and target

    @property
    def read(self) -> int:
        return self.funnel[0].left

    @property
    def left(self) -> int:
        return self.funnel[-1].left


def survey(
    data: DataConfig,
    tokenizers: TokenizerPair | None,
    samples: int,
    seed: int,
    progress: Callable[[int], None] | None = None,
) -> Survey:
    """Returns what cleaning makes of data.train; `samples` of each kind are drawn by `seed`.

    `progress` gets the number of pairs read so far. Raises ValueError as training does for bad corpora and settings.
    """
    drawn = Samples(samples, seed)
    cleaner = Cleaner(data, drawn)
    characters = Histogram("characters")
    token_lengths = tokens = None
    if tokenizers is not None:
        token_lengths, tokens = Histogram("tokens"), (Tokens(tokenizers.source), Tokens(tokenizers.target))
    for name, corpus in data.train.items():
        own = own_settings(data, corpus, f"data.train.{name}")
        for batch in in_batches(clean_corpora({name: corpus}, data, cleaner)):
            if tokenizers is not None:
                batch = _tokenised(batch, tokenizers, own, cleaner, token_lengths, tokens)
            characters.add(*_lengths(batch))
            if progress is not None:
                progress(cleaner.left["read"])
    funnel = _funnel(cleaner, tokenizers)
    return Survey(funnel, cleaner.dropped, cleaner.repaired, drawn, characters, token_lengths, tokens)


def _tokenised(
    batch: list[Pair],
    tokenizers: TokenizerPair,
    data: DataConfig,
    cleaner: Cleaner,
    token_lengths: Histogram,
    tokens: tuple[Tokens, Tokens],
) -> list[Pair]:
    """Returns the pairs that fit by their tokens, which are counted."""
    texts = [[pair[side] for pair in batch] for side in (0, 1)]
    ids = [tokenizer.encode(one) for tokenizer, one in zip((tokenizers.source, tokenizers.target), texts, strict=True)]
    lengths = [np.fromiter(map(len, one), np.int64, len(one)) for one in ids]
    fits = np.ones(len(batch), dtype=bool)
    for reason, drops in token_reasons(*lengths, data.cleaning).items():
        for i in np.flatnonzero(drops):
            cleaner.drop(TOKENS, reason, batch[i])
        fits &= ~drops
    kept = np.flatnonzero(fits).tolist()
    for side in (0, 1):
        tokens[side].add([ids[side][i] for i in kept], sum(len(texts[side][i]) for i in kept))
    token_lengths.add(lengths[0][fits], lengths[1][fits])
    cleaner.left[TOKENS] += len(kept)
    return [batch[i] for i in kept]


def _lengths(batch: list[Pair]) -> tuple[np.ndarray, np.ndarray]:
    return tuple(np.fromiter((len(pair[side]) for pair in batch), np.int64, len(batch)) for side in (0, 1))


def _funnel(cleaner: Cleaner, tokenizers: TokenizerPair | None) -> list[FunnelRow]:
    """Returns a row for each step; those that single corpora have come behind those that all have."""
    left = cleaner.left["read"]
    without_pair = cleaner.dropped.total() - cleaner.lost.total()  # what no step dropped: units of the files
    rows = [FunnelRow("read", 0, without_pair, left)]
    names = [*([SCORES] if SCORES in cleaner.left else []), *(step.name for step in cleaner.steps)]
    names += [name for name in cleaner.left if name not in ("read", TOKENS, *names)]
    for name in [*names, *([TOKENS] if tokenizers else [])]:
        repaired = sum(cleaner.repaired[f"{side} {name}"] for side in ("source", "target"))
        left -= cleaner.lost[name]
        rows.append(FunnelRow(name, repaired, cleaner.lost[name], left))
    return rows


def _beginning(text: str) -> str:
    return text if len(text) <= _SAMPLE_CHARACTERS else text[:_SAMPLE_CHARACTERS] + "..."
