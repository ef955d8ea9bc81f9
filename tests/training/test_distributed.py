"""Several ranks, started by torchrun on the CPU: the same result as one, lost ranks, uneven ends, stops."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.training.ranks import (
    children,
    events,
    finish,
    largest_difference,
    pid_of_rank,
    run_alone,
    start,
    wait_for_step,
)
from tests.training.small_runs import made_corpus

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="finds the ranks in /proc")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return made_corpus(tmp_path_factory, {"train": 150, "valid": 9, "tiny": 3})


@pytest.fixture(scope="module")
def alone(corpus, tmp_path_factory):
    """The run of one process that the others are compared with: accumulation, dropout, a moving average."""
    run_dir = tmp_path_factory.mktemp("alone") / "run"
    return run_alone(corpus, run_dir, "trainer.accumulate_batches=4", "trainer.ema_decay=0.9")


def test_two_ranks_equal_one_process(corpus, alone, tmp_path):
    run_dir = tmp_path / "run"
    code, output = finish(start(corpus, run_dir, 2, "trainer.accumulate_batches=2", "trainer.ema_decay=0.9"))
    assert code == 0, output
    assert largest_difference(alone, run_dir) < 1e-6
    losses = [[event["loss"] for event in events(place, "train")] for place in (alone, run_dir)]
    assert len(losses[0]) == 20 and losses[0] == pytest.approx(losses[1], abs=1e-5)  # sums over both ranks
    scores = [[(e["loss"], e["chrf"]) for e in events(place, "valid")] for place in (alone, run_dir)]
    assert scores[0] == [pytest.approx(values, abs=1e-5) for values in scores[1]]  # shared out
    epochs = events(run_dir, "train")[-1]["epoch"]
    assert epochs > 1 and epochs % 1 > 0  # the smaller last update of an epoch was among them


@pytest.mark.slow
def test_fewer_batches_than_ranks(corpus, tmp_path):
    more = [f"data.train.main.path={corpus / 'tiny.tsv'}", "trainer.max_epochs=2", "trainer.max_steps=null"]
    code, output = finish(start(corpus, tmp_path / "run", 2, *more, "trainer.batch_tokens=1000"), 60)
    assert code == 0, output
    assert events(tmp_path / "run", "stop")[-1] | {"time": None} == {
        "event": "stop", "reason": "max_epochs", "step": 2, "finished": True, "time": None,
    }  # fmt: skip


@pytest.mark.slow
def test_a_killed_rank_ends_the_others_and_the_same_command_goes_on(corpus, alone, tmp_path):
    run_dir = tmp_path / "run"
    more = ["trainer.accumulate_batches=2", "trainer.ema_decay=0.9", "trainer.save_every_steps=3"]
    process = start(corpus, run_dir, 2, *more)
    wait_for_step(process, run_dir, 7)
    ranks = children(process.pid)
    os.kill(pid_of_rank(process.pid, 1), signal.SIGKILL)
    code, output = finish(process, 60)
    assert code != 0 and "rank 1 of 2 does not answer" in output
    assert not any(Path(f"/proc/{pid}").exists() for pid in ranks)
    code, output = finish(start(corpus, run_dir, 2, *more))
    assert code == 0 and "resuming" in output, output
    assert largest_difference(alone, run_dir) < 1e-6


@pytest.mark.slow
def test_a_hanging_rank_is_named_within_the_time_allowed(corpus, tmp_path):
    run_dir = tmp_path / "run"
    process = start(corpus, run_dir, 2, "trainer.max_steps=100000", "trainer.distributed_timeout_seconds=2")
    wait_for_step(process, run_dir, 3)
    hanging = pid_of_rank(process.pid, 1)
    os.kill(hanging, signal.SIGSTOP)
    start_time = time.monotonic()
    deadline = start_time + 40
    while len(children(process.pid)) > 1 and time.monotonic() < deadline:
        time.sleep(0.1)
    assert time.monotonic() - start_time < 30
    os.kill(hanging, signal.SIGKILL)  # torchrun itself would wait half a minute for it
    code, output = finish(process, 60)
    assert code != 0 and "rank 1 of 2 does not answer" in output


@pytest.mark.slow
def test_sigterm_stops_all_ranks_together_and_one_process_goes_on(corpus, alone, tmp_path):
    run_dir = tmp_path / "run"
    more = ["trainer.accumulate_batches=2", "trainer.ema_decay=0.9", "trainer.validate_every_steps=1"]
    process = start(corpus, run_dir, 2, *more)
    wait_for_step(process, run_dir, 6)
    process.send_signal(signal.SIGTERM)
    _, output = finish(process, 60)
    saved = events(run_dir, "stop")[-1]
    assert saved["reason"] == "SIGTERM" and not saved["finished"] and 6 <= saved["step"] < 20
    assert output.count("stopped by SIGTERM and saved in") == 1
    code, output = finish(start(corpus, run_dir, 1, *more))
    assert code == 0, output
    assert "the number of ranks is 1 now: an update keeps its 4 micro-batches" in output
    assert largest_difference(alone, run_dir) < 1e-6


def test_half_of_what_torchrun_sets_is_refused(corpus, tmp_path):
    environment = {**os.environ, "WORLD_SIZE": "2"}
    code = "from mt.training.distributed import joined\nwith joined(): pass"
    result = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert "WORLD_SIZE=2 without RANK: start with torchrun or unset it" in result.stderr
