"""Where a system is good and where not: scores by the length of the source, words by how often training saw them."""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from sacrebleu.metrics import CHRF

from mt.evaluation.metrics import CJK, Score, make_bleu, score_metric

_WORD = re.compile(f"{CJK}|(?:(?!{CJK})\\S)+")
_LENGTHS = (0, 1, 6, 11, 16, 21, 31, 41, 61)  # the first of each bucket, in words
_FREQUENCIES = (0, 1, 2, 5, 10, 100)  # the first of each bucket, in occurrences


@dataclass(frozen=True)
class LengthBucket:
    """The sentences whose source has so many words, scored as a corpus of their own."""

    words: str  # such as 6-10
    sentences: int
    scores: dict[str, Score]  # bleu, chrf


@dataclass(frozen=True)
class FrequencyBucket:
    """The target words that training text holds so many times, counted in references and hypotheses.

    A word of a hypothesis is right as often as the reference of the same sentence has it.
    """

    occurrences: str  # in training, such as 2-4
    in_references: int
    in_hypotheses: int
    right: int

    @property
    def precision(self) -> float:
        """The share of the hypotheses' words that are right, 0 to 1."""
        return self.right / self.in_hypotheses if self.in_hypotheses else 0.0

    @property
    def recall(self) -> float:
        """The share of the references' words that the hypotheses have, 0 to 1."""
        return self.right / self.in_references if self.in_references else 0.0

    @property
    def f1(self) -> float:
        """The harmonic mean of precision and recall, 0 to 1."""
        total = self.in_references + self.in_hypotheses
        return 2 * self.right / total if total else 0.0


def count_words(text: str) -> int:
    """Returns the words between white space, a Chinese or Japanese character counting as one."""
    return len(_WORD.findall(text))


def by_length(
    sources: list[str], hypotheses: list[str], references: list[list[str]], tokenizer: str
) -> list[LengthBucket]:
    """Returns the buckets that have sentences, the shortest first; all lists are as long as `sources`."""
    members: dict[int, list[int]] = {}
    for sentence, source in enumerate(sources):
        members.setdefault(_bucket(count_words(source), _LENGTHS), []).append(sentence)
    buckets = []
    for bucket, chosen in sorted(members.items()):
        own_references = [[lines[i] for i in chosen] for lines in references]
        metrics = {"bleu": make_bleu(tokenizer, own_references), "chrf": CHRF(references=own_references)}
        own = [hypotheses[i] for i in chosen]
        scores = {key: score_metric(metric, own) for key, metric in metrics.items()}
        buckets.append(LengthBucket(_label(bucket, _LENGTHS), len(chosen), scores))
    return buckets


def by_frequency(
    hypotheses: list[str], references: list[str], training: Iterable[str], tokenizer: str
) -> list[FrequencyBucket]:
    """Returns all buckets, the rarest words first. `training` is the target side of the training text, line by line.

    Words are those of sacreBLEU's `tokenizer` (13a, zh, ...), upper and lower case being different.
    """
    cut = make_bleu(tokenizer).tokenizer
    pairs = [(Counter(cut(h).split()), Counter(cut(r).split())) for h, r in zip(hypotheses, references, strict=True)]
    wanted = {word for pair in pairs for words in pair for word in words}
    seen = Counter(word for line in training for word in cut(line).split() if word in wanted)
    in_references, in_hypotheses, right = [0] * len(_FREQUENCIES), [0] * len(_FREQUENCIES), [0] * len(_FREQUENCIES)
    for hypothesis, reference in pairs:
        for totals, words in (
            (in_hypotheses, hypothesis),
            (in_references, reference),
            (right, hypothesis & reference),
        ):
            for word, count in words.items():
                totals[_bucket(seen[word], _FREQUENCIES)] += count
    labels = [_label(bucket, _FREQUENCIES) for bucket in range(len(_FREQUENCIES))]
    return [FrequencyBucket(*row) for row in zip(labels, in_references, in_hypotheses, right, strict=True)]


def _bucket(number: int, firsts: tuple[int, ...]) -> int:
    return sum(first <= number for first in firsts) - 1


def _label(bucket: int, firsts: tuple[int, ...]) -> str:
    """Returns what a bucket holds: 0, 2-4, 100+."""
    if bucket + 1 == len(firsts):
        return f"{firsts[bucket]}+"
    first, last = firsts[bucket], firsts[bucket + 1] - 1
    return str(first) if first == last else f"{first}-{last}"
