"""Tokenizers of the training pairs, kept beside the encoded corpora: a sweep of learning rates trains them once."""

import itertools
import json
import os
import shutil
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

from mt.config import DataConfig, TokenizerConfig
from mt.data.clean import Cleaner, Pair, nothing_left, scored_pairs
from mt.data.encoded import DEFAULT_CACHE_DIR, cache_key
from mt.data.streamed import is_streamed
from mt.data.tags import training_tags
from mt.tokenizer import TokenizerPair, train_tokenizers

_WARNINGS = "warnings.json"


def sampled_tokenizers(
    data: DataConfig, config: TokenizerConfig, seed: int, tell: Callable[[str], None]
) -> TokenizerPair:
    """Returns tokenizers trained on a sample of the training pairs, or what the same settings and pairs gave before.

    The seed draws the sample, which is cleaned; of a streamed corpus the first pairs are taken. Warns as
    train_tokenizers does, each time. `tell` hears of the training.
    """
    settings = json.dumps([asdict(config), seed, training_tags(data), version("sentencepiece")], sort_keys=True)
    key = cache_key(data.train, data, settings, True, "train")
    folder = Path(data.cache_dir or DEFAULT_CACHE_DIR) / f"{key}.tokenizers"
    try:
        pair = TokenizerPair.load(folder)
        messages = json.loads((folder / _WARNINGS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        tell("training the tokenizer")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            pair = _trained(data, config, seed)
        messages = [str(warning.message) for warning in caught]
        _store(folder, pair, messages)
    for message in messages:
        warnings.warn(message, stacklevel=2)
    return pair


def _trained(data: DataConfig, config: TokenizerConfig, seed: int) -> TokenizerPair:
    cleaner = Cleaner(data)
    cleaners = {name: cleaner.of(corpus, f"data.train.{name}") for name, corpus in data.train.items()}

    def numbered() -> Iterator[tuple[str, str, str]]:
        for name, own in cleaners.items():
            for source, target in scored_pairs(data.train[name], data, own, f"data.train.{name}"):
                yield source, target, name

    def cleaned(sample: Sequence[tuple[str, str, str]]) -> list[Pair]:
        left = [
            pair
            for name, own in cleaners.items()
            for pair in own.clean((source, target) for source, target, corpus in sample if corpus == name)
        ]
        if not left:
            raise ValueError(nothing_left("train", cleaner.dropped))
        return left

    most = config.training_sentences if is_streamed(data) else None
    return train_tokenizers(itertools.islice(numbered(), most), config, seed, training_tags(data), cleaned)


def _store(folder: Path, pair: TokenizerPair, messages: list[str]) -> None:
    part = folder.with_name(f"{folder.name}.{os.getpid()}.part")
    try:
        pair.save(part)
        (part / _WARNINGS).write_text(json.dumps(messages), encoding="utf-8")
        shutil.rmtree(folder, ignore_errors=True)  # one that could not be read
        os.replace(part, folder)
    except OSError:  # another process was faster, or the disk is full, of which encoding tells
        shutil.rmtree(part, ignore_errors=True)
