"""Plans: every pair once, within budget, the same for the same seed, another order in another epoch."""

import numpy as np
import pytest

from mt.data.batch import collate
from mt.data.batching import cut_by_budget, plan_epoch

RNG = np.random.default_rng(0)
SOURCE, TARGET = RNG.integers(1, 40, 2000), RNG.integers(1, 40, 2000)


def plan(seed=1, epoch=0, batch_tokens=300, pool=8):
    return plan_epoch(SOURCE, TARGET, batch_tokens, pool, seed, epoch)


def test_every_pair_occurs_once_and_within_the_budget():
    batches = plan()
    assert sorted(np.concatenate(batches)) == list(range(2000))
    for batch in batches:
        assert (np.maximum(SOURCE[batch], TARGET[batch]) + 1).sum() <= 300


def test_same_seed_same_plan_other_epoch_other_order():
    first, again, later, other = plan(), plan(), plan(epoch=1), plan(seed=2)
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not np.array_equal(np.concatenate(first), np.concatenate(later))
    assert not np.array_equal(np.concatenate(first), np.concatenate(other))


def test_neighbours_in_a_batch_are_alike_in_length():
    spread = np.mean([np.ptp(TARGET[batch]) for batch in plan(pool=32)])
    assert spread < 6


def plan_with_lexsort(source, target, batch_tokens, pool_batches, seed, epoch):
    """The same plan in plain steps: `plan_epoch` sorts numbers made of both lengths and the place in the pool."""
    rng = np.random.Generator(np.random.Philox(key=seed, counter=[0, 0, 0, epoch]))
    order = rng.permutation(np.arange(len(source), dtype=np.int32))
    cost = np.maximum(source, target) + 1
    pools = cut_by_budget(cost[order], batch_tokens * pool_batches)
    batches = []
    for start, end in zip(pools[:-1], pools[1:], strict=True):
        pool = order[start:end]
        pool = pool[np.lexsort((source[pool], target[pool]))]
        cuts = cut_by_budget(cost[pool], batch_tokens)
        batches += [pool[a:b] for a, b in zip(cuts[:-1], cuts[1:], strict=True)]
    return [batches[index] for index in rng.permutation(len(batches))]


@pytest.mark.parametrize("longest", [3, 40, 2**16 - 1])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_pairs_are_in_the_order_of_lexsort_whatever_their_lengths(longest, dtype):
    rng = np.random.default_rng(longest)
    source, target = (rng.integers(0, longest + 1, 3000).astype(dtype) for _ in range(2))
    arguments = source, target, 20 * longest, 8, 3, 2
    for ours, plain in zip(plan_epoch(*arguments), plan_with_lexsort(*arguments), strict=True):
        assert ours.tolist() == plain.tolist()


def test_sentences_of_more_than_16_bits_keep_to_the_budget():
    source, target = np.array([2**16 + 9, 5, 2**18, 3, 2**16]), np.array([4, 2**17, 6, 7, 2**16 - 1])
    batches = plan_epoch(source, target, 3 * 2**16, 4, 1, 0)
    assert sorted(np.concatenate(batches)) == list(range(5))
    for batch in batches:
        assert len(batch) == 1 or (np.maximum(source, target)[batch] + 1).sum() <= 3 * 2**16


def test_a_pair_longer_than_the_budget_is_a_batch_of_its_own():
    assert cut_by_budget(np.array([5, 50, 5, 5]), 10).tolist() == [0, 1, 2, 4]
    assert cut_by_budget(np.array([], dtype=np.int64), 10).tolist() == [0]
    assert len(plan_epoch(np.array([3]), np.array([400]), 10, 4, 1, 0)) == 1


@pytest.mark.parametrize("stream_tokens", [0, 16])
def test_collate_packs_shifts_and_orders(stream_tokens):
    sources = [np.array([5, 6, 7]), np.array([8]), np.array([9, 10])]
    targets = [np.array([11, 12]), np.array([13]), np.array([14])]
    batch = collate(sources, targets, [70, 71, 72], stream_tokens)
    assert batch.pairs == (71, 72, 70)
    assert batch.source[:9].tolist() == [8, 3, 9, 10, 3, 5, 6, 7, 3]
    assert batch.target_input[:7].tolist() == [2, 13, 2, 14, 2, 11, 12]
    assert batch.target_output[:7].tolist() == [13, 3, 14, 3, 11, 12, 3]
    assert (batch.source_tokens, batch.target_tokens) == (9, 7)
    assert batch.source_layout.lengths[:3] == (2, 3, 4)
    assert batch.target_layout.positions[:7].tolist() == [0, 1, 0, 1, 0, 1, 2]
    if stream_tokens:
        assert len(batch.source) == len(batch.target_input) == 16
        assert not batch.source[9:].any() and not batch.target_output[7:].any()
        assert batch.source_layout.lengths[3:5] == (7, 0) and batch.target_layout.lengths[3:5] == (9, 0)
        assert len(batch.source_layout.lengths) == len(batch.target_layout.lengths) == 128
        assert batch.source_layout.longest == batch.target_layout.longest == 128
