"""Folders appear whole, and what they replace stays until they do."""

import os

import pytest

from mt.export.whole import new_folder


def test_a_folder_takes_the_name_and_replaces(tmp_path):
    for text in ("first", "second"):
        with new_folder(tmp_path / "out") as temporary:
            (temporary / text).write_text(text)
            assert (tmp_path / "out").exists() == (text == "second")
        assert [path.name for path in (tmp_path / "out").iterdir()] == [text]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_file_of_the_same_name_inside_is_no_reason_to_take_it_out(tmp_path):
    with new_folder(tmp_path / "model.bin") as temporary:
        (temporary / "model.bin").write_text("x")
    assert (tmp_path / "model.bin" / "model.bin").read_text() == "x"
    with new_folder(tmp_path / "package", file=True) as temporary:
        (temporary / "package").write_text("x")
    assert (tmp_path / "package").read_text() == "x"


@pytest.mark.parametrize("failing", [1, 2])
def test_what_was_there_stays_where_renaming_fails(tmp_path, monkeypatch, failing):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "old").write_text("x")
    renames = []

    def replace(source, target, rename=os.replace):
        renames.append(target)
        if len(renames) == failing:
            raise SystemExit(143)  # as SIGTERM does
        rename(source, target)

    monkeypatch.setattr("mt.export.whole.os.replace", replace)
    with pytest.raises(SystemExit), new_folder(tmp_path / "out") as temporary:
        (temporary / "new").write_text("x")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["old"]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_nothing_is_left_of_a_block_that_fails(tmp_path):
    with pytest.raises(ValueError), new_folder(tmp_path / "out") as temporary:
        (temporary / "new").write_text("x")
        raise ValueError
    assert not list(tmp_path.iterdir())
