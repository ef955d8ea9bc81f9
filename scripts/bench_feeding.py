"""Times what feeds the trainer, stage by stage, and prints one JSON line for each: pairs/s, seconds, peak memory.

The corpus is made from two real files by repetition, with one word of each sentence replaced by another of the file, in
a temporary folder that is deleted afterwards (about 420 bytes a pair). Each stage runs in a process of its own. CPU
seconds are those of all its threads: beside other work they tell more than the wall clock does. Linux only.
"""

import argparse
import itertools
import json
import multiprocessing
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from bench_setting import SEED, seconds_since_process_start

if TYPE_CHECKING:
    from mt.config import TrainConfig
    from mt.data.encoded import EncodedCorpus
    from mt.training.stream import BatchStream

WINDOWS = 50  # timed on either side of the end of an epoch


def make_corpus(source: Path, target: Path, folder: Path, pairs: int) -> None:
    """Writes corpus.source and corpus.target, of so many pairs."""
    from mt.data.files import read_lines

    generator = random.Random(SEED)
    for path, side in ((source, "source"), (target, "target")):
        lines = [line.split(" ") for line in read_lines(path)]
        known = sorted(set(itertools.chain.from_iterable(lines)))
        with open(folder / f"corpus.{side}", "w", encoding="utf-8", newline="") as file:
            for line in itertools.islice(itertools.cycle(lines), pairs):
                words = line.copy()
                words[int(generator.random() * len(words))] = known[int(generator.random() * len(known))]
                file.write(" ".join(words) + "\n")


def make_tokenizer(source: Path, target: Path, folder: Path, algorithm: str, vocabulary_size: int) -> None:
    from mt.config import TokenizerConfig
    from mt.data.files import read_lines
    from mt.tokenizer import train_tokenizers

    pairs = zip(read_lines(source), read_lines(target), strict=True)
    settings = TokenizerConfig(algorithm=algorithm, vocabulary_size=vocabulary_size)
    train_tokenizers(pairs, settings, SEED).save(folder / "tokenizer")


def make_config(folder: Path, batch_tokens: int, prefetch_updates: int) -> "TrainConfig":
    from mt import config as c

    corpus = c.CorpusConfig(source=str(folder / "corpus.source"), target=str(folder / "corpus.target"))
    return c.TrainConfig(
        data=c.DataConfig("en", "de", train={"main": corpus}, cache_dir=str(folder / "cache")),
        trainer=c.TrainerConfig(seed=SEED, batch_tokens=batch_tokens, prefetch_updates=prefetch_updates),
    )


def cached_corpus(config: "TrainConfig", folder: Path) -> "EncodedCorpus":
    """Returns the encoded corpus, which the first call makes."""
    from mt.data.encoded import encode_corpus
    from mt.tokenizer import TokenizerPair

    return encode_corpus(config.data.train, config.data, TokenizerPair.load(folder / "tokenizer"))


def new_stream(config: "TrainConfig", folder: Path) -> "BatchStream":
    from mt.tokenizer import TokenizerPair
    from mt.training.stream import BatchStream

    corpus = cached_corpus(config, folder)
    return BatchStream(corpus, TokenizerPair.load(folder / "tokenizer"), config, batches_per_update=1)


def check(config: "TrainConfig", folder: Path) -> dict[str, float]:
    """The checks before a run: lines counted on both sides."""
    from mt.data.corpus import check_corpora

    return timed(lambda: check_corpora(config.data))


def encode(config: "TrainConfig", folder: Path) -> dict[str, float]:
    """From text to the cache."""
    return timed(lambda: cached_corpus(config, folder))


def open_cache(config: "TrainConfig", folder: Path) -> dict[str, float]:
    """The corpus from the cache: fingerprint of the text, memory map, lengths and places of the pairs."""

    def opened() -> None:
        corpus = cached_corpus(config, folder)
        assert len(corpus.source_lengths) == len(corpus.target_lengths)
        assert len(corpus.source_starts) == len(corpus.target_starts)

    return timed(opened)


