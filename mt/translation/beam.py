"""Beam search over a batch of sentences, and greedy search as beam 1.

The model is known only through start(memory, layout) -> state, step(tokens, state) -> logits and
state.select(rows, sentences), so that an ensemble or a table in a test fits the same. Rows are the live hypotheses.

score = sum of log probabilities / length^alpha, where length counts </s>; alpha is the length penalty. A hypothesis is
given up when it could not win even if all further tokens were certain. How many those may be is `lookahead`, a share of
the length that is left: with 1 the search stops only when no live hypothesis can still win (Huang et al. 2017, "When to
Finish?"), with 0 when none would win by ending at once. One that is `margin` nats less likely than the n_best-th of its
step is given up as well (Freitag and Al-Onaizan 2017, absolute threshold pruning).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from mt.rows import NO_ROW, number_rows
from mt.tokenizer import BOS_ID, EOS_ID
from mt.translation.rules import Rule

MOST_LIVE = 0.9  # a smaller share of sentences that are not done is taken out of the batch
NO_TOKEN = -1  # stands for the next token of a hypothesis that no token may continue


class State(Protocol):
    def select(self, rows: Tensor, sentences: Tensor | None = None) -> None: ...


class Model(Protocol):
    def start(self, memory: Tensor, layout: Any) -> State: ...

    def step(self, tokens: Tensor, state: State) -> Tensor: ...


@dataclass(frozen=True)
class Hypothesis:
    tokens: list[int]  # without <s> and </s>
    score: float  # sum of log probabilities in nats, </s> included, / length^alpha
    finished: bool  # ended in </s>; False: reached its longest length, or no token was allowed


@torch.inference_mode()
def beam_search(
    model: Model,
    memory: Tensor,
    layout: Any,
    max_lengths: Sequence[int],
    beam_size: int,
    length_penalty: float,
    n_best: int = 1,
    rules: Sequence[Rule] = (),
    lookahead: float = 1.0,
    margin: float = torch.inf,
) -> list[list[Hypothesis]]:
    """Returns for each of B sentences up to n_best different hypotheses: finished ones first, then by falling score.

    memory [N_src, D] and layout are those of the encoder; max_lengths [B] are the longest outputs in tokens, </s>
    counted. <pad>, <unk> and <s> are never chosen. Beam 1 is greedy search and returns one hypothesis. What is found
    for a sentence depends on that sentence alone, never on its neighbours in the batch. `rules` change the log
    probabilities at each step, and with them the scores, one after the other.
    Raises ValueError unless 1 <= n_best <= beam_size.
    """
    if not 1 <= n_best <= beam_size:
        raise ValueError(f"n_best={n_best}: must be between 1 and decode.beam_size={beam_size}; raise decode.beam_size")
    assert min(max_lengths, default=1) >= 1 and length_penalty >= 0
    trace = _Trace(len(max_lengths), length_penalty, rules, memory.device)
    if max_lengths:
        beams = _Beams.start(max_lengths, n_best, memory.device)
        state = model.start(memory, layout)
        if beam_size == 1:
            _search_greedily(model, state, beams, trace)
        else:
            _search(model, state, beams, beam_size, trace, lookahead, margin)
    return trace.best(n_best)


@dataclass
class _Beams:
    """Up to w live hypotheses of each of A sentences, best first. Sentences that are done leave, a few at a time."""

    sentence: Tensor  # [A] int64: which of the batch
    limit: Tensor  # [A] int64: its longest output in tokens
    finished: Tensor  # [A, n_best] float32: scores of its best finished hypotheses, falling; -inf: none yet
    sums: Tensor  # [A, w] float32: sums of log probabilities; -inf: no hypothesis
    rows: Tensor  # [A, w] int64: the number of each; NO_ROW: no hypothesis

    @staticmethod
    def start(max_lengths: Sequence[int], n_best: int, device: torch.device) -> "_Beams":
        sentences = len(max_lengths)
        return _Beams(
            torch.arange(sentences, device=device),
            torch.tensor(max_lengths, device=device),
            torch.full((sentences, n_best), -torch.inf, device=device),
            torch.zeros(sentences, 1, device=device),
            torch.arange(sentences, device=device)[:, None],
        )

    def of_rows(self) -> Tensor:
        """Returns [R]: which of the batch the sentence of each row is."""
        return self.sentence[:, None].expand_as(self.rows)[self.rows != NO_ROW]

    def select(self, chosen: Tensor) -> None:
        """Keeps the sentences at these indices; rows keep their numbers."""
        for name, value in vars(self).items():
            setattr(self, name, value.index_select(0, chosen))


class _Trace:
    """Where hypotheses came from and where they ended; their tokens are put together when the search is over."""

    def __init__(self, sentences: int, length_penalty: float, rules: Sequence[Rule], device: torch.device) -> None:
        self.sentences, self.length_penalty, self.rules = sentences, length_penalty, rules
        self.prefixes = torch.empty(sentences, 0, dtype=torch.int64, device=device)  # [R, t], kept for rules only
        self.steps: list[tuple[Tensor, Tensor]] = []  # of each step: parent row and token of each new row [R]
        self.ends: list[tuple[int, Tensor, Tensor, Tensor, Tensor]] = []  # step, then [E]: sentence, score, row, token

    def advance(self, rows: Tensor, tokens: Tensor) -> None:
        """Records a step: new row i continues what was row rows[i] with tokens[i]."""
        self.steps.append((rows, tokens))
        if self.rules:
            self.prefixes = torch.cat([self.prefixes[rows], tokens[:, None]], dim=1)

    def apply_rules(self, log_probs: Tensor, beams: "_Beams") -> None:
        """Changes log_probs [R, V] in place."""
        sentences = beams.of_rows() if self.rules else beams.sentence
        for rule in self.rules:
            rule(log_probs, self.prefixes, sentences)

    def final(self, sums: Tensor) -> Tensor:
        """Returns the scores of hypotheses that end in the step now in progress."""
        return sums / (len(self.steps) + 1) ** self.length_penalty

    def end(self, sentence: Tensor, score: Tensor, row: Tensor, token: Tensor) -> None:
        """Records hypotheses [E] that end in this step: a row of the step before and its last token."""
        self.ends.append((len(self.steps), sentence, score, row, token))

    def best(self, n_best: int) -> list[list[Hypothesis]]:
        found: list[list[tuple[bool, float, int, int, int]]] = [[] for _ in range(self.sentences)]
        for step, *columns in self.ends:
            for sentence, score, row, token in zip(*(column.tolist() for column in columns), strict=True):
                found[sentence].append((token != EOS_ID, -score, step, row, token))
        steps = [(rows.tolist(), tokens.tolist()) for rows, tokens in self.steps]
        return [
            [
                Hypothesis(_walk_back(steps[:step], row, token), -negated, not unfinished)
                for unfinished, negated, step, row, token in sorted(ends)[:n_best]
            ]
            for ends in found
        ]


def _walk_back(steps: list[tuple[list[int], list[int]]], row: int, last: int) -> list[int]:
    """Returns the tokens of a hypothesis that ended with token `last` after this row of the last step."""
    tokens = [last] if last not in (EOS_ID, NO_TOKEN) else []
    for rows, row_tokens in reversed(steps):
        tokens.append(row_tokens[row])
        row = rows[row]
    return tokens[::-1]


def _search(
    model: Model, state: State, beams: _Beams, beam_size: int, trace: _Trace, lookahead: float, margin: float
) -> None:
    last = torch.full((len(beams.rows),), BOS_ID, device=beams.rows.device)  # [R]: the last token of each row
    while True:
        log_probs = model.step(last, state).log_softmax(1)  # [R, V]
        trace.apply_rules(log_probs, beams)
        sums, tokens, parents = _candidates(log_probs, beams, beam_size)  # [A, 2W]
        ends, goes_on = _split(sums, tokens, beams.limit[:, None] == len(trace.steps) + 1, beam_size)

        sentence, column = ends.nonzero(as_tuple=True)
        if len(sentence):
            scores = trace.final(sums)
            trace.end(beams.sentence[sentence], scores[ends], parents[ends], tokens[ends])
            scores = scores.masked_fill(~ends | (tokens != EOS_ID), -torch.inf)
            n_best = beams.finished.shape[1]
            beams.finished = torch.cat([beams.finished, scores], dim=1).topk(n_best, dim=1).values
        # log probabilities only fall, so no continuation of so many tokens can score more than sum / length^alpha
        divisor = _divisor(beams.limit, len(trace.steps) + 2, lookahead, trace.length_penalty)
        goes_on &= sums / divisor > beams.finished[:, -1:]
        nth = min(beams.finished.shape[1], sums.shape[1]) - 1
        goes_on &= sums > sums[:, nth : nth + 1] - margin

        survivors = goes_on.sum(1)  # [A]
        width = int(survivors.max())
        if not width:
            return
        columns = goes_on.to(torch.uint8).argsort(dim=1, descending=True, stable=True)[:, :width]
        there = goes_on.gather(1, columns)  # [A, w]
        beams.sums = sums.gather(1, columns).masked_fill(~there, -torch.inf)
        tokens = tokens.gather(1, columns)
        parents = parents.gather(1, columns).masked_fill(~there, NO_ROW)
        stays = survivors.nonzero().flatten()
        if len(stays) > MOST_LIVE * len(survivors):  # moving the others' memory would cost more than it saves
            stays = None
        else:
            beams.select(stays)
            there, tokens, parents = there[stays], tokens[stays], parents[stays]
        beams.rows, last = number_rows(there), tokens[there]
        trace.advance(parents[there], last)
        state.select(parents, stays)


def _divisor(limit: Tensor, shortest: int, lookahead: float, length_penalty: float) -> Tensor:
    """Returns [A, 1]: the power alpha of the longest output that a live hypothesis is thought to become.

    limit: [A]; shortest: the length of those that end in the next step.
    """
    length = (limit - shortest).clamp_min(0).float() * lookahead + shortest
    return (length**length_penalty)[:, None]


def _candidates(log_probs: Tensor, beams: _Beams, beam_size: int) -> tuple[Tensor, Tensor, Tensor]:
    """Returns each sentence's best 2W continuations by falling sum: sums, tokens and parent rows, each [A, 2W].

    log_probs: [R, V]. Each hypothesis ends at most once, so that among 2W at least W go on. One that no token may
    continue has NO_TOKEN as its only continuation, at no cost.
    """
    allowed = log_probs[:, EOS_ID:]  # <pad>, <unk> and <s> come before </s>
    count = min(beam_size + 1, allowed.shape[1])  # more of one row cannot be needed
    gains, tokens = allowed.topk(count, dim=1)  # [R, count]
    tokens += EOS_ID
    stuck = ~(gains[:, 0] > -torch.inf)  # true for NaN as well
    if stuck.any():
        gains[stuck], tokens[stuck] = -torch.inf, NO_TOKEN
        gains[stuck, 0] = 0
    rows = beams.rows.clamp_min(0)  # whatever is in cells of no hypothesis, their sums are -inf
    totals = (beams.sums[:, :, None] + gains[rows]).flatten(1)  # [A, w * count]
    totals, order = totals.sort(dim=1, descending=True, stable=True)
    totals, order = totals[:, : 2 * beam_size], order[:, : 2 * beam_size]
    return totals, tokens[rows].flatten(1).gather(1, order), rows.gather(1, order // count)


def _split(sums: Tensor, tokens: Tensor, at_limit: Tensor, beam_size: int) -> tuple[Tensor, Tensor]:
    """Returns which candidates [A, 2W] end and which go on.

    One ends if it has no next token and is among the best W, or is among the W that would go on past the limit.
    """
    possible = sums > -torch.inf
    is_last = tokens <= EOS_ID  # </s> or NO_TOKEN
    goes_on = possible & ~is_last
    goes_on &= goes_on.cumsum(1) <= beam_size
    ends = goes_on & at_limit
    ends[:, :beam_size] |= (possible & is_last)[:, :beam_size]
    return ends, goes_on & ~at_limit


def _search_greedily(model: Model, state: State, beams: _Beams, trace: _Trace) -> None:
    """The lean form for one hypothesis a sentence, which ends at its first </s>."""
    tokens = torch.full((len(beams.rows),), BOS_ID, device=beams.rows.device)
    while True:
        log_probs = model.step(tokens, state).log_softmax(1)  # [A, V]
        trace.apply_rules(log_probs, beams)
        gains, tokens = log_probs[:, EOS_ID:].max(dim=1)  # [A]
        tokens += EOS_ID
        stuck = ~(gains > -torch.inf)
        tokens = tokens.masked_fill(stuck, NO_TOKEN)
        beams.sums = beams.sums + gains.masked_fill(stuck, 0)[:, None]
        ends = (tokens <= EOS_ID) | (beams.limit == len(trace.steps) + 1)
        rows = torch.arange(len(tokens), device=tokens.device)
        if ends.any():
            trace.end(beams.sentence[ends], trace.final(beams.sums[ends, 0]), rows[ends], tokens[ends])
            rows = rows[~ends]
            if not len(rows):
                return
            beams.select(rows)
            tokens = tokens[rows]
            state.select(rows[:, None], rows)
        trace.advance(rows, tokens)
