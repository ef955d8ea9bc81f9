"""Mixtures: what an epoch has of each corpus, evenly all the way, and settings that do not fit."""

from collections import Counter

import numpy as np
import pytest

from mt.config import CorpusConfig, DataConfig, StageConfig
from mt.data.batching import plan_epoch
from mt.data.mixture import check_mixture, epoch_order, plan_stages


def data(stages=None, temperature=1.0, **corpora):
    train = {name: CorpusConfig(path=f"{name}.tsv", **own) for name, own in corpora.items()}
    return DataConfig(train=train, temperature=temperature, stages=stages or {})


def shares(config, pairs):
    return [stage.shares and [round(share, 4) for share in stage.shares] for stage in plan_stages(config, pairs)]


def corpus_of(order, pairs):
    return np.searchsorted(np.cumsum(pairs), order, side="right")


def test_without_any_setting_an_epoch_has_every_pair_once():
    (stage,) = plan_stages(data(main={}, back={}), [100, 300])
    assert stage.shares is None and stage.epoch_pairs == 400


def test_shares_follow_weights_or_size_or_temperature_or_repetition():
    assert shares(data(main={"weight": 1}, back={"weight": 3}), [100, 100]) == [[0.25, 0.75]]
    assert shares(data(temperature=2.0, main={}, back={}), [100, 900]) == [[0.25, 0.75]]
    assert shares(data(main={"upsample": 3}, back={}), [100, 100]) == [[0.75, 0.25]]
    (stage,) = plan_stages(data(main={"upsample": 3}, back={}), [100, 100])
    assert stage.epoch_pairs == 400


def test_each_corpus_is_gone_through_evenly_and_goes_on_in_the_next_epoch():
    pairs = [10, 1000]
    (stage,) = plan_stages(data(main={"weight": 1}, back={"weight": 3}), pairs)
    orders = [epoch_order(stage, 0, 7, epoch) for epoch in range(4)]
    assert all(len(order) == pytest.approx(1010, abs=1) for order in orders)
    seen = Counter(np.concatenate(orders).tolist())
    of_main, of_back = (np.array([seen[i] for i in numbers]) for numbers in (range(10), range(10, 1010)))
    assert of_main.sum() == 1010 and of_main.max() - of_main.min() <= 1
    assert of_back.sum() == 3030 and of_back.max() - of_back.min() <= 1
    assert not np.array_equal(orders[0], orders[1])


def test_any_stretch_of_an_epoch_has_the_shares():
    pairs = [500, 4000, 20]
    (stage,) = plan_stages(data(a={"weight": 5}, b={"weight": 4}, c={"weight": 1}), pairs)
    numbers = corpus_of(epoch_order(stage, 0, 1, 3), pairs)
    for start in range(0, 4000, 300):
        counts = np.bincount(numbers[start : start + 500], minlength=3)
        assert np.abs(counts - [250, 200, 50]).max() <= 3


def test_a_weight_of_0_leaves_a_corpus_out_and_out_of_the_length_of_an_epoch():
    (stage,) = plan_stages(data(main={"weight": 2}, back={"weight": 0}), [50, 1000])
    assert sorted(epoch_order(stage, 0, 1, 0)) == list(range(50))


def test_an_order_is_the_same_for_the_same_place_and_another_in_another_stage_or_seed():
    stages = {"end": StageConfig(10, {"main": 1, "back": 1})}
    first, end = plan_stages(data(stages, main={"weight": 1}, back={"weight": 1}), [300, 300])
    order = epoch_order(first, 0, 1, 2)
    assert np.array_equal(order, epoch_order(first, 0, 1, 2))
    for other in (epoch_order(end, 1, 1, 2), epoch_order(first, 0, 2, 2), epoch_order(first, 0, 1, 3)):
        assert not np.array_equal(order, other)