def plan(config: "TrainConfig", folder: Path) -> dict[str, float]:
    """The batches of one epoch."""
    stream = new_stream(config, folder)
    return timed(lambda: stream.plan(0))


def end_of_epoch(config: "TrainConfig", folder: Path) -> dict[str, float]:
    """The windows around the end of an epoch, to a trainer that takes no time: the longest wait for one."""
    stream = new_stream(config, folder)
    stream.seek(0, max(len(stream.plan(0)) - WINDOWS, 0), 0)
    waits, pairs = [], 0
    while len(waits) < 2 * WINDOWS:
        start = time.perf_counter()
        window = stream.next_window()
        waits.append(time.perf_counter() - start)
        pairs += sum(len(batch.pairs) for batch in window.batches)
    stream.close()
    return {
        "pairs": pairs,
        "seconds": sum(waits),
        "longest_wait_seconds": max(waits),
        "median_wait_seconds": statistics.median(waits),
    }


def first_batch(config: "TrainConfig", folder: Path) -> dict[str, float]:
    """From the start of the process to the first update's batch, with a cached corpus; the model is not made."""
    import torch  # noqa: F401 (what a run imports counts)

    check(config, folder)
    stream = new_stream(config, folder)
    stream.next_window()
    seconds = seconds_since_process_start()
    stream.close()
    return {"seconds": seconds, "cpu_seconds": time.process_time()}


STAGES = (check, encode, open_cache, plan, end_of_epoch, first_batch)


def timed(work: Callable[[], object]) -> dict[str, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return {"seconds": time.perf_counter() - wall, "cpu_seconds": time.process_time() - cpu}


def peak_memory_mb() -> float:
    """Returns the largest resident memory of this process. (getrusage counts what its parent had when it began.)"""
    lines = Path("/proc/self/status").read_text().split("\n")
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024


def report(number: int, folder: Path, arguments: argparse.Namespace) -> dict[str, object]:
    """Returns the line of a stage, by its number in STAGES."""
    import mt.data.encoded  # noqa: F401 (else the first stages would time imports)

    stage = STAGES[number]
    found = stage(make_config(folder, arguments.batch_tokens, arguments.prefetch_updates), folder)
    pairs = found.pop("pairs", arguments.pairs)
    return {
        "stage": stage.__name__,
        "pairs": pairs,
        "pairs_per_second": round(pairs / found["seconds"], 1),
        **{name: round(value, 4) for name, value in found.items()},
        "peak_memory_mb": round(peak_memory_mb(), 1),
        "load": round(os.getloadavg()[0], 2),
    }


def main(arguments: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory(dir=arguments.work, prefix="bench_feeding_") as place:
        folder = Path(place)
        make_corpus(arguments.source, arguments.target, folder, arguments.pairs)
        make_tokenizer(arguments.source, arguments.target, folder, arguments.algorithm, arguments.vocabulary_size)
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(max_workers=1, mp_context=context, max_tasks_per_child=1) as processes:
            for number in range(len(STAGES)):
                print(json.dumps(processes.submit(report, number, folder, arguments).result()), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", type=Path, required=True, help="source sentences, one a line (.gz too)")
    parser.add_argument("--target", type=Path, required=True, help="target sentences, one a line (.gz too)")
    parser.add_argument("--pairs", type=int, default=1_000_000, help="size of the corpus that is made")
    parser.add_argument("--algorithm", choices=["unigram", "bpe"], default="unigram")
    parser.add_argument("--vocabulary-size", type=int, default=8000, help="pieces of the joint model")
    parser.add_argument("--batch-tokens", type=int, default=4096, help="tokens of the longer side in a batch")
    parser.add_argument("--prefetch-updates", type=int, default=2, help="batches prepared ahead by a thread")
    parser.add_argument("--work", type=Path, help="where the temporary folder is made")
    options = parser.parse_args()
    if options.pairs < 1:
        sys.exit(f"bench_feeding: --pairs {options.pairs}: must be at least 1")
    try:
        main(options)
    except ValueError as problem:
        sys.exit(f"bench_feeding: {problem}")
