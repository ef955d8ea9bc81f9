"""Which pairs of several corpora an epoch has, by weights, by size or by temperature, in stages of a run.

An epoch has as many pairs as the corpora that are read hold together, those read more than once by `upsample` counted
so often. A corpus whose share is larger than its size is gone through several times in an epoch, one whose share is
smaller in part, and the next epoch goes on behind it: each is an endless row of passes, and each pass has every pair of
it once, in an order of its own. All of it is a function of the seed, the stage and the epoch.
"""

from dataclasses import dataclass

import numpy as np

from mt.config import DataConfig
from mt.mapping import suggest

MOST_UPSAMPLED_PAIRS = 200_000_000  # of an epoch that upsampling made larger than its corpora: 30 bytes each


@dataclass(frozen=True)
class Stage:
    """From an update on, how the corpora are mixed."""

    name: str  # "" is the first
    from_step: int  # updates that come before
    pairs: tuple[int, ...]  # of each corpus
    shares: tuple[float, ...] | None  # of each corpus, together 1; None: an epoch has every pair once
    epoch_pairs: int

    def describe(self, names: list[str]) -> str:
        """Returns the share of each corpus and how often an epoch has each of its pairs, in words."""
        shares = self.shares or tuple(pairs / self.epoch_pairs for pairs in self.pairs)
        parts = [
            f"{name} {100 * share:.1f}% (each of {pairs:,} pairs {share * self.epoch_pairs / max(pairs, 1):.3g} times)"
            for name, share, pairs in zip(names, shares, self.pairs, strict=True)
        ]
        begins = f"from update {self.from_step + 1:,}, stage {self.name}, " if self.name else ""
        return f"{begins}an epoch has {self.epoch_pairs:,} pairs: {', '.join(parts)}"


def check_mixture(data: DataConfig) -> None:
    """Raises ValueError, naming the setting, for weights and stages that do not fit the training corpora."""
    _stages(data, [1] * len(data.train))


def plan_stages(data: DataConfig, pairs: list[int]) -> list[Stage]:
    """Returns the stages of a run, the first of which begins at update 0, by their beginnings.

    pairs: of each training corpus, after cleaning. Raises ValueError as check_mixture, and for a corpus that has a
    weight and no pairs.
    """
    stages = _stages(data, pairs)
    for stage in stages:
        if stage.epoch_pairs > max(MOST_UPSAMPLED_PAIRS, sum(pairs)):
            name, corpus = max(data.train.items(), key=lambda item: item[1].upsample)
            raise ValueError(
                f"data.train.{name}.upsample={corpus.upsample:g}: an epoch would have {stage.epoch_pairs:,} pairs, "
                f"more than {MOST_UPSAMPLED_PAIRS:,}: lower it, or give each corpus a weight"
            )
        for name, share, count in zip(data.train, stage.shares or (), pairs, strict=False):
            if share and not count:
                setting = f"data.stages.{stage.name}.weights.{name}" if stage.name else f"data.train.{name}.weight"
                raise ValueError(
                    f"{setting}: the corpus has no pair left after data.cleaning, so none can be drawn: give it the "
                    "weight 0, or loosen its cleaning"
                )
    return stages


def epoch_order(stage: Stage, number: int, seed: int, epoch: int) -> np.ndarray:
    """Returns the pairs of an epoch, by index over all corpora: any stretch of it has the shares of the stage.

    number: of the stage in the run. int32 [about stage.epoch_pairs].
    """
    rows, places = [], []
    first = 0
    for corpus, (share, count) in enumerate(zip(stage.shares, stage.pairs, strict=True)):
        begin, end = (round(share * stage.epoch_pairs * e) for e in (epoch, epoch + 1))
        if end > begin:
            rows.append(first + _stretch(count, begin, end, seed, corpus, number))
            random = _generator(seed, corpus, number, epoch, 3)
            places.append((np.arange(end - begin) + random.random()) / (end - begin))  # evenly over the epoch
        first += count
    return np.concatenate(rows)[np.argsort(np.concatenate(places), kind="stable")]


