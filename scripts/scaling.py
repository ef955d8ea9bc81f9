"""A model of training on many GPUs, and the measurements that fill and check it.

    python scripts/scaling.py predict --parameters 210e6 --tokens-per-second 4e5    # 8, 64 and 1,024 GPUs
    python scripts/scaling.py measure                                     # here: 1 and 2 processes, one thread each

docs/scaling.md explains the terms. `measure` wants the machine for itself.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

BUCKET_BYTES = 25e6  # of DDP: what it sends at once
BACKWARD_SHARE = 2 / 3  # of an update's work, during which gradients may travel


@dataclass(frozen=True)
class Machine:
    """Constants; those of a GPU machine are from data sheets until somebody measures them."""

    tokens_per_second: float  # of one rank alone, source and target, in full batches
    rank_bytes_per_second: float  # that a rank sends, to its neighbour on the same host
    host_bytes_per_second: float  # that a host sends to another
    ranks_per_host: int
    hop_seconds: float  # of one small message
    overlap: float = 1.0  # share of the work that hides communication: 0 where both share one core
    half_speed_tokens: float = 0.0  # of a batch that reaches half the full speed


@dataclass(frozen=True)
class Run:
    parameters: float
    batch_tokens: float  # source and target, of one micro-batch of one rank
    accumulate_batches: int = 1
    gradient_bytes: float = 4.0  # of a number: 2 with trainer.bf16_gradients
    sharded: bool = False  # trainer.shard_ranks=null: weights are gathered twice a pass, gradients shared out each pass


@dataclass(frozen=True)
class Prediction:
    """Of one update, on one rank; seconds."""

    compute: float
    sent_bytes: float
    sending: float
    agreeing: float  # on token counts, clock and stops
    update: float
    tokens_per_second: float  # of all ranks
    efficiency: float  # of all ranks, beside as many single ones

    @property
    def waiting_share(self) -> float:
        """Share of an update in which a rank does not compute."""
        return 1 - self.compute / self.update


def predict(run: Run, machine: Machine, ranks: int) -> Prediction:
    """Returns what an update costs.

    Gradients go around a ring: each rank sends 2 (W-1)/W times their bytes. Between hosts the ring has one stream for
    each host. What is sent during the last backward pass costs nothing up to its length, but for the last bucket.
    """
    speed = machine.tokens_per_second / (1 + machine.half_speed_tokens / run.batch_tokens)
    batch_seconds = run.batch_tokens / speed
    compute = run.accumulate_batches * batch_seconds
    around = (ranks - 1) / ranks
    gradients = run.parameters * run.gradient_bytes
    sent = 2 * around * gradients
    if run.sharded:  # in each pass: weights once for the forward, once for the backward half; gradients shared out
        sent = run.accumulate_batches * around * (2 * run.parameters * 4.0 + gradients)
    hosts = math.ceil(ranks / machine.ranks_per_host)
    rate = machine.rank_bytes_per_second if hosts == 1 else machine.host_bytes_per_second
    buckets = math.ceil(gradients / BUCKET_BYTES)
    sending = (sent / rate + 2 * math.log2(ranks) * buckets * machine.hop_seconds) if ranks > 1 else 0.0
    hidden = machine.overlap * (compute if run.sharded else BACKWARD_SHARE * batch_seconds)
    tail = sending * min(1.0, BUCKET_BYTES / gradients)
    exposed = max(tail, sending - hidden)
    agreeing = (ranks - 1) * machine.hop_seconds  # gloo's all-gather: a ring of small messages
    update = compute + exposed + max(0.0, agreeing - machine.overlap * compute)  # a GPU works on meanwhile
    tokens = run.accumulate_batches * run.batch_tokens * ranks
    alone = run.accumulate_batches * run.batch_tokens / compute
    return Prediction(compute, sent, sending, agreeing, update, tokens / update, tokens / update / (ranks * alone))


def table(run: Run, machine: Machine, numbers: list[int], pairs: float, pair_tokens: float) -> str:
    """Returns one line for each number of ranks, with the hours that an epoch of so many pairs takes."""
    head = "| GPUs | tokens an update | MB sent | compute ms | sending ms | agreeing ms | efficiency | epoch, hours |"
    lines = [head, "| --- " * 8 + "|"]
    for ranks in numbers:
        p = predict(run, machine, ranks)
        hours = pairs * pair_tokens / p.tokens_per_second / 3600
        times = " | ".join(f"{1000 * seconds:.1f}" for seconds in (p.compute, p.sending, p.agreeing))
        lines.append(
            f"| {ranks:,} | {p.tokens_per_second * p.update:,.0f} | {p.sent_bytes / 1e6:,.0f} | {times} | "
            f"{p.efficiency:.0%} | {hours:,.2f} |"
        )
    return "\n".join(lines)


def measure_messages(ranks: int, parameters: int) -> tuple[float, float]:
    """Returns a rank's bytes a second in an all-reduce of so many gradients, and the seconds of a small message."""
    import torch.multiprocessing

    with tempfile.TemporaryDirectory() as place:
        torch.multiprocessing.spawn(_messages, (ranks, parameters, place), nprocs=ranks)
        return tuple(json.loads((Path(place) / "result.json").read_text()))


