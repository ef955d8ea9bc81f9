"""Ways to go on after a prefix, against the table of probabilities that they come from."""

import math
import warnings
from functools import cache

import pytest
import torch

from mt.config import TokenizerConfig
from mt.tokenizer import EOS_ID, train_tokenizers
from mt.translation.alternatives import beginnings, next_word
from mt.translation.phrases import Speller
from tests.translation.table_models import TableModel, random_log_probs

LINES = ["I love green tea", "they drink tea in a teapot", "greens and greetings", "我爱绿茶"] * 20


@pytest.fixture(scope="module")
def tokenizer():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a small corpus gives a small vocabulary
        return train_tokenizers([(line, line) for line in LINES], TokenizerConfig(vocabulary_size=400), seed=1).target


@pytest.mark.parametrize("prefix", ["", "I love", "they drink gre", "I love ", "I love zeb"])
def test_probabilities_are_those_of_what_can_follow(tokenizer, prefix):
    log_probs = cache(random_log_probs(1, tokenizer.size))
    found = beginnings(TableModel(log_probs), torch.arange(1), None, Speller(tokenizer, True), prefix, 10_000)
    ids = tokenizer.encode([prefix])[0]
    last = tokenizer.piece_bytes[ids[-1]] if ids else b""
    pieces = [token for token in range(EOS_ID + 1, tokenizer.size) if tokenizer.piece_bytes[token].startswith(last)]
    if ids:  # the last piece, or a longer one in its place; after it any
        before = log_probs(0, tuple(ids[:-1])).double().exp()
        share = float(before[pieces].sum())
        expected = {(*ids[:-1], t): float(before[t]) / share for t in pieces if t != ids[-1]}
        after = log_probs(0, tuple(ids)).double().exp() * float(before[ids[-1]]) / share
    else:
        expected, after = {}, log_probs(0, ()).double().exp()
    expected |= {(*ids, token): float(after[token]) for token in range(EOS_ID + 1, tokenizer.size)}
    assert {tuple(b.tokens): b.probability for b in found} == pytest.approx(expected, rel=1e-4)
    probabilities = [b.probability for b in found]
    assert probabilities == sorted(probabilities, reverse=True) and math.fsum(probabilities) <= 1 + 1e-6
    first = beginnings(TableModel(log_probs), torch.arange(1), None, Speller(tokenizer, True), prefix, 3)
    assert first == found[:3]


@pytest.mark.parametrize(
    ("text", "prefix", "spaced", "word"),
    [
        ("I love green tea", "I love", True, " green"),
        ("I love green tea", "I love ", True, "green"),
        ("I love green tea", "I love gr", True, "een"),
        ("I love green tea", "I love green tea", True, ""),
        ("我爱绿茶", "我爱", False, "绿茶"),
    ],
)
def test_the_next_word(tokenizer, text, prefix, spaced, word):
    ids = tokenizer.encode([text])[0]
    assert next_word(tokenizer, ids, len(ids), prefix, spaced) == word
