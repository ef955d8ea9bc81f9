"""The real command line in real folders: what a relative path means, and where files appear."""

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow
WORDS = "red tea rice good books day they read every morning drink love".split()
TINY = (
    "~experiment", "tokenizer.vocabulary_size=300", "trainer.tensorboard=false",
    "model.d_model=16", "model.d_ff=16", "model.n_heads=2", "model.encoder_layers=1", "model.decoder_layers=1",
)  # fmt: skip


def corpus(folder: str) -> list[str]:
    return [f"data.{split}.main.path={folder}/{split}.tsv" for split in ("train", "valid")]


def mt_train(folder: Path | str, *arguments: str, steps: int = 2) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "mt", "train", *TINY, f"trainer.max_steps={steps}", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)


@pytest.fixture
def start(tmp_path: Path) -> Path:
    """A folder to start in, with a corpus in corpus/ and an empty folder inside/."""
    generator = random.Random(0)
    (tmp_path / "corpus").mkdir()
    (tmp_path / "inside").mkdir()
    for split, count in (("train", 60), ("valid", 4)):
        lines = [" ".join(generator.choices(WORDS, k=generator.randint(2, 6))) for _ in range(count)]
        (tmp_path / "corpus" / f"{split}.tsv").write_text("".join(f"{line}\t{line}\n" for line in lines))
    return tmp_path


def test_relative_paths_mean_the_folder_one_stands_in(start: Path) -> None:
    first = mt_train(start, *corpus("corpus"), "run_dir=runs/a")
    assert first.returncode == 0, first.stderr
    assert {path.name for path in start.iterdir()} == {"corpus", "inside", "runs", "data"}
    assert [path.name for path in (start / "data").iterdir()] == ["cache"]
    saved = yaml.safe_load((start / "runs" / "a" / "config.yaml").read_bytes())
    assert (saved["run_dir"], saved["trainer"]["max_steps"]) == ("runs/a", 2)
    more = mt_train(start, *corpus("corpus"), "run_dir=runs/a", "resume=true", steps=3)
    assert more.returncode == 0 and "resuming runs/a at update 2" in more.stderr
    outside = mt_train(start / "inside", *corpus("../corpus"), "run_dir=../runs/b", "data.cache_dir=../data/cache")
    assert outside.returncode == 0, outside.stderr
    assert list((start / "inside").iterdir()) == []
    assert sorted(path.name for path in (start / "runs").iterdir()) == ["a", "b"]


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a folder where not even root can create files")
def test_a_read_only_current_folder_is_fine_where_everything_is_written_elsewhere(start: Path) -> None:
    places = (f"run_dir={start}/run", f"data.cache_dir={start}/cache")
    done = mt_train("/proc", *corpus(f"{start}/corpus"), *places)
    assert done.returncode == 0, done.stderr
    assert (start / "run" / "checkpoints" / "best.json").is_file()


def test_jobs_of_a_multirun_have_folders_of_their_own(start: Path) -> None:
    done = mt_train(start, *corpus("corpus"), "-m", "optim.lr=1e-3,2e-3", "run_dir=runs/x")
    assert done.returncode == 0, done.stderr
    runs = sorted(path.name for path in (start / "runs").iterdir())
    assert runs == ["x-optim.lr=0.001", "x-optim.lr=0.002"]
    for run, rate in zip(runs, (1e-3, 2e-3), strict=True):
        assert yaml.safe_load((start / "runs" / run / "config.yaml").read_bytes())["optim"]["lr"] == rate
    assert {path.name for path in start.iterdir()} == {"corpus", "inside", "runs", "data"}  # no outputs/, no multirun/
