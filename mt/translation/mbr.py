"""Minimum Bayes risk decoding: of many samples the one that the others agree with most (Eikema and Aziz 2020)."""

from collections.abc import Sequence

import numpy as np

ORDERS, BETA = 6, 2.0  # chrF2, as sacreBLEU's default has it


def expected_chrf(texts: Sequence[str]) -> np.ndarray:
    """Returns for each of n texts the mean of its sentence chrF2 (0 to 100) against all n, itself included: [n].

    chrF is sacreBLEU's sentence score with its defaults (character n-grams up to 6, white space left out, effective
    order): F of the mean precision and the mean recall over the orders that both sides have.
    """
    stripped = ["".join(text.split()) for text in texts]
    precision, recall, orders = (np.zeros((len(texts), len(texts))) for _ in range(3))
    for order in range(1, ORDERS + 1):
        counts = _counts(stripped, order)  # [n, kinds]
        sizes = counts.sum(1)
        overlap = np.stack([np.minimum(row, counts).sum(1) for row in counts])  # [hypothesis, reference]
        both = (sizes[:, None] > 0) & (sizes[None, :] > 0)
        precision += np.where(both, overlap / np.maximum(sizes[:, None], 1), 0)
        recall += np.where(both, overlap / np.maximum(sizes[None, :], 1), 0)
        orders += both
    precision, recall = precision / np.maximum(orders, 1), recall / np.maximum(orders, 1)
    factor = BETA**2
    denominator = factor * precision + recall
    scores = np.where(denominator > 0, (1 + factor) * precision * recall / np.where(denominator > 0, denominator, 1), 0)
    return 100 * scores.mean(1)


def _counts(texts: Sequence[str], order: int) -> np.ndarray:
    """Returns how often each text has each n-gram that occurs in any: [texts, kinds] int32."""
    kinds: dict[str, int] = {}
    grams = [
        [kinds.setdefault(text[i : i + order], len(kinds)) for i in range(len(text) - order + 1)] for text in texts
    ]
    counts = np.zeros((len(texts), len(kinds)), dtype=np.int32)
    for row, ids in enumerate(grams):
        np.add.at(counts[row], ids, 1)
    return counts
