import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from mt.commands import train as command
from mt.config import TrainConfig
from mt.training.progress import TrainResult


@pytest.fixture
def trained(monkeypatch, tmp_path):
    """Returns the settings that training was called with; in the working folder lies `moved`, once runs/old."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "moved" / "checkpoints").mkdir(parents=True)
    (tmp_path / "moved" / "config.yaml").write_text("name: old\ndata: {train: {main: {path: a.tsv}}}\n")
    called = []
    monkeypatch.setattr(command, "_run", called.append)
    return called


def test_the_settings_of_a_moved_run_do_not_begin_another_where_it_was(trained):
    with pytest.raises(ValueError, match="its run_dir is runs/old, but it lies in .* set run_dir=moved to go on"):
        command.train(SimpleNamespace(args=[]), Path("moved/config.yaml"))
    assert not trained


@pytest.mark.parametrize("override", ["run_dir=moved", "run_dir=runs/b", "name=b"])
def test_a_folder_that_was_chosen_is_taken(trained, override):
    command.train(SimpleNamespace(args=[override]), Path("moved/config.yaml"))
    assert len(trained) == 1


def test_a_run_in_its_own_place_goes_on(trained, tmp_path):
    (tmp_path / "runs").symlink_to(tmp_path)
    (tmp_path / "moved").rename(tmp_path / "old")
    command.train(SimpleNamespace(args=[]), tmp_path / "runs" / "old" / "config.yaml")
    assert len(trained) == 1


def test_a_finished_run_is_finished_though_nobody_hears_it(monkeypatch, tmp_path):
    class Broken:
        def write(self, text):
            raise BrokenPipeError

    result = TrainResult(tmp_path, 3, {}, "max_steps", True)
    monkeypatch.setattr("mt.training.run.train", lambda config, arguments: result)
    monkeypatch.setattr(sys, "stderr", Broken())
    assert command._run(TrainConfig()) is None  # it has no metrics, and raised nothing


def test_a_sweep_under_torchrun_is_refused(run_mt, monkeypatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    code, out, err = run_mt("train", "-m", "experiment=demo", "optim.lr=1e-3,2e-3")
    assert (
        (code, out) == (2, b"") and err.startswith("error: -m: begins one run after the other") and err.count("\n") == 1
    )
