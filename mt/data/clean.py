"""How training pairs are cleaned: repairs and filters in a fixed order, each counted. docs/cleaning.md lists them.

The repairs come first, since the filters judge repaired text; within each kind the order is from cheap to dear.
"""

import copy
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Protocol

import numpy as np

from mt.config import CleaningConfig, CorpusConfig, DataConfig
from mt.data import filters
from mt.data.corpus import read_corpus
from mt.data.duplicates import held_out, normal_form, repeated
from mt.data.languages import model_digest, wrong_language
from mt.data.own_settings import own_settings
from mt.data.repairs import decode_entities, mojibake_repair, replace_controls
from mt.data.scores import check_scores, read_scores

Pair = tuple[str, str]
Reasons = Callable[[Sequence[Pair]], list[str | None]]
BATCH_PAIRS = 10_000
_BATCH_CHARACTERS = 1 << 24  # a batch of very long texts is cut earlier: a few are in memory at a time
_RATIO_TOKENS = 10  # shorter texts have no meaningful ratio
SCORES, TOKENS = "scores", "tokens"  # the names of the steps before and after those of a Cleaner


@dataclass(frozen=True)
class RepairStep:
    """Makes of each text a better one, or leaves it as it is."""

    name: str
    repair: Callable[[str], str]


@dataclass(frozen=True)
class FilterStep:
    """Finds for each of many pairs why it is dropped; None keeps it."""

    name: str
    reasons: Reasons
    remembers: bool = False  # what it saw before: then it has to see all pairs, in order


class Witness(Protocol):
    """Sees what the steps do, such as for showing samples."""

    def dropped(self, reason: str, pair: Pair) -> None: ...

    def repaired(self, kind: str, before: str, after: str) -> None: ...


class Cleaner:
    """The steps of a configuration, and what they did so far.

    Raises ValueError for settings that cannot work here: a package that is missing, a language that is not known.
    """

    def __init__(self, data: DataConfig, witness: Witness | None = None) -> None:
        self.data, self._memory = data, _Memory()
        self.steps = _steps(data, self._memory)
        self.min_scores = data.cleaning.min_scores
        self.witness = witness
        self.dropped: Counter[str] = Counter()  # pairs by their first reason
        self.repaired: Counter[str] = Counter()  # texts by kind and side
        self.left: Counter[str] = Counter()  # pairs after each step; "read": before the first
        self.lost: Counter[str] = Counter()  # pairs that each step dropped

    def of(self, corpus: CorpusConfig, place: str) -> "Cleaner":
        """Returns the cleaner of one corpus: this one, or one by its own settings that counts and remembers with it."""
        own = own_settings(self.data, corpus, place)
        if own is self.data:
            return self
        other = copy.copy(self)
        other.data, other.steps, other.min_scores = own, _steps(own, self._memory), own.cleaning.min_scores
        return other

    @property
    def remembers(self) -> bool:
        """Whether what becomes of a pair depends on those that came before."""
        return any(isinstance(step, FilterStep) and step.remembers for step in self.steps)

    def clean(self, pairs: Iterable[Pair]) -> Iterator[Pair]:
        """Yields what is left of the pairs, in order."""
        for batch in in_batches(pairs):
            if not self.min_scores:
                self.left["read"] += len(batch)
            yield from self._clean(batch)

    def with_scores(self, pairs: Iterable[Pair], scores: Iterable[list[float]]) -> Iterator[Pair]:
        """Yields the pairs whose scores reach data.cleaning.min_scores, which come in the order of its columns."""
        limits = list(self.min_scores.items())
        for pair, values in zip(pairs, scores, strict=True):
            self.left["read"] += 1
            low = next((column for (column, least), value in zip(limits, values, strict=True) if value < least), None)
            if low is None:
                self.left[SCORES] += 1
                yield pair
            else:
                self.drop(SCORES, f"score {low}", pair)

    def drop(self, step: str, reason: str, pair: Pair) -> None:
        """Counts a pair that a step drops."""
        self.dropped[reason] += 1
        self.lost[step] += 1
        if self.witness is not None:
            self.witness.dropped(reason, pair)

    def _clean(self, batch: list[Pair]) -> list[Pair]:
        for step in self.steps:
            if isinstance(step, RepairStep):
                batch = [
                    (self._repair(step, source, "source"), self._repair(step, target, "target"))
                    for source, target in batch
                ]
            else:
                batch = self._filter(step, batch)
            self.left[step.name] += len(batch)
        return batch

    def _filter(self, step: FilterStep, batch: list[Pair]) -> list[Pair]:
        reasons = step.reasons(batch)
        if not any(reasons):
            return batch
        for pair, reason in zip(batch, reasons, strict=True):
            if reason is not None:
                self.drop(step.name, reason, pair)
        return [pair for pair, reason in zip(batch, reasons, strict=True) if reason is None]

    def _repair(self, step: RepairStep, text: str, side: str) -> str:
        repaired = step.repair(text)
        if repaired != text:
            kind = f"{side} {step.name}"
            self.repaired[kind] += 1
            if self.witness is not None:
                self.witness.repaired(kind, text, repaired)
        return repaired


def nothing_left(split: str, dropped: Counter[str]) -> str:
    """Returns the message that cleaning left no pair of a split, with what was dropped."""
    reasons = ", ".join(f"{reason}: {count}" for reason, count in dropped.most_common())
    return (
        f"data.{split}: no pair is left after data.cleaning (dropped {reasons or 'none'}): loosen it, or give other "
        "corpora (mt data shows what each step drops)"
    )


