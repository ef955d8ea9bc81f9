"""A million lines by two processes, killed and resumed (`make test-big-files`): to the byte what one process writes."""

import os
import random
import signal
import subprocess
import sys
import time

import pytest

from mt.translation.parts import PART_LINES, parts_folder
from tests.training.ranks import children, finish, start
from tests.training.small_runs import WORDS, write_corpus

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="finds the ranks in /proc")]
LINES, KILLS, SECONDS = 1_000_000, 4, 3600


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory):
    place = tmp_path_factory.mktemp("run")
    write_corpus(place, 1, {"train": 150, "valid": 9}, "")
    code, output = finish(start(place, place / "run", 1), 600)
    assert code == 0, output
    return place / "run"


def translate(run_dir, source, output, processes):
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    command = [sys.executable, *(torchrun if processes > 1 else []), "-m", "mt", "translate", str(run_dir)]
    command += ["--input", str(source), "--output", str(output), "--beam-size", "1", "--scores", "--device", "cpu"]
    command += ["--decode", "max_length_ratio=0", "--decode", "max_length_offset=3"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)


def test_a_million_lines_by_two_processes_killed_and_resumed(run_dir, tmp_path):
    generator, source = random.Random(1), tmp_path / "lines.en"
    with source.open("w", encoding="utf-8") as file:
        for _ in range(LINES):
            file.write(" ".join(generator.choices(WORDS, k=generator.randint(0, 3))) + "\n")
    code, said = finish(translate(run_dir, source, tmp_path / "one", 1), SECONDS)
    assert code == 0, said
    done, output = 0, tmp_path / "two"
    for number in range(1, KILLS + 1):
        process, deadline = translate(run_dir, source, output, 2), time.monotonic() + SECONDS
        while (done := finished(output)) < number * LINES // PART_LINES // (KILLS + 1):
            assert process.poll() is None and time.monotonic() < deadline, process.communicate()[0]
            time.sleep(0.05)
        everyone = [process.pid, *children(process.pid)]
        for pid in everyone if number % 2 else everyone[1:2]:  # all at once, or one rank, which ends the others
            os.kill(pid, signal.SIGKILL)
        code, said = finish(process, 120)
        assert code != 0 and not output.exists()
    code, said = finish(translate(run_dir, source, output, 2), SECONDS)
    assert code == 0 and finished(output) == 0, said
    print(f"{LINES} lines, {KILLS} kills, the last after {done} of {LINES // PART_LINES} parts")
    assert output.read_bytes().count(b"\n") == LINES
    assert output.read_bytes() == (tmp_path / "one").read_bytes()


def finished(output) -> int:
    """Returns how many parts are complete."""
    return sum(1 for _ in parts_folder(output).glob("[0-9]*")) if parts_folder(output).is_dir() else 0
