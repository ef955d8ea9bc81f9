"""What other programs take of the machine, and what is our own."""

import subprocess
import sys
import time

import pytest

from mt import processes

BURN = "import time; end = time.process_time() + 1\nwhile time.process_time() < end: pass"
linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc/stat is Linux's")


@linux
def test_work_of_another_program_is_seen():
    others = processes.OtherWork()
    with subprocess.Popen([sys.executable, "-c", BURN]) as burning:
        time.sleep(0.9)
        assert others.cores() > 0.2  # it has not been waited for: its work is another's
        burning.kill()


@linux
def test_own_work_and_that_of_ended_children_is_not_others():
    _, busy, own = processes._clocks()
    subprocess.run([sys.executable, "-c", BURN], check=True)
    end = time.process_time() + 0.5
    while time.process_time() < end:
        pass
    _, busy_after, own_after = processes._clocks()
    assert 1.4 < own_after - own <= busy_after - busy + 0.1


def test_nothing_is_said_of_a_moment_or_without_proc(monkeypatch):
    assert processes.OtherWork().cores() == 0.0
    monkeypatch.setattr(processes, "open", lambda *_, **__: (_ for _ in ()).throw(OSError()), raising=False)
    others = processes.OtherWork()
    time.sleep(0.6)
    assert others.cores() == 0.0
