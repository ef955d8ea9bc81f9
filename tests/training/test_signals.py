"""SIGTERM, Ctrl-C and the limit of a session: saved, said where, exit code 75, and the same command goes on."""

import os
import signal
import time

import pytest

from mt.training.signals import StopRequest
from tests.training.test_distributed import alone, corpus, finish, largest_difference, start, wait_for_step  # noqa: F401


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_asks_and_the_second_has_its_usual_effect(number):
    usual = []
    before = signal.signal(number, lambda *arguments: usual.append(1))
    try:
        with StopRequest() as stop:
            assert stop.number() == 0
            os.kill(os.getpid(), number)
            assert StopRequest.name_of(stop.number()) == signal.Signals(number).name and not usual
            os.kill(os.getpid(), number)
            assert usual
    finally:
        signal.signal(number, before)


def test_the_end_of_a_session():
    assert StopRequest(time.monotonic() + 1000).number() == 0
    assert StopRequest.name_of(StopRequest(time.monotonic() - 1).number()) == "max_session_minutes"


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stopped_run_says_where_it_saved_and_the_same_command_goes_on(corpus, alone, tmp_path, number):  # noqa: F811
    run_dir = tmp_path / "run"
    more = ["trainer.accumulate_batches=4", "trainer.ema_decay=0.9"]
    process = start(corpus, run_dir, 1, *more, "trainer.validate_every_steps=1")
    wait_for_step(process, run_dir, 5)
    process.send_signal(number)
    code, output = finish(process)
    assert code == 75
    assert f"stopped by {number.name} and saved in {run_dir}/checkpoints/step_" in output
    code, output = finish(start(corpus, run_dir, 1, *more))
    assert code == 0, output
    assert largest_difference(alone, run_dir) == 0.0
