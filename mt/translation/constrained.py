"""Beam search for translations that hold given phrases (Post and Vilar 2018, dynamic beam allocation).

The beam is shared out among hypotheses by how much of the phrases they hold, so that those on the way to all of them
are not crowded out by likelier ones that leave them out. Deviations: a phrase is text, in whatever pieces the model
likes best; phrases may overlap; and since a share is for phrases, not for their tokens, the hypothesis that is furthest
in a phrase keeps a place of its own. For that the beam is at least two wider than three times the number of phrases.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from mt.rows import NO_ROW
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
    missing: tuple[int, ...] = ()  # phrases that it does not hold
    ended: tuple[int, ...] = ()  # phrases that its last token ended: missing again if a letter follows
    begun: tuple[tuple[int, int], ...] = ()  # missing or ended phrases that its end begins, and how many bytes of each

    @property
    def under_way(self) -> list[tuple[int, int]]:
        """The missing ones of the phrases begun."""
        return [(phrase, written) for phrase, written in self.begun if phrase in self.missing]

    @property
    def furthest(self) -> int:
        return max((written for _, written in self.under_way), default=-1)

    def bank(self, phrases: int) -> int:
        return 2 * (phrases - len(self.missing)) + bool(self.under_way)


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

    phrases: for each sentence; glues: [V], which tokens go on with a word, so that a phrase before them is none. A
    sentence's longest output grows by the bytes of its phrases and the spaces before them, so that there is room. A
    hypothesis that lacks a phrase is never finished; of unfinished ones those with all phrases come first.
    """
    glue = torch.tensor(glues, device=memory.device)
    sentences = []
    for index, (own, limit) in enumerate(zip(phrases, max_lengths, strict=True)):
        begin = _Partial(row=index, missing=tuple(range(len(own))))
        limit += sum(len(phrase.text) + 1 for phrase in own)
        sentences.append(_Sentence(own, limit, max(beam_size, 3 * len(own) + 2), [begin]))
    state, device = model.start(memory, layout), memory.device
    length, lines = 0, list(range(len(sentences)))  # of the state's sentences
    while rows := [(index, partial) for index, s in enumerate(sentences) for partial in s.live]:
        length += 1
        if length > 1:
            live = [index for index, s in enumerate(sentences) if s.live]
            parents = [torch.tensor([partial.row for partial in sentences[index].live]) for index in live]
            chosen = None if live == lines else torch.tensor([lines.index(index) for index in live], device=device)
            state.select(pad_sequence(parents, batch_first=True, padding_value=NO_ROW).to(device), chosen)
            lines = live
        last = torch.tensor([partial.tokens[-1] if partial.tokens else BOS_ID for _, partial in rows], device=device)
        log_probs = model.step(last, state).log_softmax(1)  # [R, V]
        log_probs[:, :EOS_ID] = -torch.inf
        prefixes = torch.tensor([partial.tokens for _, partial in rows], dtype=torch.int64, device=device)
        which = torch.tensor([index for index, _ in rows], device=device)
        for rule in rules:
            rule(log_probs, prefixes.view(len(rows), length - 1), which)
        first = 0
        for sentence in sentences:
            count = len(sentence.live)
            if count:
                candidates = _candidates(sentence, log_probs[first : first + count], first, glue)
                longest = length + 1 + lookahead * (sentence.limit - length - 1)
                _advance(sentence, candidates, length, longest, length_penalty, n_best)
            first += count
    for sentence in sentences:
        sentence.ends.sort(key=lambda end: (not end[1].finished, end[0], -end[1].score))
    return [[hypothesis for _, hypothesis in sentence.ends[:n_best]] for sentence in sentences]


