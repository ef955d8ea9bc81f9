"""The largest batch that a GPU's memory holds. Not tried on a GPU."""

import dataclasses
import gc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from mt.config import TrainConfig
from mt.data.batch import ROUND_TO, Batch, pack
from mt.data.encoded import EncodedCorpus
from mt.tokenizer import TokenizerPair
from mt.training.distributed import Group
from mt.training.monitor import Monitor
from mt.training.trainer import Trainer

FIRST_TOKENS, MOST_TOKENS = 1024, 1 << 20
SHORT_SENTENCE = 8  # tokens; many short sentences and few long ones need different buffers
KEPT = 0.9  # of what fits: validation and communication take their part, and memory gets fragmented
FIRST_PIECE_ID = 4  # after padding, unknown, <s> and </s>


def check_fit_batch(config: TrainConfig, device: torch.device) -> None:
    """Raises ValueError where there is no GPU whose memory says what fits."""
    if config.trainer.fit_batch and device.type != "cuda":
        raise ValueError(
            f"trainer.fit_batch=true: needs a GPU, and the device is {device.type}: set trainer.fit_batch=false, and "
            "trainer.batch_tokens to the size that you want"
        )


def fit_batch(
    config: TrainConfig,
    run_dir: Path,
    device: torch.device,
    tokenizers: TokenizerPair,
    corpus: EncodedCorpus,
    group: Group,
    monitor: Monitor,
) -> TrainConfig:
    """Returns the settings with the largest trainer.batch_tokens that all ranks have memory for, and tells it.

    Each rank tries updates of a model of its own, without torch.compile, which takes a minute for each size and
    needs less memory. Raises ValueError where not even 128 tokens fit.
    """
    own = _largest_alone(config, run_dir, device, tokenizers, corpus, monitor)
    gc.collect()
    torch.cuda.empty_cache()
    fitting = int(group.table([own]).min())
    if not fitting:
        raise ValueError(f"trainer.fit_batch=true: not even {ROUND_TO} tokens fit on {device}: choose a smaller model")
    batch_tokens = kept(fitting)
    monitor.message(f"trainer.fit_batch: {fitting} tokens fit; the run's trainer.batch_tokens is {batch_tokens}")
    return dataclasses.replace(config, trainer=dataclasses.replace(config.trainer, batch_tokens=batch_tokens))


def largest_that_fits(fits: Callable[[int], bool], most: int) -> int:
    """Returns a number of tokens up to `most` that fits, less than 128 or 1/32 below the largest one; 0: none found."""
    low, high = 0, min(FIRST_TOKENS, most)
    while fits(high):
        if high == most:
            return most
        low, high = high, min(2 * high, most)
    while high - low > max(ROUND_TO, low // 32):
        middle = -(-(low + high) // 2 // ROUND_TO) * ROUND_TO
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def kept(tokens: int) -> int:
    """Returns what a run uses of the tokens that fit: a multiple of 128 where there is one."""
    share = int(KEPT * tokens)
    return max(share - share % ROUND_TO, min(tokens, ROUND_TO))


def _largest_alone(
    config: TrainConfig,
    run_dir: Path,
    device: torch.device,
    tokenizers: TokenizerPair,
    corpus: EncodedCorpus,
    monitor: Monitor,
) -> int:
    """Returns how many tokens fit for this rank, by a trainer that is gone afterwards."""
    alone = dataclasses.replace(config, trainer=dataclasses.replace(config.trainer, compile=False))
    trainer = Trainer(alone, run_dir, device, tokenizers, corpus, None, Group())
    trainer.model.train()
    sides = corpus.source_lengths, corpus.target_lengths
    longest = max(int(side.max()) for side in sides) + 1
    most = min(MOST_TOKENS, max(int(side.sum()) + len(corpus) for side in sides))

    def fits(tokens: int) -> bool:
        return _updates_fit(trainer, [_batch(tokenizers, tokens, n) for n in (SHORT_SENTENCE, longest)], monitor)

    return largest_that_fits(fits, most)


def _updates_fit(trainer: Trainer, batches: list[Batch], monitor: Monitor) -> bool:
    """Returns whether an update by each of the batches found memory enough."""
    try:
        for batch in batches:
            trainer.train_step([batch], batch.target_tokens, monitor)
        torch.cuda.synchronize(trainer.device)
        return True
    except torch.OutOfMemoryError:
        pass
    trainer.model.zero_grad(set_to_none=True)  # out here, where the error holds none of its tensors any more
    torch.cuda.empty_cache()
    return False


def _batch(tokenizers: TokenizerPair, tokens: int, sentence_tokens: int) -> Batch:
    """Returns a batch of made-up sentences of one length, </s> counted, that fills both streams."""
    sentence_tokens = min(sentence_tokens, tokens)
    count, random = tokens // sentence_tokens, np.random.default_rng(0)
    lengths = np.full(count, sentence_tokens - 1)
    source, target = (
        random.integers(FIRST_PIECE_ID, tokenizer.size, int(lengths.sum()))
        for tokenizer in (tokenizers.source, tokenizers.target)
    )
    return pack(source, lengths, target, lengths, np.zeros(count, dtype=np.int64))