def _stretch(count: int, begin: int, end: int, seed: int, corpus: int, stage: int) -> np.ndarray:
    """Returns what stands from `begin` to `end` in the endless row of a corpus's passes of `count` pairs."""
    parts = []
    for number in range(begin // count, (end - 1) // count + 1):
        order = _generator(seed, corpus, stage, number, 2).permutation(np.arange(count, dtype=np.int32))
        start = number * count
        parts.append(order[max(begin - start, 0) : min(end - start, count)])
    return np.concatenate(parts)


def _generator(seed: int, corpus: int, stage: int, number: int, purpose: int) -> np.random.Generator:
    """purpose: other numbers than those of plan_epoch and of batches, which are 0 and 1 there."""
    return np.random.Generator(np.random.Philox(key=seed, counter=[0, purpose, corpus << 32 | stage, number]))


def _stages(data: DataConfig, pairs: list[int]) -> list[Stage]:
    corpora = list(data.train.values())
    sizes = [count * corpus.upsample for count, corpus in zip(pairs, corpora, strict=True)]
    found = [Stage("", 0, tuple(pairs), *_mixed(_first_shares(data, sizes), sizes))]
    for name, stage in data.stages.items():
        setting = f"data.stages.{name}.weights"
        for corpus in stage.weights:
            if corpus not in data.train:
                known = ", ".join(data.train)
                raise ValueError(
                    f"{setting}.{corpus}: data.train has no corpus of this name{suggest(corpus, data.train)} "
                    f"(it has {known})"
                )
        if stage.temperature is not None:
            shares = _by_temperature(sizes, stage.temperature)
        else:
            shares = [stage.weights.get(corpus, 0.0) for corpus in data.train]
            if not any(shares):
                raise ValueError(f"{setting}: all weights are 0: give at least one corpus a weight above 0")
        found.append(Stage(name, stage.from_step, tuple(pairs), *_mixed(shares, sizes)))
    found.sort(key=lambda stage: stage.from_step)
    for before, after in zip(found, found[1:], strict=False):
        if before.from_step == after.from_step:
            raise ValueError(
                f"data.stages.{after.name}.from_step={after.from_step}: stage {before.name} begins there too: give "
                "each its own"
            )
    return found


def _first_shares(data: DataConfig, sizes: list[float]) -> list[float] | None:
    """Returns the shares that the corpora's own settings give, not yet together 1, or None for every pair once."""
    weighted = {name: corpus.weight for name, corpus in data.train.items() if corpus.weight is not None}
    upsampled = [name for name, corpus in data.train.items() if corpus.upsample != 1]
    if not weighted:
        if data.temperature == 1 and not upsampled:
            return None
        return _by_temperature(sizes, data.temperature)
    missing = [name for name in data.train if name not in weighted]
    if missing:
        raise ValueError(
            f"data.train.{missing[0]}: has no weight, and data.train.{next(iter(weighted))} has one: give each corpus "
            "a weight, or none"
        )
    if data.temperature != 1 or upsampled:
        setting = f"data.train.{upsampled[0]}.upsample" if upsampled else "data.temperature"
        raise ValueError(f"{setting}: has no effect beside weights: leave it out, or the weights")
    if not any(weighted.values()):
        raise ValueError("data.train: all weights are 0: give at least one corpus a weight above 0")
    return list(weighted.values())


def _by_temperature(sizes: list[float], temperature: float) -> list[float]:
    largest = max(sizes) or 1.0  # without which a small temperature makes numbers that no float holds
    return [(size / largest) ** (1 / temperature) for size in sizes]


def _mixed(shares: list[float] | None, sizes: list[float]) -> tuple[tuple[float, ...] | None, int]:
    """Returns shares that are together 1, and the number of an epoch's pairs."""
    if shares is None:
        return None, round(sum(sizes))
    total = sum(shares)
    pairs = sum(size for size, share in zip(sizes, shares, strict=True) if share)
    return tuple(share / total for share in shares), max(round(pairs), 1)
