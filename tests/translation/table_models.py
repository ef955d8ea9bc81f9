"""Models that are tables, small enough to try every translation, and the search that does."""

import itertools
import math

import numpy as np
import torch

from mt.rows import NO_ROW
from mt.tokenizer import EOS_ID


class Prefixes:
    """The state of a table model: the sentence and the prefix of each row."""

    def __init__(self, rows):
        self.rows = rows

    def select(self, rows, sentences=None):
        self.rows = [self.rows[row] for row in rows.flatten().tolist() if row != NO_ROW]


class TableModel:
    """log_probs(sentence, prefix) -> [V] for sentences named by `memory`."""

    def __init__(self, log_probs):
        self.log_probs, self.rows_seen = log_probs, 0

    def start(self, memory, layout):
        return Prefixes([(sentence, None) for sentence in memory.tolist()])

    def step(self, tokens, state):
        state.rows = [
            (sentence, () if prefix is None else (*prefix, token))
            for (sentence, prefix), token in zip(state.rows, tokens.tolist(), strict=True)
        ]
        self.rows_seen += len(state.rows)
        return torch.stack([self.log_probs(*row) for row in state.rows])


def random_log_probs(seed, vocabulary_size, sharpness=1.0):
    """A table drawn anew for each sentence and prefix; <unk> and its like are as likely as any other token."""

    def log_probs(sentence, prefix):
        generator = np.random.default_rng([seed, sentence, *prefix])
        return torch.tensor(generator.normal(size=vocabulary_size) * sharpness, dtype=torch.float32).log_softmax(0)

    return log_probs


def all_translations(vocabulary_size, max_length):
    """All runs of ordinary tokens that end in </s> within max_length tokens, </s> counted and left out."""
    for length in range(max_length):
        yield from itertools.product(range(EOS_ID + 1, vocabulary_size), repeat=length)


def probability_of(log_probs, sentence, tokens):
    """The log probability of a translation, </s> included."""
    return math.fsum(float(log_probs(sentence, tokens[:i])[t]) for i, t in enumerate((*tokens, EOS_ID)))