def test_10_000_batches_have_each_corpus_within_1_percent_of_its_weight():
    """Whatever the lengths, which differ from corpus to corpus, and wherever in an epoch they begin."""
    rng = np.random.default_rng(0)
    pairs, weights, longest = [200, 60_000, 20_000], [0.1, 0.3, 0.6], [6, 30, 12]
    lengths = np.concatenate([rng.integers(1, long, count) for long, count in zip(longest, pairs, strict=True)])
    own = {name: {"weight": weight} for name, weight in zip("abc", weights, strict=True)}
    (stage,) = plan_stages(data(**own), pairs)
    batches = []
    for epoch in (1, 2):
        order = epoch_order(stage, 0, 5, epoch)
        plan = plan_epoch(lengths, lengths, 64, 16, 5, epoch, order)
        assert Counter(np.concatenate(plan).tolist()) == Counter(order.tolist())
        batches += plan
    assert len(batches) > 25_000
    for start in (0, 7_321, 14_000):
        counts = np.bincount(corpus_of(np.concatenate(batches[start : start + 10_000]), pairs), minlength=3)
        assert np.abs(counts / counts.sum() / weights - 1).max() < 0.01


def test_stages_are_in_the_order_of_their_beginnings_and_name_what_they_read():
    stages = {"tuned": StageConfig(500, {"main": 1}), "mixed": StageConfig(100, temperature=2)}
    config = data(stages, main={}, back={})
    found = plan_stages(config, [100, 900])
    assert [stage.name for stage in found] == ["", "mixed", "tuned"]
    assert shares(config, [100, 900]) == [None, [0.25, 0.75], [1, 0]]
    assert found[2].describe(["main", "back"]) == (
        "from update 501, stage tuned, an epoch has 100 pairs: main 100.0% (each of 100 pairs 1 times), "
        "back 0.0% (each of 900 pairs 0 times)"
    )


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            data({"end": StageConfig(5, {"mian": 1})}, main={}, back={}),
            r"data.stages.end.weights.mian: data.train has no corpus of this name; did you mean main\?",
        ),
        (data({"end": StageConfig(5, {"main": 0})}, main={}), "data.stages.end.weights: all weights are 0: give"),
        (data(main={"weight": 0}, back={"weight": 0}), "data.train: all weights are 0: give"),
        (data(main={"weight": 1}, back={}), "data.train.back: has no weight, and data.train.main has one: give each"),
        (data(temperature=5, main={"weight": 1}), "data.temperature: has no effect beside weights: leave it out"),
        (data(main={"weight": 1, "upsample": 2}), "data.train.main.upsample: has no effect beside weights: leave it"),
        (
            data({"a": StageConfig(5, {"main": 1}), "b": StageConfig(5, {"main": 1})}, main={}),
            "data.stages.b.from_step=5: stage a begins there too: give each its own",
        ),
    ],
)
def test_settings_that_do_not_fit_are_named(config, message):
    with pytest.raises(ValueError, match=f"^{message}") as error:
        check_mixture(config)
    assert "\n" not in str(error.value)


def test_a_corpus_without_pairs_can_have_no_weight():
    config = data(main={"weight": 1}, back={"weight": 1})
    with pytest.raises(ValueError, match="^data.train.back.weight: the corpus has no pair left after data.cleaning"):
        plan_stages(config, [10, 0])
    assert plan_stages(data(main={"weight": 1}, back={"weight": 0}), [10, 0])[0].shares == (1, 0)
    assert plan_stages(data(temperature=2, main={}, back={}), [10, 0])[0].shares == (1, 0)
    staged = data({"end": StageConfig(5, {"back": 1})}, main={}, back={})
    with pytest.raises(ValueError, match="^data.stages.end.weights.back: the corpus has no pair left"):
        plan_stages(staged, [10, 0])


def test_a_small_temperature_and_a_large_one_are_numbers():
    config = data(temperature=0.01, main={}, back={})
    assert plan_stages(config, [3000, 3000])[0].shares == (0.5, 0.5)
    assert plan_stages(config, [3000, 10])[0].shares == pytest.approx((1, 0))
    staged = data({"end": StageConfig(5, temperature=0.01)}, main={}, back={})
    assert plan_stages(staged, [3000, 10])[1].shares == pytest.approx((1, 0))


def test_upsampling_beyond_what_memory_holds_is_named():
    config = data(main={"upsample": 4e5}, back={})
    with pytest.raises(ValueError, match="^data.train.main.upsample=400000: an epoch would have 1,200,000,010 pairs"):
        plan_stages(config, [3000, 10])
    assert plan_stages(data(main={}, back={}), [400_000_000, 10])[0].epoch_pairs == 400_000_010
