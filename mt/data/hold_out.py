"""Validation and test sets taken out of a corpus by source sentence, so that none of them stands in two splits."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b

import numpy as np

from mt.data.clean import Pair, in_batches
from mt.data.duplicates import normal_form
from mt.data.filters import is_empty

_Corpus = Callable[[], Iterable[Pair]]  # read twice


def split_pairs(
    corpus: _Corpus, valid_pairs: int, test_pairs: int, seed: int, dropped: Counter[str]
) -> Iterator[tuple[str, Pair]]:
    """Yields each pair in order with its split: train, valid or test.

    Sources that are equal without case, punctuation and spaces are one sentence. Sentences are ranked by a hash of
    themselves and the seed: the first ones are test, the next ones valid, so that a corpus that grows changes few of
    them. Of a sentence that is held out the first pair counts; its other translations are in no split, and added to
    `dropped`. Pairs with an empty side are train. In memory are 8 bytes a pair (for a moment 24). Raises ValueError for
    too few sentences.
    """
    ranks = np.unique(np.concatenate([np.empty(0, np.uint64), *_ranks(corpus(), seed)]))
    wanted = test_pairs + valid_pairs
    if len(ranks) <= wanted:
        raise ValueError(
            f"there are {len(ranks):,} different source sentences, but --valid={valid_pairs} and --test={test_pairs} "
            "must leave some to train on: take fewer"
        )
    held_out = {int(rank): "test" if place < test_pairs else "valid" for place, rank in enumerate(ranks[:wanted])}
    taken: set[int] = set()
    for pair in corpus():
        rank = None if is_empty(pair[0]) or is_empty(pair[1]) else _rank(pair[0], seed)
        split = held_out.get(rank, "train")
        if split != "train" and rank in taken:
            dropped[f"source in {split}"] += 1
            continue
        taken |= {rank} if split != "train" else set()
        yield split, pair


def _ranks(pairs: Iterable[Pair], seed: int) -> Iterator[np.ndarray]:
    for batch in in_batches(pairs):
        ranks = [_rank(source, seed) for source, target in batch if not is_empty(source) and not is_empty(target)]
        yield np.array(ranks, np.uint64)


def _rank(source: str, seed: int) -> int:
    content = f"{seed} {normal_form(source)}".encode(errors="surrogatepass")
    return int.from_bytes(blake2b(content, digest_size=8).digest())
