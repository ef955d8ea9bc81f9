"""Scores of test sets drawn anew and of systems mixed by a coin, from what a metric counted in each sentence.

Draws, coins and arithmetic are those of sacreBLEU's command line. Its own functions hold the counts of every sentence
once for each draw, 10 GB for chrF++ on 100,000 sentences; here the counts are there once.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.base import Score as MetricScore

RESAMPLES = 1000  # of the bootstrap; sacreBLEU's default, as is that of the randomisation
EXCHANGES = 10_000
_AT_ONCE = 32  # exchanges; numpy draws coins in words of 32 bits, and so each block goes on where the last one ended


@dataclass(frozen=True)
class Sample:
    """A system under a metric: its score, what the metric counted, and the scores of RESAMPLES resampled test sets."""

    metric: Metric
    score: MetricScore
    counts: np.ndarray  # [sentences, counts of the metric]
    resampled: np.ndarray  # [RESAMPLES]


def sample(metric: Metric, hypotheses: list[str], seed: int) -> Sample:
    """Returns scores against the references that the metric holds; all systems meet the same resampled test sets."""
    counts = np.array(metric._extract_corpus_statistics(hypotheses, None), dtype=np.float64)
    sums = (np.float32(drawn @ counts) for drawn in draws(len(counts), seed))
    resampled = np.array([metric._compute_score_from_stats(one).score for one in sums])
    return Sample(metric, metric._compute_score_from_stats(counts.sum(0).tolist()), counts, resampled)


def draws(sentences: int, seed: int) -> Iterator[np.ndarray]:
    """Yields, for RESAMPLES test sets of this size drawn with replacement, how often each holds every sentence."""
    generator = np.random.default_rng(seed)
    for _ in range(RESAMPLES):
        yield np.bincount(generator.choice(sentences, size=sentences), minlength=sentences)


def p_bootstrap(first: Sample, other: Sample) -> float:
    """Returns the share of resamples whose difference exceeds the mean of all by more than the systems differ."""
    differences = np.abs(other.resampled - first.resampled)
    return _p(differences - differences.mean(), abs(first.score.score - other.score.score))


def p_randomisation(first: Sample, other: Sample, seed: int) -> float:
    """Returns the share of EXCHANGES mixtures of two systems that differ by more than these, or are these.

    sacreBLEU leaves out the last: mixtures in which all or none of the sentences that count differently are exchanged,
    2^(1 - n) of those of n such sentences. Of two systems that differ in a single one it says p = 0.0001; it is 1.
    """
    exchanged = _exchanged_differences(first, other, seed)
    unlike = int((first.counts != other.counts).any(axis=1).sum())
    return min(_p(exchanged, abs(first.score.score - other.score.score)) + 2.0 ** (1 - unlike), 1.0)


def _exchanged_differences(first: Sample, other: Sample, seed: int) -> np.ndarray:
    """Returns how wide EXCHANGES mixtures differ, a coin saying for each sentence whose counts go into which."""
    generator, metric = np.random.default_rng(seed), first.metric
    total, change = first.counts.sum(0) + other.counts.sum(0), first.counts - other.counts
    differences = []
    for done in range(0, EXCHANGES, _AT_ONCE):
        coins = generator.integers(2, size=(min(_AT_ONCE, EXCHANGES - done), len(change)), dtype=bool)
        mixed = other.counts.sum(0) + coins @ change
        for one, rest in zip(mixed.tolist(), (total - mixed).tolist(), strict=True):
            scores = [metric._compute_score_from_stats(sums).score for sums in (one, rest)]
            differences.append(abs(scores[0] - scores[1]))
    return np.array(differences)


def _p(statistics: np.ndarray, found: float) -> float:
    return (int((statistics > found).sum()) + 1) / (len(statistics) + 1)
