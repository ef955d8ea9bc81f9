"""Small parts of a search: each lowers the log probabilities of next tokens by what a hypothesis holds so far.

A rule never raises one, so that a search may stop as early as without it. What a rule forbids is -inf; where nothing is
left the hypothesis ends unfinished.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from mt.tokenizer import EOS_ID, PAD_ID


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
    """None of these runs of tokens occurs in a hypothesis."""

    def __init__(self, phrases: Sequence[Sequence[int]]) -> None:
        assert all(phrases)
        self.phrases = phrases

    def __call__(self, log_probs: Tensor, prefixes: Tensor, sentences: Tensor) -> None:
        for *head, last in self.phrases:
            if not head:
                log_probs[:, last] = -torch.inf
            elif prefixes.shape[1] >= len(head):
                begun = (prefixes[:, -len(head) :] == torch.tensor(head, device=prefixes.device)).all(1)
                log_probs[:, last] = log_probs[:, last].masked_fill(begun, -torch.inf)


class TargetPrefix:
    """Every hypothesis begins with the prefix of its sentence, whatever other rules say; after it those apply.

    A prefix is given as tokens, and then a choice of tokens for one more position (empty: no choice): the end of a
    text prefix may be the beginning of several pieces.
    """

    def __init__(
        self, tokens: Sequence[Sequence[int]], choices: Sequence[Sequence[int]], others: Sequence[Rule] = ()
    ) -> None:
        self.tokens, self.choices, self.others = tokens, choices, others  # tokens, choices: of each sentence

    def __call__(self, log_probs: Tensor, prefixes: Tensor, sentences: Tensor) -> None:
        position, held = prefixes.shape[1], dict[int, tuple[list[int], Tensor]]()
        for row, sentence in enumerate(sentences.tolist()):
            tokens, choice = self.tokens[sentence], self.choices[sentence]
            allowed = [tokens[position]] if position < len(tokens) else list(choice) * (position == len(tokens))
            if allowed:
                held[row] = allowed, log_probs[row, allowed]
        for rule in self.others:
            rule(log_probs, prefixes, sentences)
        for row, (allowed, values) in held.items():
            log_probs[row] = -torch.inf
            log_probs[row, allowed] = values


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
            self._own.update((position - 1, s, t) for s, t in zip(numbers, prefixes[:, -1].tolist(), strict=True))
        for (place, sentence, token), count in self._earlier.items():
            if place == position:
                log_probs[sentences == sentence, token] -= self.penalty * count
