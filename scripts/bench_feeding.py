"""Times what feeds the trainer, stage by stage, and prints one JSON line for each: pairs/s, seconds, peak memory.

Each corpus is made from two real files by repetition, with one word of each sentence replaced by another of the file,
in a temporary folder that is deleted afterwards (about 360 bytes a pair). Each stage runs in a process of its own. CPU
seconds are those of all its threads and of the processes it starts: beside other work they tell more than the wall
clock does. Peak memory is that of the process, plus --processes times that of the largest that it started. Linux only.
"""

import argparse
import itertools
import json
import multiprocessing
import os
import random
import resource
import shutil
import statistics
import sys
import tempfile
import time
import warnings
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
SIDES = ("source", "target")


def make_side(path: Path, side: str, folder: Path, pairs: int) -> None:
    """Writes corpus.source or corpus.target, of so many lines."""
    from mt.data.files import read_lines

    generator = random.Random(f"{SEED} {side}")
    lines = [line.split(" ") for line in read_lines(path)]
    known = sorted(set(itertools.chain.from_iterable(lines)))
    with open(folder / f"corpus.{side}", "w", encoding="utf-8", newline="") as file:
        for line in itertools.islice(itertools.cycle(lines), pairs):
            words = line.copy()
            words[int(generator.random() * len(words))] = known[int(generator.random() * len(known))]
            file.write(" ".join(words) + "\n")


def make_corpus(source: Path, target: Path, folder: Path, pairs: int) -> None:
    """Writes corpus.source and corpus.target, of so many pairs."""
    with ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn")) as processes:
        paths = source, target
        list(processes.map(make_side, paths, SIDES, itertools.repeat(folder), itertools.repeat(pairs)))


def make_config(folder: Path, arguments: argparse.Namespace) -> "TrainConfig":
    from mt import config as c

    corpus = c.CorpusConfig(source=str(folder / "corpus.source"), target=str(folder / "corpus.target"))
    place, processes = str(folder / "cache"), arguments.processes
    data = c.DataConfig("en", "de", train={"main": corpus}, cache_dir=place, processes=processes)
    if arguments.held_out_source is not None:
        held_out = c.CorpusConfig(source=str(arguments.held_out_source), target=str(arguments.held_out_target))
        data.valid["main"] = held_out
    return c.TrainConfig(
        data=data,
        tokenizer=c.TokenizerConfig(algorithm=arguments.algorithm, vocabulary_size=arguments.vocabulary_size),
        trainer=c.TrainerConfig(
            seed=SEED, batch_tokens=arguments.batch_tokens, prefetch_updates=arguments.prefetch_updates
        ),
    )


def cached_corpus(
    config: "TrainConfig", folder: Path, progress: Callable[[int], None] | None = None
) -> "EncodedCorpus":
    """Returns the encoded corpus, which the first call makes."""
    from mt.data.encoded import encode_corpus
    from mt.tokenizer import TokenizerPair

    return encode_corpus(config.data.train, config.data, TokenizerPair.load(folder / "tokenizer"), progress=progress)


def new_stream(config: "TrainConfig", folder: Path) -> "BatchStream":
    from mt.tokenizer import TokenizerPair
    from mt.training.stream import BatchStream

    corpus = cached_corpus(config, folder)
    return BatchStream(corpus, TokenizerPair.load(folder / "tokenizer"), config, batches_per_update=1)


def check(config: "TrainConfig", folder: Path) -> dict[str, float]:
    """The checks before a run: lines counted on both sides."""
    from mt.data.corpus import check_corpora

    return timed(lambda: check_corpora(config.data))


def train_tokenizer(config: "TrainConfig", folder: Path) -> dict[str, float]:
    """The tokenizer, from a sample of the corpus."""
    from mt.data.tokenizers import sampled_tokenizers

    return timed(lambda: sampled_tokenizers(config.data, config.tokenizer, SEED, str).save(folder / "tokenizer"))


def encode(config: "TrainConfig", folder: Path) -> dict[str, float]:
    """From text to the cache."""
    return timed(lambda: cached_corpus(config, folder))


