"""Many texts as one array of piece ids, without a Python object for each id where that can be avoided."""

from itertools import chain

import numpy as np

from mt.tokenizer import Tokenizer, TokenizerPair, without_separators

_WORDS = 300_000  # remembered at most, in about 60 MB; then it begins anew


def ids_dtype(tokenizers: TokenizerPair) -> np.dtype:
    """Returns the smaller of uint16 and int32 that holds the ids of both sides."""
    return np.dtype(np.uint16 if max(tokenizers.source.size, tokenizers.target.size) <= 1 << 16 else np.int32)


class FlatEncoder:
    """Encodes many texts at once, as the tokenizer's `encode` does.

    Where a text's pieces are those of its words (BPE), each word is cut once and then looked up: most of a corpus is
    words that came before, so that this takes a quarter of the time.
    """

    def __init__(self, tokenizer: Tokenizer, dtype: np.dtype, threads: int) -> None:
        self.tokenizer, self.dtype, self.threads = tokenizer, dtype, threads
        self._words: dict[str, bytes] | None = {} if tokenizer.cuts_each_word_alone() else None

    def encode(self, texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
        """Returns the ids of all texts, one after the other, and the number of each text's: int64 [texts]."""
        if self._words is None:
            return self._flat(self.tokenizer.encode(texts, self.threads))
        words: list[str] = []
        starts = np.empty(len(texts), dtype=np.int64)  # of each text's words
        for number, text in enumerate(map(without_separators, texts)):
            starts[number] = len(words)
            words += text.split(" ") if _is_plain(text) else [text]
        if not words:
            return np.empty(0, self.dtype), starts
        known = self._known(words)
        found = [known[word] for word in words]
        word_lengths = np.fromiter(map(len, found), np.int64, len(found)) // self.dtype.itemsize
        return np.frombuffer(b"".join(found), self.dtype), np.add.reduceat(word_lengths, starts)

    def _known(self, words: list[str]) -> dict[str, bytes]:
        """Returns the ids of words, these among them."""
        if len(self._words) > _WORDS:
            self._words = {}
        new = list(set(words) - self._words.keys())
        ids, lengths = self._flat(self.tokenizer.encode(new, self.threads))
        content, ends = ids.tobytes(), np.cumsum(lengths) * self.dtype.itemsize
        begins = ends - lengths * self.dtype.itemsize
        self._words.update(
            (word, content[begin:end]) for word, begin, end in zip(new, begins.tolist(), ends.tolist(), strict=True)
        )
        return self._words

    def _flat(self, ids: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
        lengths = np.fromiter(map(len, ids), np.int64, len(ids))
        return np.fromiter(chain.from_iterable(ids), self.dtype, int(lengths.sum())), lengths


def _is_plain(text: str) -> bool:
    """Returns whether no word is empty and none holds SentencePiece's own sign for a space, which can be stripped."""
    return "  " not in text and text == text.strip(" ") and "▁" not in text
