"""Small parts of a search: each lowers the log probabilities of next tokens by what a hypothesis holds so far.

A rule never raises one, so that a search may stop as early as without it. What a rule forbids is -inf; where nothing is
left the hypothesis ends unfinished.
"""

import codecs
from collections import Counter
from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from mt.tokenizer import EOS_ID, PAD_ID, text_of
from mt.translation.phrases import in_word

_CHARACTER_BYTES = 4  # the longest in UTF-8


class Rule(Protocol):
    def __call__(self, log_probs: Tensor, prefixes: Tensor, sentences: Tensor) -> None:
        """Changes log_probs [R, V] in place.

        prefixes: [R, t] int64, the tokens of each row so far, without <s>; sentences: [R] int64, which of the batch.
        """


class NoRepeatedNgram:
    """No run of `size` tokens occurs twice in a hypothesis; </s> is never held back."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __call__(self, log_probs: Tensor, prefixes: Tensor, sentences: Tensor) -> None:
        length = prefixes.shape[1]
        if length < self.size:
            return
        ngrams = prefixes.unfold(1, self.size, 1)  # [R, t - size + 1, size]
        begun = prefixes[:, None, length - self.size + 1 :]  # [R, 1, size - 1]: what the next token would complete
        repeats = (ngrams[:, :, :-1] == begun).all(2)
        log_probs.scatter_(1, ngrams[:, :, -1].masked_fill(~repeats, PAD_ID), -torch.inf)  # <pad> is never chosen


class RepetitionPenalty:
    """Multiplies the log probability of a token that the hypothesis holds already by `factor`, at least 1.

    Keskar et al. 2019 (CTRL) divide positive logits and multiply negative ones; log probabilities are never positive.
    </s> occurs once at most and is not touched.
    """

    def __init__(self, factor: float) -> None:
        self.factor = factor

    def __call__(self, log_probs: Tensor, prefixes: Tensor, sentences: Tensor) -> None:
        if prefixes.shape[1]:
            held = torch.zeros_like(log_probs, dtype=torch.bool).scatter_(1, prefixes, True)
            log_probs.copy_(torch.where(held, log_probs * self.factor, log_probs))


class MinimumLength:
    """</s> comes after at least so many tokens."""

    def __init__(self, tokens: Sequence[int]) -> None:
        self.tokens = torch.tensor(tokens)  # [B], of each sentence of the batch, </s> not counted

    def __call__(self, log_probs: Tensor, prefixes: Tensor, sentences: Tensor) -> None:
        too_short = self.tokens.to(sentences.device)[sentences] > prefixes.shape[1]
        log_probs[:, EOS_ID] = log_probs[:, EOS_ID].masked_fill(too_short, -torch.inf)


class Forbidden:
    """None of these texts is written, in whatever pieces: no token comes that would complete one.

    A text counts where a word begins with it: of a forbidden "tea" there is none in "steam", and one in "team".
    piece_bytes: what each token writes, as the tokenizer has it.
    """

    def __init__(self, texts: Sequence[str], piece_bytes: Sequence[bytes]) -> None:
        assert all(texts)
        self.texts, self.piece_bytes = [(text.encode(), in_word(text[0])) for text in texts], piece_bytes
        self.longest = max((len(text) for text, _ in self.texts), default=0)
        self._beginnings = {text[:end] for text, _ in self.texts for end in range(1, len(text))}
        self._completing: dict[tuple[bytes, bytes, bytes], list[int]] = {}  # by what matters of the text before

    def __call__(self, log_probs: Tensor, prefixes: Tensor, sentences: Tensor) -> None:
        for row, tokens in enumerate(prefixes.tolist()):
            written = b"".join([self.piece_bytes[token] for token in tokens])
            pending = _begun_character(written)
            behind, tail = self._tail(text_of(written).encode())  # bytes that are no text may stand within a text
            key = behind, tail, pending
            if key not in self._completing:
                before = behind + tail
                self._completing[key] = [
                    token
                    for token, piece in enumerate(self.piece_bytes)
                    if self.in_text(before + text_of(pending + piece).encode(), len(before), len(behind))
                ]
            log_probs[row, self._completing[key]] = -torch.inf

    def in_text(self, written: bytes, old: int = 0, first: int = 0) -> bool:
        """Returns whether a text stands in what is written, of which the first `old` bytes are no news.

        It begins at byte `first` or later.
        """
        for text, begins_word in self.texts:
            place = written.find(text, max(first, old - len(text) + 1))
            while place >= 0:
                if not (begins_word and _ends_in_word(written[:place])):
                    return True
                place = written.find(text, place + 1)
        return False

    def _tail(self, written: bytes) -> tuple[bytes, bytes]:
        """Returns a letter if there is one before it, else nothing, and the longest end that begins a text."""
        place = max(0, len(written) - self.longest + 1)
        while place < len(written) and written[place:] not in self._beginnings:
            place += 1
        return b"a" if _ends_in_word(written[:place]) else b"", written[place:]


def _begun_character(written: bytes) -> bytes:
    """Returns the bytes at the end that more bytes could make a character of."""
    decoder = codecs.getincrementaldecoder("utf-8")("ignore")
    decoder.decode(written[-_CHARACTER_BYTES:])
    return decoder.getstate()[0]


def _ends_in_word(written: bytes) -> bool:
    last = written[-_CHARACTER_BYTES:].decode("utf-8", errors="ignore")[-1:]
    return last != "" and in_word(last)


class TargetPrefix:
    """Every hypothesis begins with the prefix of its sentence, whatever other rules say; after it those apply.

    A prefix is given as tokens, and as tokens that may stand in for its last one, since they begin with it and go on:
    to those the other rules apply as well.
    """

    def __init__(
        self, tokens: Sequence[Sequence[int]], longer: Sequence[Sequence[int]], others: Sequence[Rule] = ()
    ) -> None:
        self.tokens, self.longer, self.others = tokens, longer, others  # tokens, longer: of each sentence

    def __call__(self, log_probs: Tensor, prefixes: Tensor, sentences: Tensor) -> None:
        position, held = prefixes.shape[1], dict[int, tuple[int, float]]()
        for row, sentence in enumerate(sentences.tolist()):
            if position < len(self.tokens[sentence]):
                token = self.tokens[sentence][position]
                held[row] = token, log_probs[row, token].item()
        for rule in self.others:
            rule(log_probs, prefixes, sentences)
        for row, (token, value) in held.items():
            sentence = int(sentences[row])
            is_last = position == len(self.tokens[sentence]) - 1
            longer = list(self.longer[sentence]) if is_last else []
            values = log_probs[row, longer]
            log_probs[row] = -torch.inf
            log_probs[row, longer] = values
            log_probs[row, token] = value


class Diversity:
    """Lowers a token's log probability by `penalty` for each hypothesis of an earlier group that has it in this place.

    Diverse beam search (Vijayakumar et al. 2016): groups of beams are searched one after the other, since a group
    depends on those before it alone; call `next_group` between them. </s> is not counted.
    """

    def __init__(self, penalty: float) -> None:
        self.penalty = penalty
        self._earlier: Counter[tuple[int, int, int]] = Counter()  # position, sentence, token
        self._own: Counter[tuple[int, int, int]] = Counter()

    def next_group(self) -> None:
        self._earlier += self._own
        self._own = Counter()

    def __call__(self, log_probs: Tensor, prefixes: Tensor, sentences: Tensor) -> None:
        position, numbers = prefixes.shape[1], sentences.tolist()
        if position:
            last = zip(numbers, prefixes[:, -1].tolist(), strict=True)
            self._own.update((position - 1, s, t) for s, t in last if t != EOS_ID)  # which fills rows of no hypothesis
        for (place, sentence, token), count in self._earlier.items():
            if place == position:
                log_probs[sentences == sentence, token] -= self.penalty * count
