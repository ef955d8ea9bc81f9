"""Which pairs go into which batch: pure functions of lengths, token budget, seed and epoch."""

import numpy as np


def cut_by_budget(lengths: np.ndarray, batch_tokens: int) -> np.ndarray:
    """Returns the starts [batches+1] of consecutive batches of items of these lengths (the last is the count).

    A batch grows until one more item would exceed batch_tokens; an item longer than the budget is a batch of its own.
    """
    cumulative = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    starts, position = [0], 0
    while position < len(lengths):
        limit = cumulative[position] + batch_tokens
        position = max(int(np.searchsorted(cumulative, limit, side="right")) - 1, position + 1)
        starts.append(position)
    return np.array(starts, dtype=np.int64)


def plan_epoch(
    source_lengths: np.ndarray,
    target_lengths: np.ndarray,
    batch_tokens: int,
    pool_batches: int,
    seed: int,
    epoch: int,
    order: np.ndarray | None = None,
) -> list[np.ndarray]:
    """Returns the batches of one epoch, each an array of pair indices; every pair occurs once.

    Pairs are shuffled, cut into pools of about pool_batches batches, sorted by length inside each pool, cut into
    batches of at most batch_tokens tokens of the longer side (with </s> or <s>), and the batches are shuffled. The
    same arguments give the same plan on any machine. source_lengths, target_lengths: [pairs] tokens without </s>.
    With `order` the epoch is those pairs, which are not shuffled, and batches are only inside their pool: what any
    stretch of the order has of a corpus, the batches have too.
    """
    rng = np.random.Generator(np.random.Philox(key=seed, counter=[0, 0, 0, epoch]))
    given = order is not None
    if order is None:
        order = rng.permutation(np.arange(len(source_lengths), dtype=np.int32))  # half the memory of permutation(count)
    cost = (np.maximum(source_lengths, target_lengths).astype(np.int32) + 1)[order]
    pools = cut_by_budget(cost, batch_tokens * pool_batches)
    # Sorting numbers that hold both lengths and, in 31 bits, the place in the pool takes less than half the time of
    # lexsort. Look-ups by `order`, which miss the processor's caches, are few and come before the loop.
    longest = np.uint32(2**16 - 1)
    lengths = [np.minimum(side.astype(np.uint32), longest) for side in (source_lengths, target_lengths)]
    both = (lengths[1] << 16 | lengths[0])[order]
    batches: list[np.ndarray] = []
    for start, end in zip(pools[:-1], pools[1:], strict=True):
        keys = both[start:end].astype(np.int64) << 31 | np.arange(end - start)
        keys.sort()
        places = keys & (2**31 - 1)
        pool = order[start:end][places]
        cuts = cut_by_budget(cost[start:end][places], batch_tokens)
        own = [pool[a:b] for a, b in zip(cuts[:-1], cuts[1:], strict=True)]
        batches += [own[index] for index in rng.permutation(len(own))] if given else own
    return batches if given else [batches[index] for index in rng.permutation(len(batches))]
