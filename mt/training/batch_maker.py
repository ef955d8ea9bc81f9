"""From pairs of a corpus to a batch: stored pieces or new ones, changes to the text, tags, lost final stops."""

import random
from collections.abc import Mapping

import numpy as np

from mt.config import TrainConfig
from mt.data.augmentation import Augmenter, is_on, joined, partners
from mt.data.batch import Batch, pack
from mt.data.encoded import EncodedCorpus, gather
from mt.data.tags import CorpusTags
from mt.tokenizer import Tokenizer, TokenizerPair

Side = tuple[np.ndarray, np.ndarray, np.ndarray]  # tokens, and where each sentence begins in them, and its length
Texts = Mapping[int, tuple[str, str]]  # by place in the batch, instead of those of the corpus
FINAL_STOPS = ".!?。！？"


class BatchMaker:
    """Makes batches of a training corpus as the settings say. With stream_tokens they have one size, as `pack` does."""

    def __init__(
        self, corpus: EncodedCorpus, tokenizers: TokenizerPair, config: TrainConfig, stream_tokens: int
    ) -> None:
        self.corpus, self.tokenizers, self.stream_tokens = corpus, tokenizers, stream_tokens
        self.strip_probability = config.data.strip_final_stop_probability
        self.sampling_alpha = config.tokenizer.bpe_dropout or config.tokenizer.unigram_alpha
        self.augmenter = Augmenter(config.data.augmentation) if is_on(config.data.augmentation) else None
        self.most_tokens = config.data.cleaning.max_tokens  # of what changes make
        self.languages = [
            (own.source_language or config.data.source_language, own.target_language or config.data.target_language)
            for own in config.data.train.values()
        ]
        self.tags = CorpusTags(config.data.train, corpus.corpus_pairs, tokenizers.source, "train")
        self.source_stops, self.target_stops = _stop_ids(tokenizers.source), _stop_ids(tokenizers.target)

    def source_lengths(self) -> np.ndarray:
        """Returns the number of source tokens of each pair of the corpus, tags counted: int32 [pairs]."""
        if not self.tags.counts.any():
            return self.corpus.source_lengths
        counts = np.repeat(self.tags.counts, self.corpus.corpus_pairs)
        return self.corpus.source_lengths + counts.astype(np.int32)

    def make(self, pairs: np.ndarray, generator: np.random.Generator) -> Batch:
        """Returns the batch of the given pairs; everything that is left to chance comes from the generator."""
        dropout_seed = int(generator.integers(2**63))
        changed: Texts = {}
        if self.augmenter is not None:
            pairs, changed = self._augmented(self.augmenter, pairs, generator)
        if self.sampling_alpha is None:
            source, target = self._stored(pairs, changed)
        else:
            source, target = self._sampled(pairs, changed, self.sampling_alpha, generator)
        if self.strip_probability:
            source, target = self._stripped(source, target, generator.random(len(pairs)) < self.strip_probability)
        if self.tags.counts.any():
            source = self._tagged(source, pairs)
        (source_words, source_starts, source_lengths), (target_words, target_starts, target_lengths) = source, target
        order = np.lexsort((source_lengths, target_lengths))  # equal lengths side by side: attention needs no padding
        source_lengths, target_lengths = source_lengths[order], target_lengths[order]
        return pack(
            gather(source_words, source_starts[order], source_lengths),
            source_lengths,
            gather(target_words, target_starts[order], target_lengths),
            target_lengths,
            pairs[order],
            self.stream_tokens,
            dropout_seed,
        )

    def _augmented(
        self, augmenter: Augmenter, pairs: np.ndarray, generator: np.random.Generator
    ) -> tuple[np.ndarray, Texts]:
        """Returns the pairs without those that became the other half of another one, and the texts that changed."""
        own = random.Random(int(generator.integers(2**63)))
        going_on, changes = augmenter.draw(len(pairs), generator)
        corpora = self.tags.corpora(pairs)
        others = np.full(len(pairs), -1)
        if going_on.any():
            tokens = np.maximum(self.corpus.source_lengths[pairs], self.corpus.target_lengths[pairs])
            others = partners(going_on, corpora, tokens, self.most_tokens, own)
        kept = np.flatnonzero(others > -2)
        changed = {}
        touched = (others[kept] >= 0) | changes[:, kept].any(axis=0)
        for place in np.flatnonzero(touched).tolist():
            index = int(kept[place])
            before = pair = self.corpus.texts(int(pairs[index]))
            if others[index] >= 0:
                second = self.corpus.texts(int(pairs[others[index]]))
                pair = joined(pair, second, self.languages[corpora[index]])
            pair = augmenter.change(pair, changes[:, index], own)
            if pair != before:
                changed[place] = pair
        return pairs[kept], changed

    def _stored(self, pairs: np.ndarray, changed: Texts) -> tuple[Side, Side]:
        c = self.corpus
        source_lengths, target_lengths = c.source_lengths[pairs], c.target_lengths[pairs]
        source = c.source_tokens(pairs), np.cumsum(source_lengths) - source_lengths, source_lengths
        target = c.target_tokens(pairs), np.cumsum(target_lengths) - target_lengths, target_lengths
        if not changed:
            return source, target
        ids = [
            tokenizer.encode([texts[side] for texts in changed.values()])
            for side, tokenizer in enumerate((self.tokenizers.source, self.tokenizers.target))
        ]
        # what became too long stays as it was: a batch has to fit into memory
        fitting = [max(map(len, both)) <= self.most_tokens for both in zip(*ids, strict=True)]
        places = [place for place, fits in zip(changed, fitting, strict=True) if fits]
        new = [[own for own, fits in zip(side, fitting, strict=True) if fits] for side in ids]
        return _replaced(source, places, new[0]), _replaced(target, places, new[1])

    def _sampled(
        self, pairs: np.ndarray, changed: Texts, alpha: float, generator: np.random.Generator
    ) -> tuple[Side, Side]:
        """Cuts the sentences into pieces anew. (The plan goes by their usual lengths.)"""
        texts = [changed.get(place) or self.corpus.texts(int(pair)) for place, pair in enumerate(pairs)]
        sides = []
        for own, tokenizer in zip(
            zip(*texts, strict=True), (self.tokenizers.source, self.tokenizers.target), strict=True
        ):
            sides.append(_laid_out(tokenizer.sample(list(own), alpha, int(generator.integers(2**32)))))
        return sides[0], sides[1]

    def _stripped(self, source: Side, target: Side, stripped: np.ndarray) -> tuple[Side, Side]:
        """Takes the final stops from both sides of the pairs that have them on both. stripped: bool [pairs]."""
        for (words, starts, lengths), stops in ((source, self.source_stops), (target, self.target_stops)):
            stripped = stripped & (lengths > 1) & np.isin(words[starts + lengths - 1], stops)
        return (*source[:2], source[2] - stripped), (*target[:2], target[2] - stripped)

    def _tagged(self, source: Side, pairs: np.ndarray) -> Side:
        """Puts the tags of its corpus before each source."""
        corpora = self.tags.corpora(pairs)
        counts, words = self.tags.counts[corpora], gather(*source)
        lengths = source[2] + counts
        places = np.repeat(np.cumsum(source[2]) - source[2], counts)
        words = np.insert(words, places, np.concatenate([self.tags.ids[corpus] for corpus in corpora]))
        return words, np.cumsum(lengths) - lengths, lengths


def _laid_out(ids: list[list[int]]) -> Side:
    lengths = np.array([len(i) for i in ids], dtype=np.int64)
    return np.array([i for sentence in ids for i in sentence]), np.cumsum(lengths) - lengths, lengths


def _replaced(side: Side, places: list[int], ids: list[list[int]]) -> Side:
    """Returns a side with other pieces for the sentences at some places."""
    words, lengths = gather(*side), side[2].astype(np.int64)
    starts = np.cumsum(lengths) - lengths
    new_words, new_starts, new_lengths = _laid_out(ids)
    starts[places], lengths[places] = len(words) + new_starts, new_lengths
    return np.concatenate([words, new_words.astype(words.dtype)]), starts, lengths


def _stop_ids(tokenizer: Tokenizer) -> np.ndarray:
    """Returns the ids of pieces that are nothing but one final stop."""
    pieces = tokenizer.pieces(list(range(tokenizer.size)))
    return np.array([index for index, piece in enumerate(pieces) if len(piece) == 1 and piece in FINAL_STOPS], np.int64)