def _advance(
    sentence: _Sentence, candidates: list[_Partial], length: int, longest: float, length_penalty: float, n_best: int
) -> None:
    """Replaces the live hypotheses of a sentence by the best of their continuations [best first].

    length: with the token that is added; longest: what the live ones are thought to grow to.
    """

    def end(partial: _Partial, tokens: tuple[int, ...], finished: bool) -> None:
        hypothesis = Hypothesis(list(tokens), partial.total / length**length_penalty, finished)
        sentence.ends.append((bool(partial.missing), hypothesis))

    going_on: list[_Partial] = []
    complete = 0  # candidates so far that hold all phrases: an end has to be good among those, or it is time
    for partial in candidates:
        if len(partial.tokens) < length:  # no token may follow
            end(partial, partial.tokens, False)
        elif partial.tokens[-1] != EOS_ID:
            going_on.append(partial)
        elif complete < sentence.width or (length == sentence.limit and sentence.phrases):
            end(partial, partial.tokens[:-1], True)
        complete += not partial.missing
    kept = _share_out(going_on, len(sentence.phrases), sentence.width)
    if length == sentence.limit:
        for partial in kept:
            end(partial, partial.tokens, False)
        kept = []
    finished = sorted((end.score for _, end in sentence.ends if end.finished), reverse=True)
    if len(finished) >= n_best:  # log probabilities only fall
        kept = [p for p in kept if p.total / longest**length_penalty > finished[n_best - 1]]
    sentence.live = kept


def _candidates(sentence: _Sentence, log_probs: Tensor, first_row: int, glue: Tensor) -> list[_Partial]:
    """Returns continuations, best first: the likeliest tokens, and all that begin a phrase or go on with one.

    log_probs: [its rows, V]. A hypothesis that no token may continue stays as it is.
    """
    likely = log_probs.topk(min(sentence.width + 1, log_probs.shape[1]), dim=1).indices.tolist()
    apart = log_probs.masked_fill(glue, -torch.inf).argmax(1).tolist()
    found = []
    for number, partial in enumerate(sentence.live):
        tokens = {*likely[number], EOS_ID, *_onward(partial, sentence.phrases)}
        if partial.ended:  # one that keeps what is written
            tokens.add(apart[number])
        chosen = sorted(tokens)
        gains = log_probs[number, chosen].tolist()
        own = []
        for token, gain in zip(chosen, gains, strict=True):
            after = _after(partial, token, sentence.phrases, bool(glue[token]))
            if gain > -float("inf") and (token != EOS_ID or not after.missing):
                own.append(replace(after, total=partial.total + gain, row=first_row + number))
        found += own or [partial]
    return sorted(found, key=lambda p: -p.total)


def _onward(partial: _Partial, phrases: Sequence[Phrase]) -> set[int]:
    """Returns the tokens that go on with a phrase under way; where there is none, those that begin a missing one."""
    steps = [phrases[index].continuations[written] for index, written in partial.under_way]
    return {token for own in steps or [phrases[index].starts for index in partial.missing] for token, _ in own}


def _after(partial: _Partial, token: int, phrases: Sequence[Phrase], glue: bool) -> _Partial:
    """Returns the hypothesis with one more token, which goes on with a word if it is glue; without its gain and row."""
    lacked = {*partial.missing, *(partial.ended if glue else ())}
    steps = [(index, step) for index in lacked for step in phrases[index].starts]
    steps += [
        (index, step)
        for index, written in partial.begun
        if index in lacked
        for step in phrases[index].continuations[written]
    ]
    begun = {(index, written) for index, (own, written) in steps if own == token}
    ended = {index for index, written in begun if written == len(phrases[index].text)}
    return replace(
        partial,
        tokens=(*partial.tokens, token),
        missing=tuple(sorted(lacked - ended)),
        ended=tuple(sorted(ended)),
        begun=tuple(sorted((index, written) for index, written in begun if written < len(phrases[index].text))),
    )


def _share_out(partials: list[_Partial], phrases: int, width: int) -> list[_Partial]:
    """Returns up to `width` of the hypotheses, which come best first.

    Of each bank equally many and the one that is furthest in a phrase, since a bank's best may always be those that
    have just begun one; then the best of all.
    """
    banks: dict[int, list[_Partial]] = {}
    for partial in partials:
        banks.setdefault(partial.bank(phrases), []).append(partial)
    share = max(1, (width - phrases) // (2 * phrases + 1))
    kept: dict[int, _Partial] = {}
    for bank, own in banks.items():
        furthest = [max(own, key=lambda p: p.furthest)] if bank % 2 else []
        kept.update({id(p): p for p in (*own[:share], *furthest)})
    for partial in partials:
        if len(kept) >= width:
            break
        kept.setdefault(id(partial), partial)
    return list(kept.values())
