"""The fault harness (`make test-faults`): a short training, killed more than fifty times, and a disk that fills up.

Each kill is followed by the same command. The final weights, optimizer state and progress are those of a run that was
left alone, to the bit, and after no kill is a checkpoint unreadable.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import yaml

from mt import checkpoint as folder
from tests.training.small_runs import write_corpus

pytestmark = pytest.mark.slow
KILLS = 54
STEPS = 450
STOPPED_AND_SAVED = 75


@pytest.fixture(scope="module")
def settings_file(tmp_path_factory):
    place = tmp_path_factory.mktemp("faults")
    write_corpus(place, 2, {"train": 300, "valid": 12}, ".")
    settings = {
        "device": "cpu",
        "data": {
            "source_language": "en",
            "target_language": "de",
            "train": {"main": {"path": str(place / "train.tsv")}},
            "valid": {"main": {"path": str(place / "valid.tsv")}},
            "cache_dir": str(place / "cache"),
            "strip_final_stop_probability": 0.3,
        },
        "tokenizer": {"vocabulary_size": 320},
        "model": {"d_model": 32, "d_ff": 64, "n_heads": 2, "encoder_layers": 1, "decoder_layers": 1, "dropout": 0.1},
        "optim": {"optimizer": "muon", "lr": 1e-3, "warmup_steps": 50},
        "trainer": {
            "max_steps": STEPS, "batch_tokens": 60, "accumulate_batches": 2, "ema_decay": 0.99,
            "validate_every_steps": 25, "save_every_steps": 1, "log_every_steps": 1, "keep_last_checkpoints": 3,
            "keep_best_checkpoints": 2, "prefetch_updates": 2, "early_stopping_patience": 1000, "tensorboard": False,
        },
    }  # fmt: skip
    file = place / "settings.yaml"
    file.write_text(yaml.safe_dump(settings), encoding="utf-8")
    return file


def start(settings_file: Path, run_dir: Path) -> subprocess.Popen:
    """Starts the training; its messages go to a file, for nobody empties a pipe while it waits to be killed."""
    command = [sys.executable, "-m", "mt", "train", "--config", str(settings_file), f"run_dir={run_dir}"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with errors_file(run_dir).open("wb") as errors:
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors, env=environment)


def errors_file(run_dir: Path) -> Path:
    return run_dir.with_name(f"{run_dir.name}.stderr")


def finish(process: subprocess.Popen, run_dir: Path, seconds: float) -> tuple[int, str]:
    try:
        process.wait(timeout=seconds)
    finally:
        process.kill()
    return process.returncode, errors_file(run_dir).read_text(encoding="utf-8")


def steps_logged(run_dir: Path) -> int:
    log = run_dir / "log.jsonl"
    return log.read_bytes().count(b'"event": "train"') if log.exists() else 0


def wait_until(process: subprocess.Popen, happened) -> None:
    deadline = time.monotonic() + 120
    while not happened() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.001)


def saving(run_dir: Path) -> bool:
    return any((run_dir / "checkpoints").glob(".tmp-step_*"))


def kill(process: subprocess.Popen, run_dir: Path, generator: random.Random) -> tuple[str, signal.Signals]:
    """Kills at a random moment; returns which kind of moment it was, and how it was killed."""
    kind = generator.choice(["starting", "training", "training", "saving", "saving"])
    number = generator.choice([signal.SIGTERM, signal.SIGKILL])
    if kind == "starting":
        time.sleep(generator.uniform(0.1, 3.0))
    else:
        goal = steps_logged(run_dir) + generator.randint(1, 9)
        wait_until(process, lambda: steps_logged(run_dir) >= goal)
        if kind == "saving":
            wait_until(process, lambda: saving(run_dir))
        time.sleep(generator.uniform(0, 0.03))
    process.send_signal(number)
    return kind, number


def check_all_readable(run_dir: Path) -> int:
    """Returns the newest step that is saved, after reading every checkpoint there is."""
    newest = 0
    for saved in folder.list_checkpoints(run_dir):
        tensors, state = folder.read_training(saved)
        assert all(torch.isfinite(tensor).all() for tensor in {**tensors, **folder.read_weights(saved)}.values())
        newest = max(newest, state["step"])
    return newest


def test_fifty_kills_change_nothing(settings_file, tmp_path):
    undisturbed, run_dir = tmp_path / "undisturbed", tmp_path / "killed"
    code, errors = finish(start(settings_file, undisturbed), undisturbed, 300)
    assert code == 0, errors
    generator, kills, newest = random.Random(3), {}, 0
    for _ in range(KILLS):
        process = start(settings_file, run_dir)
        kind, number = kill(process, run_dir, generator)
        code, errors = finish(process, run_dir, 60)
        stopped = code == STOPPED_AND_SAVED and "and saved in" in errors
        assert code == -number or (number == signal.SIGTERM and stopped), errors
        kills[kind, number.name, stopped] = kills.get((kind, number.name, stopped), 0) + 1
        after = check_all_readable(run_dir)
        assert after >= newest, "a save that was complete is gone"
        newest = after
    code, errors = finish(start(settings_file, run_dir), run_dir, 300)
    assert code == 0, errors
    print(f"kills (moment, signal, saved): {kills}; the last one at or after update {newest} of {STEPS}")
    assert 0 < newest < STEPS
    assert_same(undisturbed, run_dir)
    assert not list((run_dir / "checkpoints").glob(".*"))


def assert_same(first: Path, second: Path) -> None:
    for name in ("last", "best"):
        a, b = folder.pointed(first, name), folder.pointed(second, name)
        assert a.name == b.name
        (tensors_a, state_a), (tensors_b, state_b) = folder.read_training(a), folder.read_training(b)
        tensors_a |= {f"model {key}": value for key, value in folder.read_weights(a).items()}
        tensors_b |= {f"model {key}": value for key, value in folder.read_weights(b).items()}
        assert tensors_a.keys() == tensors_b.keys()
        assert not [key for key in tensors_a if not torch.equal(tensors_a[key], tensors_b[key])]
        del state_a["progress"]["seconds"], state_b["progress"]["seconds"]
        assert state_a["progress"] == state_b["progress"] and state_a["last_metrics"] == state_b["last_metrics"]
    losses = []
    for run_dir in (first, second):  # a step that was repeated after a kill had the same loss again
        events = map(json.loads, (run_dir / "log.jsonl").read_text(encoding="utf-8").splitlines())
        steps: dict[int, set[float]] = {}
        for event in events:
            if event["event"] == "train":
                steps.setdefault(event["step"], set()).add(event["gradient_norm"])
        losses.append(steps)
    assert losses[0] == losses[1] and len(losses[0]) == STEPS


@pytest.mark.skipif(shutil.which("unshare") is None, reason="needs unshare to mount a small disk")
def test_a_full_disk_says_so_and_leaves_the_checkpoint_before(settings_file, tmp_path):
    disk, kept = tmp_path / "disk", tmp_path / "kept"
    disk.mkdir()
    train = f"{sys.executable} -m mt train --config {settings_file} run_dir={disk}/run"
    script = (
        f"mount -t tmpfs -o size=1500k none {disk} || exit 99; {train} trainer.keep_last_checkpoints=100; code=$?; "
        f"cp -r {disk}/run {kept}; exit $code"
    )
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    result = subprocess.run(
        ["unshare", "-rm", "sh", "-c", script], capture_output=True, text=True, env=environment, timeout=120
    )
    if result.returncode == 99 or "Operation not permitted" in result.stderr:
        pytest.skip("may not mount a small disk here")
    last_line = result.stderr.strip().split("\n")[-1]
    assert result.returncode == 2, result.stderr
    assert "No space left" in last_line and "earlier checkpoints are untouched" in last_line
    assert check_all_readable(kept) >= 1
    code, errors = finish(start(settings_file, kept), kept, 300)  # with room again, the same command goes on
    assert code == 0 and f"resuming {kept}" in errors, errors