def _messages(rank: int, ranks: int, parameters: int, place: str) -> None:
    import torch
    import torch.distributed as dist

    from mt.training.distributed import Group

    torch.set_num_threads(1)
    group = Group(rank, ranks, dist.FileStore(f"{place}/store", ranks))
    group.connect(torch.device("cpu"), 600)
    gradients, sums, small = torch.ones(parameters), [], []
    for _ in range(9):
        group.table([0.0])
        start = time.perf_counter()
        dist.all_reduce(gradients)
        sums.append(time.perf_counter() - start)
        start = time.perf_counter()
        for _ in range(20):
            group.table([1.0, 2.0, 3.0, 4.0])
        small.append((time.perf_counter() - start) / 20)
    if rank == 0:
        sent = 2 * (ranks - 1) / ranks * gradients.numel() * 4
        result = [sent / statistics.median(sums), statistics.median(small) / (ranks - 1)]
        (Path(place) / "result.json").write_text(json.dumps(result))
    group.wait()
    dist.destroy_process_group()


def measure_training(ranks: int, place: Path, settings: list[str], beside: int = 0) -> tuple[float, int]:
    """Returns the median tokens a second of all ranks, of one thread each, and the parameters of the model.

    beside: so many trainings of the same kind run at the same time, and know nothing of one another.
    """
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    command = [sys.executable, *(torchrun if ranks > 1 else []), "-m", "mt", "train", *settings]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    folders = [place / f"run{ranks}_{beside}_{number}" for number in range(beside + 1)]
    started = [
        subprocess.Popen([*command, f"run_dir={folder}"], env=environment, stderr=subprocess.PIPE, text=True)
        for folder in folders
    ]
    for process in started:
        _, errors = process.communicate()
        if process.returncode:
            sys.exit(f"training by {ranks} processes ended with {process.returncode}:\n{errors[-2000:]}")
    run_dir = folders[0]
    events = [json.loads(line) for line in (run_dir / "log.jsonl").read_text().splitlines()]
    rates = [event["tokens_per_second"] for event in events if event["event"] == "train"]
    described = next(e["text"] for e in events if e["event"] == "message" and e["text"].startswith("model: "))
    return statistics.median(rates[2:]), int(described.split()[1].replace(",", ""))


