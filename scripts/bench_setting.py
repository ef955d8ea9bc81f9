"""What every benchmark of training speed shares, ours and the peers': shapes, options, and the clock that counts.

Only the standard library is imported: this file also runs in the peers' environments.
"""

import argparse
import os
import resource
import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path

VOCABULARY_SIZE = 10_000  # pieces of the joint model
PAD_ID, UNK_ID, BOS_ID, EOS_ID = 0, 1, 2, 3
LABEL_SMOOTHING, LEARNING_RATE, BETAS, CLIP_NORM, SEED = 0.1, 5e-4, (0.9, 0.98), 1.0, 1


@dataclass(frozen=True)
class Shape:
    """A Transformer with as many encoder as decoder layers; sizes are dimensions of a token's vector."""

    layers: int
    d_model: int
    d_ff: int
    heads: int
    dropout: float  # as configs/ has it for a corpus of this kind


SHAPES = {"tiny": Shape(4, 128, 256, 4, 0.3), "iwslt": Shape(6, 512, 1024, 4, 0.1)}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that decide what is timed."""
    parser.add_argument("--shape", choices=sorted(SHAPES), default="tiny")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--updates", type=int, default=60, help="timed updates, the warm-up included")
    parser.add_argument("--warmup", type=int, default=10, help="first updates that no rate is made of")
    parser.add_argument("--window", type=int, default=10, help="updates that one rate is made of")
    parser.add_argument("--batch-tokens", type=int, default=4096, help="tokens of the longer side in a batch")
    parser.add_argument("--work", type=Path, default=Path(".bench"), help="folder of environments and prepared text")


def prepare_process(arguments: argparse.Namespace) -> None:
    """Sets the number of threads, before torch is imported. Raises ValueError where there is nothing to measure."""
    if arguments.updates < arguments.warmup + arguments.window:
        raise ValueError(f"--updates {arguments.updates}: must be at least --warmup plus --window")
    os.environ["OMP_NUM_THREADS"] = str(arguments.threads)


def seconds_since_process_start() -> float:
    """Returns the age of this process, imports included (Linux only)."""
    ticks = float(Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


def peak_memory_mb() -> float:
    """Returns the largest resident memory of this process so far, in MB of 2^20 bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


@dataclass
class UpdateClock:
    """Notes when each update begins and what its batch holds; an update lasts until the next one begins.

    So one more update has to run than is reported, and all that lies between two updates (data, logging) counts.
    """

    warmup: int
    window: int
    marks: list[tuple[float, int, int, int]] = field(default_factory=list)
    first_update_seconds: float = 0.0

    def begin(self, real_tokens: int, positions: int, sentences: int) -> None:
        """real_tokens: source and target tokens that are not padding, </s> counted; positions: padding included."""
        if not self.marks:  # when it begins, since first batches differ in size
            self.first_update_seconds = seconds_since_process_start()
        self.marks.append((time.monotonic(), real_tokens, positions, sentences))

    def report(self) -> dict[str, float]:
        """Returns rates as medians over windows after the warm-up, the padding share of all that was timed, memory."""
        peak = peak_memory_mb()
        last = len(self.marks) - 1
        rates, sentence_rates, real_tokens, positions, seconds = [], [], 0, 0, 0.0
        for start in range(self.warmup, last - self.window + 1, self.window):
            marks = self.marks[start : start + self.window]
            elapsed = self.marks[start + self.window][0] - marks[0][0]
            rates.append(sum(mark[1] for mark in marks) / elapsed)
            sentence_rates.append(sum(mark[3] for mark in marks) / elapsed)
            real_tokens += sum(mark[1] for mark in marks)
            positions += sum(mark[2] for mark in marks)
            seconds += elapsed
        return {
            "tokens_per_second": round(statistics.median(rates), 1),
            "tokens_per_second_mean": round(real_tokens / seconds, 1),  # what stops between updates counts in full
            "tokens_per_second_lowest": round(min(rates), 1),
            "tokens_per_second_highest": round(max(rates), 1),
            "sentences_per_second": round(statistics.median(sentence_rates), 2),
            "tokens_per_update": round(real_tokens / (len(rates) * self.window), 1),
            "padding_share": round(1 - real_tokens / positions, 4),
            "seconds_to_first_update": round(self.first_update_seconds, 2),
            "peak_memory_mb": round(peak, 1),
            "windows": len(rates),
        }
