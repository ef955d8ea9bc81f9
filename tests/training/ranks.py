"""Runs of one or several ranks, started by torchrun on the CPU, and what they leave."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import torch
from safetensors.torch import load_file

from mt import checkpoint as folder


def arguments(corpus: Path, run_dir: Path, *more: str) -> list[str]:
    settings = {
        "data.source_language": "en",
        "data.target_language": "de",
        "data.train.main.path": corpus / "train.tsv",
        "data.valid.main.path": corpus / "valid.tsv",
        "data.cache_dir": corpus / "cache",
        "tokenizer.vocabulary_size": 320,
        "model.d_model": 16,
        "model.d_ff": 32,
        "model.n_heads": 2,
        "model.encoder_layers": 1,
        "model.decoder_layers": 1,
        "model.dropout": 0.1,
        "optim.warmup_steps": 4,
        "trainer.batch_tokens": 60,
        "trainer.validate_every_steps": 10,
        "trainer.log_every_steps": 1,
        "trainer.tensorboard": "false",
        "trainer.max_steps": 20,
    }
    settings |= dict(setting.split("=", 1) for setting in more)
    return [f"{key}={value}" for key, value in settings.items()] + [f"run_dir={run_dir}"]


def start(corpus: Path, run_dir: Path, ranks: int, *more: str) -> subprocess.Popen:
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    command = [sys.executable, *(torchrun if ranks > 1 else []), "-m", "mt", "train"]
    command += arguments(corpus, run_dir, *more)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)


def run_alone(corpus: Path, run_dir: Path, *more: str, seconds: float = 120) -> Path:
    """Returns the folder of a run of one process that went to its end, with which others are compared."""
    code, output = finish(start(corpus, run_dir, 1, *more), seconds)
    assert code == 0, output
    return run_dir


def finish(process: subprocess.Popen, seconds: float = 120) -> tuple[int, str]:
    try:
        output, _ = process.communicate(timeout=seconds)
    finally:
        if process.poll() is None:
            for pid in children(process.pid):
                os.kill(pid, signal.SIGKILL)
            process.kill()
    return process.returncode, output


def children(pid: int) -> list[int]:
    return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def pid_of_rank(torchrun: int, rank: int) -> int:
    for pid in children(torchrun):
        if f"RANK={rank}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            return pid
    raise AssertionError(f"no rank {rank} among the children of {torchrun}")


def events(run_dir: Path, kind: str) -> list[dict]:
    lines = (run_dir / "log.jsonl").read_text(encoding="utf-8").split("\n") if (run_dir / "log.jsonl").exists() else []
    return [event for event in map(json.loads, filter(None, lines)) if event["event"] == kind]


def wait_for_step(process: subprocess.Popen, run_dir: Path, step: int, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not any(event["step"] >= step for event in events(run_dir, "train")):
        assert process.poll() is None and time.monotonic() < deadline, process.communicate()[0]
        time.sleep(0.02)


def weights(run_dir: Path) -> dict[str, torch.Tensor]:
    return load_file(folder.pointed(run_dir, "last") / "model.safetensors")


def largest_difference(a: Path, b: Path) -> float:
    first, second = weights(a), weights(b)
    assert first.keys() == second.keys()
    return max(float((first[name] - second[name]).abs().max()) for name in first)
