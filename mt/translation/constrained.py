"""Beam search for translations that hold given phrases (Post and Vilar 2018, dynamic beam allocation).

The beam is shared out among hypotheses by how much of the phrases they hold, so that those on the way to all of them
are not crowded out by likelier ones that leave them out. Deviations: a phrase is text, in whatever pieces the model
likes best, and the beam is at least two wider than twice the number of phrases.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from mt.tokenizer import BOS_ID, EOS_ID
from mt.translation.beam import Hypothesis, Model
from mt.translation.phrases import Phrase
from mt.translation.rules import Rule


@dataclass(frozen=True)
class _Partial:
    """A hypothesis on its way: what it wrote, and how far it is with the phrases."""

    tokens: tuple[int, ...] = ()
    total: float = 0.0  # sum of log probabilities
    row: int = 0  # of the model's state
    missing: tuple[int, ...] = ()  # phrases not yet begun
    active: int | None = None  # the phrase it is in the middle of,
    written: int = 0  # and the bytes of it that are there
    ended_phrase: bool = False  # with its last token

    @property
    def lacks_a_phrase(self) -> bool:
        return bool(self.missing) or self.active is not None

    def bank(self, phrases: int) -> int:
        return 2 * (phrases - len(self.missing)) - (self.active is not None)


@dataclass
class _Sentence:
    phrases: Sequence[Phrase]
    limit: int
    width: int
    live: list[_Partial]
    ends: list[tuple[bool, Hypothesis]] = field(default_factory=list)  # whether it lacks a phrase, and it


@torch.inference_mode()
def constrained_search(
    model: Model,
    memory: Tensor,
    layout: Any,
    max_lengths: Sequence[int],
    beam_size: int,
    length_penalty: float,
    phrases: Sequence[Sequence[Phrase]],
    glues: Sequence[bool],
    n_best: int = 1,
    rules: Sequence[Rule] = (),
    lookahead: float = 1.0,
) -> list[list[Hypothesis]]:
    """Returns what beam_search does, for hypotheses that hold all phrases of their sentence.

    phrases: for each sentence; glues: [V], which tokens may not follow the end of a phrase at once, since they would go
    on with its last word. A sentence's longest output grows by the bytes of its phrases, so that there is room. A
    hypothesis that lacks a phrase is never finished; of unfinished ones those with all phrases come first.
    """
    may_not_follow = torch.tensor(glues, device=memory.device)
    sentences = []
    for index, (own, limit) in enumerate(zip(phrases, max_lengths, strict=True)):
        begin = _Partial(row=index, missing=tuple(range(len(own))))
        limit += sum(len(phrase.text) for phrase in own)
        sentences.append(_Sentence(own, limit, max(beam_size, 2 * len(own) + 2), [begin]))
    state = model.start(memory, layout, 1)
    length = 0
    while rows := [(index, partial) for index, s in enumerate(sentences) for partial in s.live]:
        length += 1
        device = memory.device
        if length > 1:
            state.select(torch.tensor([partial.row for _, partial in rows], device=device))
        last = torch.tensor([partial.tokens[-1] if partial.tokens else BOS_ID for _, partial in rows], device=device)
        log_probs = model.step(last, state).log_softmax(1)  # [R, V]
        log_probs[:, :EOS_ID] = -torch.inf
        prefixes = torch.tensor([partial.tokens for _, partial in rows], device=device).view(len(rows), length - 1)
        which = torch.tensor([index for index, _ in rows], device=device)
        for rule in rules:
            rule(log_probs, prefixes, which)
        ended = torch.tensor([partial.ended_phrase for _, partial in rows], device=device)
        log_probs.masked_fill_(ended[:, None] & may_not_follow, -torch.inf)
        first = 0
        for sentence in sentences:
            count = len(sentence.live)
            own, longest = log_probs[first : first + count], length + 1 + lookahead * (sentence.limit - length - 1)
            _advance(sentence, own, first, length, longest, length_penalty, n_best)
            first += count
    for sentence in sentences:
        sentence.ends.sort(key=lambda end: (not end[1].finished, end[0], -end[1].score))
    return [[hypothesis for _, hypothesis in sentence.ends[:n_best]] for sentence in sentences]


def _advance(
    sentence: _Sentence,
    log_probs: Tensor,
    first_row: int,
    length: int,
    longest: float,
    length_penalty: float,
    n_best: int,
) -> None:
    """Replaces the live hypotheses of a sentence by their best continuations. log_probs: [its rows, V].

    length: with the token that is added; longest: what the live ones are thought to grow to.
    """
    going_on: list[_Partial] = []
    complete = 0  # candidates so far that hold all phrases: an end has to be good among those, or it is time
    for partial in _candidates(sentence, log_probs, first_row):
        if partial.tokens[-1] != EOS_ID:
            going_on.append(partial)
        elif complete < sentence.width or length == sentence.limit:
            score = partial.total / length**length_penalty
            sentence.ends.append((False, Hypothesis(list(partial.tokens[:-1]), score, True)))
        complete += not partial.lacks_a_phrase
    kept = _share_out(going_on, len(sentence.phrases), sentence.width)
    if length == sentence.limit:
        sentence.ends += [
            (p.lacks_a_phrase, Hypothesis(list(p.tokens), p.total / length**length_penalty, False)) for p in kept
        ]
        kept = []
    finished = sorted((end.score for _, end in sentence.ends if end.finished), reverse=True)
    if len(finished) >= n_best:  # log probabilities only fall
        kept = [p for p in kept if p.total / longest**length_penalty > finished[n_best - 1]]
    sentence.live = kept


def _candidates(sentence: _Sentence, log_probs: Tensor, first_row: int) -> list[_Partial]:
    """Returns continuations, best first: the likeliest tokens, and all that begin a phrase or go on with one."""
    if not sentence.live:
        return []
    count = min(sentence.width + 1, log_probs.shape[1])
    likely = log_probs.topk(count, dim=1).indices.tolist()
    found = []
    for number, partial in enumerate(sentence.live):
        tokens = set(likely[number]) | {EOS_ID} | {token for _, token, _ in _steps(partial, sentence.phrases)}
        chosen = sorted(tokens)
        gains = log_probs[number, chosen].tolist()
        for token, gain in zip(chosen, gains, strict=True):
            after = _after(partial, token, sentence.phrases)
            if gain > -float("inf") and (token != EOS_ID or not after.lacks_a_phrase):
                found.append(replace(after, total=partial.total + gain, row=first_row + number))
    return sorted(found, key=lambda p: -p.total)


def _steps(partial: _Partial, phrases: Sequence[Phrase]) -> list[tuple[int, int, int]]:
    """Returns (phrase, token, bytes written after it) of all tokens that take the hypothesis further."""
    if partial.active is not None:
        steps = phrases[partial.active].continuations[partial.written]
        return [(partial.active, token, written) for token, written in steps]
    return [(index, token, written) for index in partial.missing for token, written in phrases[index].starts]


def _after(partial: _Partial, token: int, phrases: Sequence[Phrase]) -> _Partial:
    """Returns the hypothesis with one more token; its total and row are the caller's to set."""
    tokens = (*partial.tokens, token)
    missing = partial.missing if partial.active is None else tuple(sorted((*partial.missing, partial.active)))
    possible = [step for step in _steps(partial, phrases) if step[1] == token]
    if not possible:  # a phrase that was begun is missing again
        started = [step for step in _steps(replace(partial, active=None, missing=missing), phrases) if step[1] == token]
        possible = started if partial.active is not None else []
    if not possible:
        return replace(partial, tokens=tokens, missing=missing, active=None, written=0, ended_phrase=False)
    index, _, written = max(possible, key=lambda step: step[2])
    missing = tuple(i for i in missing if i != index)
    ended = written == len(phrases[index].text)
    return replace(
        partial,
        tokens=tokens,
        missing=missing,
        active=None if ended else index,
        written=0 if ended else written,
        ended_phrase=ended,
    )


def _share_out(partials: list[_Partial], phrases: int, width: int) -> list[_Partial]:
    """Returns up to `width` of the hypotheses, which come best first: equally many of each bank, then the best."""
    banks: dict[int, list[_Partial]] = {}
    for partial in partials:
        banks.setdefault(partial.bank(phrases), []).append(partial)
    share = max(1, width // (2 * phrases + 1))
    kept: list[_Partial] = []
    for bank in sorted(banks, reverse=True):  # the furthest first
        kept += banks[bank][: min(share, width - len(kept))]
    chosen = set(map(id, kept))
    kept += [p for p in partials if id(p) not in chosen][: width - len(kept)]
    return kept
