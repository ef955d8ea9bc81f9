"""Whether two systems differ by more than chance, on one test set: sacreBLEU's two paired tests."""

from dataclasses import dataclass
from typing import Any

from sacrebleu.significance import PairedTest

from mt.evaluation.metrics import Interval, Score, check_seed, check_text, make_metrics


@dataclass(frozen=True)
class Comparison:
    """One system under one metric; the differences are to the first system, which has none itself.

    p_bootstrap and p_randomisation are the shares, 0 to 1, of resampled test sets and of shuffled systems that differ
    by more than these two do, if the two were alike.
    """

    system: str
    score: Score
    difference: float | None
    p_bootstrap: float | None
    p_randomisation: float | None

    def record(self) -> dict[str, Any]:
        """Returns JSON values."""
        differences = {key: value for key, value in vars(self).items() if key not in ("system", "score")}
        return {"system": self.system, "metric": self.score.name, **self.score.record(), **differences}


def compare_systems(
    systems: dict[str, list[str]], references: list[list[str]], target_language: str, tokenizer: str | None = None
) -> list[Comparison]:
    """Returns one Comparison for each metric (BLEU, chrF, chrF++, TER) and system, the metrics in the outer order.

    The p-values are those of `sacrebleu --paired-bs` and `--paired-ar` with its numbers of trials (1,000 and 10,000)
    and its seed; only that of two equal scores, which there is the smallest possible, is 1 here. Raises ValueError for
    fewer than two systems and as score_with_intervals.
    """
    if len(systems) < 2:
        raise ValueError("a comparison needs at least two systems")
    check_seed()
    for hypotheses in systems.values():
        check_text(hypotheses, references)
    metrics = make_metrics(references, target_language, tokenizer)
    named = list(systems.items())
    bootstrap = PairedTest(named, metrics, None, test_type="bs")
    signatures, resampled = bootstrap()
    randomisation = PairedTest(named, metrics, None, test_type="ar")
    _, shuffled = randomisation()
    comparisons = []
    for metric, signature in signatures.items():
        signature.update("ar", randomisation.n_samples)
        first = resampled[metric][0]
        for name, one, other in zip(systems, resampled[metric], shuffled[metric], strict=True):
            score = Score(metric, float(one.score), str(signature), Interval(float(one.mean), float(one.ci)))
            difference = None if one is first else float(one.score - first.score)
            p_values = (None, None) if one is first else (one.p_value, other.p_value)
            if difference == 0:
                p_values = (1.0, 1.0)
            comparisons.append(Comparison(name, score, difference, *p_values))
    return comparisons
