"""mt.evaluation.resampling beside sacreBLEU's own functions, and how much memory it takes."""

import tracemalloc
from types import SimpleNamespace

import numpy as np
import pytest
from sacrebleu.significance import _bootstrap_resample, _paired_ar_test

from mt.evaluation.resampling import EXCHANGES, RESAMPLES, p_randomisation, sample


class Ratio:
    """A metric of two counts a sentence, which are those that the hypotheses say."""

    def _extract_corpus_statistics(self, hypotheses: list[str], references: None) -> list[list[int]]:
        return [[int(number) for number in line.split()] for line in hypotheses]

    def _compute_score_from_stats(self, sums: list[float] | np.ndarray) -> SimpleNamespace:
        return SimpleNamespace(score=sums[0] / sums[1])

    def _aggregate_and_compute(self, statistics: list) -> SimpleNamespace:
        return self._compute_score_from_stats(np.sum(statistics, axis=0))


def lines(seed: int, count: int) -> list[str]:
    numbers = np.random.default_rng(seed).integers(1, 9, size=count)
    return [f"{number} 10" for number in numbers]


def test_draws_coins_and_digits_are_sacrebleus() -> None:
    """33 sentences, so that no block of coins ends where a word of 32 bits would without care."""
    metric, hypotheses, others = Ratio(), lines(1, 33), lines(2, 33)
    first, other = sample(metric, hypotheses, 12345), sample(metric, others, 12345)
    _, expected = _bootstrap_resample(first.counts.tolist(), metric, RESAMPLES)
    assert first.resampled.tolist() == [one.score for one in expected]
    known = {"ratio": (first.counts.astype(int), first.score)}
    _, found = _paired_ar_test(known, "other", others, None, {"ratio": metric}, EXCHANGES, seed=12345)
    assert p_randomisation(first, other, 12345) == pytest.approx(found["ratio"].p_value, abs=1e-6)
    assert 0.001 < found["ratio"].p_value < 0.999


def test_a_long_test_set_is_there_once_and_not_once_a_resample() -> None:
    first, other = lines(1, 5000), lines(2, 5000)  # 80 kB of counts, 40 MB once for each resample
    tracemalloc.start()
    try:
        metric = Ratio()
        p_randomisation(sample(metric, first, 1), sample(metric, other, 1), 1)
        assert tracemalloc.get_traced_memory()[1] < 8e6
    finally:
        tracemalloc.stop()
