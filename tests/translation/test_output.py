import errno
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from mt.translation.output import open_output


def test_the_name_appears_with_the_whole_content(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    with open_output(path) as file:
        file.write(b"one")
        assert not path.exists()
    assert path.read_bytes() == b"one"
    assert list(tmp_path.iterdir()) == [path]


def test_an_error_leaves_the_old_content(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"old")
    with pytest.raises(ValueError), open_output(path) as file:
        file.write(b"new")
        raise ValueError
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    link, path = tmp_path / "link", tmp_path / "a.txt"
    link.symlink_to(path)
    with open_output(link) as file:
        file.write(b"x")
    assert link.is_symlink() and path.read_bytes() == b"x"


def test_devices_are_written_to_not_replaced() -> None:
    with open_output(Path("/dev/null")) as file:
        file.write(b"x")
    assert Path("/dev/null").is_char_device()


def test_a_missing_folder_and_a_folder_are_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no folder"), open_output(tmp_path / "no" / "a.txt"):
        pass
    with pytest.raises(IsADirectoryError, match="is a folder"), open_output(tmp_path):
        pass


def test_a_closed_standard_output_is_an_error_in_one_line(monkeypatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    with pytest.raises(OSError, match="standard output is closed"):
        with open_output(None):
            pass


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP"])
def test_a_signal_ends_the_program_and_leaves_nothing_behind(tmp_path: Path, name: str) -> None:
    (tmp_path / "a.txt").write_bytes(b"old")
    program = """
import signal, sys
from pathlib import Path
from mt.translation.output import open_output
signal.signal(signal.SIGINT, signal.default_int_handler)
with open_output(Path("a.txt")) as file:
    file.write(b"new")
    file.flush()
    print("open", flush=True)
    sys.stdin.read()
"""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen([sys.executable, "-c", program], cwd=tmp_path, env=environment, **pipes) as process:
        assert process.stdout.readline() == b"open\n"
        assert len(list(tmp_path.iterdir())) == 2
        process.send_signal(getattr(signal, name))
        code = process.wait(timeout=30)
    assert code == (-signal.SIGINT if name == "SIGINT" else 128 + getattr(signal, name))  # mt makes 130 of the former
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"old"]


def test_handlers_of_others_are_left_alone_and_ours_are_taken_back(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    with open_output(tmp_path / "a.txt"):
        assert signal.getsignal(signal.SIGTERM) != before
    assert signal.getsignal(signal.SIGTERM) == before
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with open_output(tmp_path / "a.txt"):
            assert signal.getsignal(signal.SIGTERM) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before)


def test_in_a_thread_there_are_no_handlers_but_the_file_is_written(tmp_path: Path) -> None:
    def write() -> None:
        with open_output(tmp_path / "a.txt") as file:
            file.write(b"x")

    thread = threading.Thread(target=write)
    thread.start()
    thread.join()
    assert (tmp_path / "a.txt").read_bytes() == b"x"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_disk_is_named() -> None:
    with pytest.raises(OSError) as caught, open_output(Path("/dev/full")) as file:
        file.write(b"x")
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, "/dev/full")


def test_two_writers_of_one_name_do_not_mix(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    child = "from mt.translation.output import *\nwith open_output(Path('a.txt')) as file: file.write(b'child')"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    with open_output(path) as file:
        file.write(b"the parent's ")
        subprocess.run([sys.executable, "-c", child], cwd=tmp_path, env=environment, check=True)
        assert path.read_bytes() == b"child"
        file.write(b"own")
    assert path.read_bytes() == b"the parent's own"
