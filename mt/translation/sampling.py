"""Translations drawn from the model's distribution instead of searched for.

Each sentence has random numbers of its own, so that its samples do not depend on its neighbours in the batch.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mt.tokenizer import BOS_ID, EOS_ID
from mt.translation.beam import Hypothesis, Model
from mt.translation.rules import Rule


@dataclass(frozen=True)
class Sampling:
    """What is drawn from. The cuts apply one after the other, in this order; the likeliest token always stays."""

    temperature: float = 1.0  # divides the log probabilities; towards 0 it is greedy search
    top_k: int = 0  # so many likeliest tokens; 0: all
    top_p: float = 1.0  # the likeliest that make up this share (nucleus, Holtzman et al. 2020)
    epsilon: float = 0.0  # tokens of at least this probability (Hewitt, Manning and Liang 2022); 0: all

    def __post_init__(self) -> None:
        for name, value, holds, rule in (
            ("temperature", self.temperature, 0 < self.temperature < math.inf, "greater than 0, and finite"),
            ("top_k", self.top_k, self.top_k >= 0, "at least 0"),
            ("top_p", self.top_p, 0 < self.top_p <= 1, "above 0, at most 1"),
            ("epsilon", self.epsilon, 0 <= self.epsilon < 1, "at least 0, below 1"),
        ):
            if not holds:
                raise ValueError(f"{name}={value}: must be {rule}")


@torch.inference_mode()
def sample(
    model: Model,
    memory: Tensor,
    layout: Any,
    max_lengths: Sequence[int],
    count: int,
    sampling: Sampling,
    seeds: Sequence[int],
    length_penalty: float,
    rules: Sequence[Rule] = (),
) -> list[list[Hypothesis]]:
    """Returns `count` hypotheses for each of B sentences, in the order drawn; some may be equal.

    seeds: [B], of each sentence. The score is that of beam search: of the model's own probabilities, before
    temperature and cuts. <pad>, <unk> and <s> are never drawn.
    """
    state, device = model.start(memory, layout), memory.device
    sentences = torch.arange(len(max_lengths), device=device).repeat_interleave(count)  # [R]
    state.select(sentences[:, None], sentences)
    row_of = torch.arange(len(sentences))  # where the live rows were at the beginning
    limits = torch.tensor(max_lengths).repeat_interleave(count)
    generators = [np.random.Generator(np.random.Philox(seed)) for seed in seeds]
    tokens = torch.full((len(sentences),), BOS_ID, device=device)
    prefixes = torch.empty(len(sentences), 0, dtype=torch.int64, device=device)
    totals = torch.zeros(len(sentences), dtype=torch.float64)
    written: list[list[int]] = [[] for _ in row_of]
    finished = [False] * len(row_of)
    drawn = np.zeros((len(generators), count))
    while len(row_of):
        for sentence in set(sentences.tolist()):  # also for samples that ended: the others' numbers stay the same
            drawn[sentence] = generators[sentence].random(count)
        log_probs = model.step(tokens, state).log_softmax(1)
        log_probs[:, :EOS_ID] = -torch.inf
        for rule in rules:
            rule(log_probs, prefixes, sentences)
        random = torch.from_numpy(drawn.reshape(-1)).to(device)[row_of.to(device)]
        tokens = _draw(log_probs, sampling, random)
        gains = log_probs.gather(1, tokens[:, None]).squeeze(1).double().cpu()
        stuck = ~(gains > -torch.inf)
        totals[row_of] += gains.masked_fill(stuck, 0)
        prefixes = torch.cat([prefixes, tokens[:, None]], dim=1)
        ends = (tokens.cpu() == EOS_ID) | stuck | (limits == prefixes.shape[1])
        for row, token, is_stuck in zip(row_of.tolist(), tokens.tolist(), stuck.tolist(), strict=True):
            if token == EOS_ID and not is_stuck:
                finished[row] = True
            elif not is_stuck:
                written[row].append(token)
        if ends.any():
            stays = (~ends).nonzero().flatten()
            row_of, limits = row_of[stays], limits[stays]
            stays = stays.to(device)
            sentences, tokens, prefixes = sentences[stays], tokens[stays], prefixes[stays]
            if len(row_of):
                state.select(stays[:, None], stays)
    lengths = [max(len(words) + done, 1) for words, done in zip(written, finished, strict=True)]
    found = [
        Hypothesis(words, float(total) / length**length_penalty, done)
        for words, total, length, done in zip(written, totals, lengths, finished, strict=True)
    ]
    return [found[start : start + count] for start in range(0, len(found), count)]


def _draw(log_probs: Tensor, sampling: Sampling, random: Tensor) -> Tensor:
    """Returns a token for each row: the first at which the cumulated probabilities exceed a random number [R]."""
    ordered, order = log_probs.sort(dim=1, descending=True, stable=True)
    ordered = (ordered - ordered[:, :1]).double() / sampling.temperature  # so that the likeliest stays finite
    if sampling.top_k:
        ordered[:, sampling.top_k :] = -torch.inf
    probabilities = ordered.softmax(1).nan_to_num(0)
    cumulated = probabilities.cumsum(1)
    cut = (cumulated - probabilities >= sampling.top_p) | (probabilities < sampling.epsilon)
    cut[:, 0] = False
    cumulated = probabilities.masked_fill(cut, 0).cumsum(1)
    place = torch.searchsorted(cumulated, random[:, None] * cumulated[:, -1:], right=True)
    last = (cumulated < cumulated[:, -1:]).sum(1, keepdim=True)  # rounding may point behind the last that is left
    return order.gather(1, torch.minimum(place, last)).squeeze(1)
