import sys
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
