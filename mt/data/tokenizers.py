"""Tokenizers of the training pairs, kept beside the encoded corpora: a sweep of learning rates trains them once."""

import itertools
import json
import os
import shutil
import warnings
from collections.abc import Callable
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

from mt.config import DataConfig, TokenizerConfig
from mt.data.clean import Cleaner, scored_pairs
from mt.data.encoded import DEFAULT_CACHE_DIR, cache_key
from mt.data.streamed import is_streamed
from mt.tokenizer import TokenizerPair, train_tokenizers

_WARNINGS = "warnings.json"


def sampled_tokenizers(
    data: DataConfig, config: TokenizerConfig, seed: int, tell: Callable[[str], None]
) -> TokenizerPair:
    """Returns tokenizers trained on a sample of the training pairs, or what the same settings and pairs gave before.

    The seed draws the sample, which is cleaned; of a streamed corpus the first pairs are taken. Warns as
    train_tokenizers does, each time. `tell` hears of the training.
    """
    settings = json.dumps([asdict(config), seed, version("sentencepiece")], sort_keys=True)
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
    pairs = itertools.chain.from_iterable(
        scored_pairs(corpus, data, cleaner, f"data.train.{name}") for name, corpus in data.train.items()
    )
    if is_streamed(data):
        pairs = itertools.islice(pairs, config.training_sentences)
    return train_tokenizers(pairs, config, seed, cleaner.clean)


def _store(folder: Path, pair: TokenizerPair, messages: list[str]) -> None:
    part = folder.with_name(f"{folder.name}.{os.getpid()}.part")
    try:
        pair.save(part)
        (part / _WARNINGS).write_text(json.dumps(messages), encoding="utf-8")
        shutil.rmtree(folder, ignore_errors=True)  # one that could not be read
        os.replace(part, folder)
    except OSError:  # another process was faster, or the disk is full, of which encoding tells
        shutil.rmtree(part, ignore_errors=True)
