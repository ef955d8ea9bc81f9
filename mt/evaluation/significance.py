"""Whether two systems differ by more than chance, on one test set: sacreBLEU's two paired tests."""

from dataclasses import dataclass
from typing import Any

from mt.evaluation.metrics import Score, check_seed, check_text, make_metrics, resampled_score
from mt.evaluation.resampling import EXCHANGES, p_bootstrap, p_randomisation, sample


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
    and its seed, but for two cases in which that prints the smallest possible: p is 1 here of two equal scores, and
    where few sentences differ, that of the randomisation counts the mixtures that are the systems themselves. Raises
    ValueError for fewer than two systems and as score_with_intervals.
    """
    if len(systems) < 2:
        raise ValueError("a comparison needs at least two systems")
    seed = check_seed()
    for hypotheses in systems.values():
        check_text(hypotheses, references)
    comparisons = []
    for metric in make_metrics(references, target_language, tokenizer).values():
        first = None
        for name, hypotheses in systems.items():
            found = sample(metric, hypotheses, seed)
            score = resampled_score(found, seed, EXCHANGES)
            if first is None:
                first, differences = found, (None, None, None)
            elif found.score.score == first.score.score:
                differences = 0.0, 1.0, 1.0
            else:
                difference = float(found.score.score - first.score.score)
                differences = difference, p_bootstrap(first, found), p_randomisation(first, found, seed)
            comparisons.append(Comparison(name, score, *differences))
    return comparisons
