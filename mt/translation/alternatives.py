"""Words that can follow the beginning of a translation, as a translator's editor offers them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from mt.tokenizer import BOS_ID, EOS_ID, Tokenizer
from mt.translation.beam import Model
from mt.translation.phrases import Speller


@dataclass(frozen=True)
class Beginning:
    """Tokens that a translation can begin with, and the text after the prefix that the last one begins."""

    tokens: list[int]
    probability: float  # of what follows the prefix, given the prefix; all beginnings together: at most 1


@torch.inference_mode()
def beginnings(model: Model, memory: Any, layout: Any, speller: Speller, prefix: str, count: int) -> list[Beginning]:
    """Returns the `count` likeliest ways for the translation of one source to go on after a prefix, best first.

    In place of the prefix's last piece a longer one may stand that begins with it: then what it writes beyond the
    prefix is how the translation goes on; after the piece itself it is the next one. To end there is no way.
    """
    tokens, longer = speller.prefix(prefix)
    state = model.start(memory, layout)
    log_probs = _next(model, state, [BOS_ID, *tokens[:-1]], memory)
    if not tokens:
        return _likeliest([], log_probs, 0.0, count)
    exact = tokens[-1]
    share = log_probs[[exact, *longer]].logsumexp(0).item()  # the rest of the distribution does not write the prefix
    found = [Beginning([*tokens[:-1], token], math.exp(log_probs[token].item() - share)) for token in longer]
    after = _next(model, state, [exact], memory)
    found += _likeliest(tokens, after, log_probs[exact].item() - share, count)
    return sorted(found, key=lambda beginning: -beginning.probability)[:count]


def _next(model: Model, state: Any, tokens: Sequence[int], memory: Any) -> torch.Tensor:
    """Returns the log probabilities [V] after the tokens, of which none is <pad>, <unk> or <s>."""
    for token in tokens:
        logits = model.step(torch.tensor([token], device=memory.device), state)
    log_probs = logits[0].log_softmax(0)
    log_probs[:EOS_ID] = -torch.inf
    return log_probs


def _likeliest(tokens: list[int], log_probs: torch.Tensor, before: float, count: int) -> list[Beginning]:
    values, order = log_probs[EOS_ID + 1 :].topk(min(count, len(log_probs) - EOS_ID - 1))
    pairs = zip(values.tolist(), order.tolist(), strict=True)
    return [Beginning([*tokens, token + EOS_ID + 1], math.exp(before + value)) for value, token in pairs]


def next_word(tokenizer: Tokenizer, tokens: list[int], begun: int, prefix: str, spaced: bool) -> str:
    """Returns the word of a translation that follows the prefix.

    begun: how many of the tokens write the prefix and begin the word. In a language without spaces it is what these
    write beyond the prefix; else it goes on to the next space. A space in front says that it is a word of its own.
    """
    if not spaced:
        return tokenizer.decode(tokens[:begun])[len(prefix) :]
    rest = tokenizer.decode(tokens)[len(prefix) :]
    space, word = rest[: len(rest) - len(rest.lstrip())], rest.lstrip()
    return space + word.split(" ")[0]