def clean_corpora(
    corpora: dict[str, CorpusConfig], data: DataConfig, cleaner: Cleaner, split: str = "train"
) -> Iterator[Pair]:
    """Yields what a cleaner leaves of all corpora, one after the other, each by its own settings."""
    for name, corpus in corpora.items():
        place = f"data.{split}.{name}"
        own = cleaner.of(corpus, place)
        yield from own.clean(scored_pairs(corpus, data, own, place))


def scored_pairs(corpus: CorpusConfig, data: DataConfig, cleaner: Cleaner, place: str) -> Iterator[Pair]:
    """Yields the pairs of a corpus, called `place` in messages, that have the scores its cleaner asks for.

    No step comes yet.
    """
    pairs = read_corpus(corpus, data, place, cleaner.dropped)
    if cleaner.min_scores:
        pairs = cleaner.with_scores(pairs, read_scores(corpus, list(cleaner.min_scores), place))
    return pairs


def check_cleaning(data: DataConfig) -> None:
    """Raises ValueError for settings of data.cleaning that cannot work here; validation and test are not read."""
    for name, corpus in data.train.items():
        place = f"data.train.{name}"
        own = own_settings(data, corpus, place)
        _steps(own, None)
        if own.cleaning.min_scores:
            check_scores(corpus, list(own.cleaning.min_scores), place)


def outer_versions(config: CleaningConfig) -> dict[str, str]:
    """Returns what the result of these settings depends on besides settings and text: a package, a model.

    Raises ValueError for a model that cannot be read.
    """
    versions = {}
    if config.mojibake != "keep":
        versions["ftfy"] = version("ftfy")
    if config.language_model is not None:
        versions["language_model"] = model_digest(config.language_model)
    return versions


def in_batches(pairs: Iterable[Pair]) -> Iterator[list[Pair]]:
    """Yields the pairs in lists of 10,000, or fewer where texts are long."""
    batch: list[Pair] = []
    characters = 0
    for pair in pairs:
        batch.append(pair)
        characters += len(pair[0]) + len(pair[1])
        if len(batch) == BATCH_PAIRS or characters >= _BATCH_CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


def token_reasons(source: np.ndarray, target: np.ndarray, config: CleaningConfig) -> dict[str, np.ndarray]:
    """Returns for each reason which pairs it drops: bool [pairs], at most one is true for a pair.

    source, target: numbers of tokens without </s>, int [pairs].
    """
    longer, shorter = np.maximum(source, target), np.minimum(source, target)
    holds = {
        "empty source": source == 0,  # normalisation can leave nothing
        "empty target": target == 0,
        "too many source tokens": source > config.max_tokens,
        "too many target tokens": target > config.max_tokens,
    }
    if config.max_token_ratio:
        holds["token ratio"] = (longer >= _RATIO_TOKENS) & (longer > config.max_token_ratio * shorter)
    before = np.zeros(len(source), dtype=bool)
    first = {}
    for reason, drops in holds.items():
        first[reason] = drops & ~before
        before |= drops
    return first


def _each(check: filters.Filter) -> Reasons:
    return lambda pairs: [check(source, target) for source, target in pairs]


class _Memory:
    """What the cleaners of a run's corpora know together: the pairs that came before, and those held out."""

    def __init__(self) -> None:
        self.duplicates = repeated("duplicate", str)
        self.near_duplicates = repeated("near duplicate", normal_form)
        self._held_out: dict[str, filters.Filter] = {}  # by data.cleaning.drop_held_out

    def held_out(self, data: DataConfig) -> filters.Filter:
        kind = data.cleaning.drop_held_out
        if kind not in self._held_out:
            self._held_out[kind] = held_out(data)
        return self._held_out[kind]


def _steps(data: DataConfig, memory: _Memory | None) -> list[RepairStep | FilterStep]:
    """Returns the steps that data.cleaning asks for, in the one order that there is.

    Without a memory, for a look at the settings alone, those that need one are left out.
    """
    config = data.cleaning
    repairs: dict[str, Callable[[str], str]] = {}
    if config.html_entities != "keep":
        repairs["HTML entities"] = decode_entities
    if config.mojibake != "keep":
        repairs["mojibake"] = mojibake_repair()
    if config.control_characters != "keep":
        repairs["control characters"] = replace_controls
    what = {
        "HTML entities": config.html_entities,
        "mojibake": config.mojibake,
        "control characters": config.control_characters,
    }
    steps: list[RepairStep | FilterStep] = [
        RepairStep(name, repair) for name, repair in repairs.items() if what[name] == "repair"
    ]
    checks: dict[str, filters.Filter] = {
        "empty": filters.empty,
        "characters": filters.too_many_characters(config.max_characters),
    }
    if config.max_length_ratio:
        checks["length ratio"] = filters.length_ratio(config.max_length_ratio)
    if config.drop_identical:
        checks["identical"] = filters.identical
    if config.drop_replacement_characters:
        checks["replacement characters"] = filters.replacement_character
    checks |= {name: filters.changed_by(repair, name) for name, repair in repairs.items() if what[name] == "drop"}
    if config.drop_bracket_mismatch:
        checks["bracket mismatch"] = filters.bracket_mismatch
    if config.drop_number_mismatch:
        checks["number mismatch"] = filters.number_mismatch
    if config.min_script_share:
        languages = data.source_language, data.target_language
        checks["script"] = filters.wrong_script(*languages, config.min_script_share)
    if config.drop_held_out != "none" and (data.valid or data.test) and memory:
        checks["held out"] = memory.held_out(data)
    steps += [FilterStep(name, _each(check)) for name, check in checks.items()]
    if config.drop_duplicates and memory:
        steps.append(FilterStep("duplicates", memory.duplicates, remembers=True))
    if config.drop_near_duplicates and memory:
        steps.append(FilterStep("near duplicates", memory.near_duplicates, remembers=True))
    if config.min_language_confidence:
        steps.append(FilterStep("language", _each(wrong_language(data))))
    return steps