def measure(updates: int, batch_tokens: int, model: str) -> None:
    """Trains with 1 and 2 processes on made-up sentences; prints what was measured, and what the model says."""
    import random

    with tempfile.TemporaryDirectory() as name:
        place, generator = Path(name), random.Random(1)
        words = [f"{a}{b}" for a in "bdfgklmnprst" for b in ("a", "e", "i", "o", "u", "ai", "ou")]
        lines = ("\t".join(" ".join(generator.choices(words, k=20)) for _ in "st") for _ in range(20_000))
        (place / "train.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
        settings = [
            "data.source_language=en", "data.target_language=de", f"data.train.main.path={place}/train.tsv",
            "~data.valid.main",
            f"data.cache_dir={place}/cache", "tokenizer.vocabulary_size=8000", "device=cpu", f"model={model}",
            f"trainer.batch_tokens={batch_tokens}", f"trainer.max_steps={updates}", "trainer.log_every_steps=5",
            "trainer.tensorboard=false", "trainer.save_every_minutes=null", f"trainer.validate_every_steps={10**6}",
        ]  # fmt: skip
        one, parameters = measure_training(1, place, settings)
        beside, _ = measure_training(1, place, settings, beside=1)
        two, _ = measure_training(2, place, settings)
        bytes_per_second, hop_seconds = measure_messages(2, parameters)
    machine = Machine(beside, bytes_per_second, bytes_per_second, 2, hop_seconds, overlap=0.0)
    run = Run(parameters, 2 * batch_tokens)
    said = predict(run, machine, 2)
    print(f"parameters {parameters:,}, batch_tokens {batch_tokens}, {updates} updates, one thread a process")
    print(f"measured: 1 process {one:,.0f} tokens/s, 2 processes {two:,.0f}: efficiency {two / one / 2:.1%}")
    print(f"measured: 1 process beside another that it knows nothing of {beside:,.0f} tokens/s: {beside / one:.1%}")
    print(f"measured: 2 processes together beside two that know nothing of each other: {two / beside / 2:.1%}")
    print(f"measured: all-reduce {bytes_per_second / 1e6:,.0f} MB/s a rank, small message {hop_seconds * 1e6:,.0f} us")
    print(f"measured: share of an update in which a rank does not compute {1 - two / beside / 2:.1%}")
    for name, with_overlap in (("no overlap", machine), ("all overlap", replace(machine, overlap=1.0))):
        said = predict(run, with_overlap, 2)
        print(
            f"predicted ({name}): {said.tokens_per_second:,.0f} tokens/s, efficiency {said.efficiency:.1%}, "
            f"{said.sent_bytes / 1e6:,.1f} MB sent a step, communication share {said.waiting_share:.1%}"
        )


def above_zero(text: str) -> float:
    value = float(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text}: must be a number above 0")
    return value


def at_least_one(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text}: must be at least 1")
    return value


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    predicting = commands.add_parser("predict")
    predicting.add_argument("--parameters", type=above_zero, required=True)
    predicting.add_argument("--tokens-per-second", type=above_zero, required=True, help="of one GPU, source and target")
    predicting.add_argument("--batch-tokens", type=above_zero, default=50_000, help="source and target")
    predicting.add_argument("--accumulate-batches", type=at_least_one, default=1)
    predicting.add_argument("--bf16-gradients", action="store_true")
    predicting.add_argument("--sharded", action="store_true")
    predicting.add_argument("--gpu-gigabytes-per-second", type=above_zero, default=200, help="on the same host")
    predicting.add_argument("--host-gigabytes-per-second", type=above_zero, default=50, help="to another host")
    predicting.add_argument("--gpus-per-host", type=at_least_one, default=8)
    predicting.add_argument("--hop-microseconds", type=above_zero, default=30)
    predicting.add_argument("--half-speed-tokens", type=float, default=0)
    predicting.add_argument("--gpus", type=at_least_one, nargs="+", default=[1, 8, 64, 1024])
    predicting.add_argument("--pairs", type=above_zero, default=1e9)
    predicting.add_argument("--pair-tokens", type=above_zero, default=60, help="source and target")
    measuring = commands.add_parser("measure")
    measuring.add_argument("--updates", type=int, default=60)
    measuring.add_argument("--batch-tokens", type=int, default=2048, help="trainer.batch_tokens")
    measuring.add_argument("--model", default="small")
    a = parser.parse_args(arguments)
    if a.command == "measure":
        measure(a.updates, a.batch_tokens, a.model)
        return
    rates = a.gpu_gigabytes_per_second * 1e9, a.host_gigabytes_per_second * 1e9
    machine = Machine(
        a.tokens_per_second, *rates, a.gpus_per_host, a.hop_microseconds / 1e6, half_speed_tokens=a.half_speed_tokens
    )
    run = Run(a.parameters, a.batch_tokens, a.accumulate_batches, 2.0 if a.bf16_gradients else 4.0, a.sharded)
    print(table(run, machine, a.gpus, a.pairs, a.pair_tokens))


if __name__ == "__main__":
    main()