def encode_killed(config: "TrainConfig", folder: Path) -> dict[str, float]:
    """From text to the cache by a process that is killed half-way, and by another that goes on."""
    shutil.rmtree(folder / "cache")
    killed = multiprocessing.get_context("spawn").Process(target=cached_corpus, args=(config, folder))
    start, half = time.perf_counter(), -(-pairs_of(folder) // 100_000) // 2  # shards
    killed.start()
    while killed.is_alive() and len(list(folder.glob("cache/*.unfinished/*.json"))) < half:
        time.sleep(0.05)
    killed.kill()
    killed.join()
    seconds = time.perf_counter() - start
    while list(folder.glob("cache/*.unfinished/*.part")):
        time.sleep(0.05)  # those that it started end with the shard that each has
    finished = {file.stem: file.with_suffix(".arrow").stat() for file in folder.glob("cache/*.unfinished/*.json")}
    found = timed(lambda: cached_corpus(config, folder))
    now = {file.stem: file.stat() for file in folder.glob("cache/*/*.arrow")}
    repeated = [name for name, before in finished.items() if now[name].st_ino != before.st_ino]
    return {
        "seconds_before_kill": seconds,
        "shards": len(now),
        "finished_before": len(finished),
        "repeated": len(repeated),
        **found,
    }


def open_cache(config: "TrainConfig", folder: Path) -> dict[str, float]:
    """The corpus from the cache: fingerprint of the text, memory maps, lengths and places of the pairs."""
    import numpy as np

    def opened() -> None:
        corpus = cached_corpus(config, folder)
        corpus.source_tokens(np.array([0])), corpus.target_tokens(np.array([len(corpus) - 1]))

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


def epoch(config: "TrainConfig", folder: Path) -> dict[str, float]:
    """A whole epoch of batches, to a trainer that takes no time."""
    stream = new_stream(config, folder)
    stream.plan(0)

    def all_windows() -> None:
        while stream.epoch == 0:
            stream.next_window()

    found = timed(all_windows)
    stream.close()
    return found


def first_batch(config: "TrainConfig", folder: Path) -> dict[str, float]:
    """From the start of the process to the first update's batch, with a cached corpus; the model is not made."""
    import torch  # noqa: F401 (what a run imports counts)

    check(config, folder)
    stream = new_stream(config, folder)
    stream.next_window()
    seconds = seconds_since_process_start()
    stream.close()
    return {"seconds": seconds, "cpu_seconds": time.process_time()}


STAGES = (check, train_tokenizer, encode, encode_killed, open_cache, plan, end_of_epoch, epoch, first_batch)


def timed(work: Callable[[], object]) -> dict[str, float]:
    wall, cpu = time.perf_counter(), cpu_seconds()
    work()
    return {"seconds": time.perf_counter() - wall, "cpu_seconds": cpu_seconds() - cpu}


def cpu_seconds() -> float:
    """Returns those of this process and of the ended ones that it started."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def pairs_of(folder: Path) -> int:
    return int((folder / "pairs").read_text())


def peak_memory_mb(processes: int) -> float:
    """Returns the largest resident memory of this process and of `processes` that it started.

    (getrusage counts what its parent had when it began.)
    """
    lines = Path("/proc/self/status").read_text().split("\n")
    own = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024
    return own + processes * resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024


def report(number: int, folder: Path, arguments: argparse.Namespace) -> dict[str, object]:
    """Returns the line of a stage, by its number in STAGES."""
    import mt.data.encoded  # noqa: F401 (else the first stages would time imports)

    stage = STAGES[number]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the tokenizer sees a sample
        found = stage(make_config(folder, arguments), folder)
    pairs = found.pop("pairs", pairs_of(folder))
    return {
        "stage": stage.__name__,
        "pairs": pairs,
        "pairs_per_second": round(pairs / found["seconds"], 1),
        **{name: round(value, 4) for name, value in found.items()},
        "peak_memory_mb": round(peak_memory_mb(arguments.processes), 1),
        "load": round(os.getloadavg()[0], 2),
    }


def main(arguments: argparse.Namespace) -> None:
    context = multiprocessing.get_context("spawn")
    for pairs in arguments.pairs:
        with tempfile.TemporaryDirectory(dir=arguments.work, prefix="bench_feeding_") as place:
            folder = Path(place)
            (folder / "pairs").write_text(str(pairs))
            make_corpus(arguments.source, arguments.target, folder, pairs)
            with ProcessPoolExecutor(max_workers=1, mp_context=context, max_tasks_per_child=1) as processes:
                for number in range(len(STAGES)):
                    print(json.dumps(processes.submit(report, number, folder, arguments).result()), flush=True)


def parsed() -> argparse.Namespace:
    """Returns the arguments of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", type=Path, required=True, help="source sentences, one a line (.gz too)")
    parser.add_argument("--target", type=Path, required=True, help="target sentences, one a line (.gz too)")
    parser.add_argument("--held-out-source", type=Path, help="validation, whose sentences training pairs must not have")
    parser.add_argument("--held-out-target", type=Path)
    parser.add_argument("--pairs", type=int, nargs="+", default=[1_000_000], help="sizes of the corpora that are made")
    parser.add_argument("--algorithm", choices=["unigram", "bpe"], default="unigram")
    parser.add_argument("--vocabulary-size", type=int, default=8000, help="pieces of the joint model")
    parser.add_argument("--batch-tokens", type=int, default=4096, help="tokens of the longer side in a batch")
    parser.add_argument("--prefetch-updates", type=int, default=2, help="batches prepared ahead by a thread")
    parser.add_argument("--processes", type=int, default=2, help="that encode")
    parser.add_argument("--work", type=Path, help="where the temporary folder is made")
    return parser.parse_args()


if __name__ == "__main__":
    options = parsed()
    if min(options.pairs) < 1:
        sys.exit(f"bench_feeding: --pairs {min(options.pairs)}: must be at least 1")
    try:
        main(options)
    except ValueError as problem:
        sys.exit(f"bench_feeding: {problem}")
