"""The benchmarks' own counting: rates by windows, and the products that a roofline is made of."""

import sys
from pathlib import Path

import pytest
from torch import nn

from mt.config import ModelConfig
from mt.model.transformer import Transformer

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))  # where the benchmarks find one another

import bench_peers
import bench_rounds
import bench_setting
import bench_train


def test_rate_is_the_median_window_after_the_warm_up_and_padding_is_no_token():
    clock = bench_setting.UpdateClock(warmup=1, window=2)
    for second in (0, 100, 101, 102, 104, 106, 107, 108):  # a slow first update; windows of 2, 4 and 2 seconds
        clock.marks.append((float(second), 30, 40, 3))
    report = clock.report()
    assert report["windows"] == 3
    assert report["tokens_per_second"] == 30.0
    assert report["tokens_per_second_lowest"] == 15.0
    assert report["tokens_per_second_mean"] == 22.5
    assert report["sentences_per_second"] == 3.0
    assert report["padding_share"] == 0.25


@pytest.mark.parametrize("name", sorted(bench_setting.SHAPES))
def test_a_token_goes_through_each_matrix_of_its_side_once(name):
    shape, pieces = bench_setting.SHAPES[name], 50
    config = ModelConfig(shape.d_model, shape.d_ff, shape.heads, shape.layers, shape.layers)
    model = Transformer(config, pieces, pieces)
    weights = {n: m.weight.numel() for n, m in model.named_modules() if isinstance(m, nn.Linear)}
    memory = sum(size for n, size in weights.items() if n.rsplit(".", 1)[-1] == "key_value")
    source = memory + sum(size for n, size in weights.items() if n.startswith("encoder"))
    target = sum(weights.values()) - source + pieces * shape.d_model
    for share in (0.0, 0.4, 1.0):
        uses = bench_train.products(shape, pieces, share)
        assert sum(a * b * count for a, b, count in uses) == pytest.approx(share * source + (1 - share) * target)


def test_marian_batches_keep_the_budget_with_padding_and_lose_no_pair():
    pairs = [([4] * length, [5] * (length % 7 + 1)) for length in range(1, 30)]
    batches = list(bench_peers.cut(pairs, 60))
    assert [pair for batch in batches for pair in batch] == pairs
    for batch in batches:
        assert len(batch) * (max(len(side) for pair in batch for side in pair) + 1) <= 60


def test_table_makes_ratios_within_rounds_and_keeps_a_row_for_what_is_not_installed():
    def result(rate):
        return {
            "version": "1", "torch": "2", "tokens_per_second": rate, "tokens_per_update": 10.0, "padding_share": 0.5,
            "peak_memory_mb": 1.0, "seconds_to_first_update": 1.0, "mflop_per_token": 1.0, "roofline_share": 0.5,
            "matmul_gflops": 9.0,
        }  # fmt: skip

    results = {
        "mt": [result(100.0), None, result(400.0)],
        "eole": [result(50.0), result(1.0), result(100.0)],
        "other": [None] * 3,
    }
    text = bench_rounds.table(results, {"other": "not installed: no wheel"})
    assert "| eole | 1, torch 2 | 50 | 0.38 (0.25 to 0.50) |" in text  # the round without ours makes no ratio
    assert "| other | not installed: no wheel |" in text
