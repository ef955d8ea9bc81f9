"""Multiruns by Hydra's launcher for SLURM, here with submitit's local executor instead, and by Optuna's sweeper."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.training.ranks import arguments, events, largest_difference
from tests.training.small_runs import write_corpus

CONFIGS = Path(__file__).parents[1] / "configs"


def multirun(tmp_path: Path, *more: str) -> subprocess.CompletedProcess:
    write_corpus(tmp_path, 1, {"train": 150, "valid": 9}, "")
    settings = [s for s in arguments(tmp_path, tmp_path / "run") if not s.startswith("trainer.max_steps")]
    command = [sys.executable, "-m", "mt", "train", "-m", *settings, "trainer.max_steps=4", *more]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, capture_output=True, text=True, timeout=1200, env=environment)


def test_the_slurm_launcher_is_submitits_with_a_shared_folder():
    settings = yaml.safe_load((CONFIGS / "hydra/launcher/slurm.yaml").read_text(encoding="utf-8"))
    assert settings.pop("defaults") == ["submitit_slurm"]
    launcher = pytest.importorskip("hydra_plugins.hydra_submitit_launcher.config", reason="needs the extra cluster")
    assert settings.keys() <= vars(launcher.SlurmQueueConf()).keys()


@pytest.mark.slow
def test_jobs_of_two_ranks_each(tmp_path):
    pytest.importorskip("hydra_plugins.hydra_submitit_launcher", reason="needs the extra cluster")
    launcher = ["hydra/launcher=submitit_local", f"hydra.launcher.submitit_folder={tmp_path}/jobs/%j"]
    ranks = ["hydra.launcher.tasks_per_node=2", "hydra.launcher.timeout_min=30"]
    result = multirun(tmp_path, *launcher, *ranks, "trainer.seed=1,2", "trainer.shard_ranks=null")
    assert result.returncode == 0, result.stderr
    runs = [tmp_path / f"run-trainer.seed={seed}" for seed in (1, 2)]
    assert largest_difference(*runs) > 1e-3
    for run in runs:
        assert events(run, "stop")[-1]["finished"]
        assert any("2 ranks" in event["text"] for event in events(run, "message"))


@pytest.mark.slow
def test_optuna_looks_at_the_best_metric(tmp_path):
    pytest.importorskip("hydra_plugins.hydra_optuna_sweeper", reason="needs hydra-optuna-sweeper")
    sweeper = ["hydra/sweeper=optuna", "hydra.sweeper.n_trials=3", "hydra.sweeper.n_jobs=1"]
    sweeper += ["hydra.sweeper.direction=minimize", "trainer.best_metric=loss"]
    result = multirun(tmp_path, *sweeper, "optim.lr=interval(0.0001,0.01)")
    assert result.returncode == 0, result.stderr
    runs = sorted(tmp_path.glob("run-*"))
    assert len(runs) == 3
    losses = [json.loads((run / "checkpoints/best.json").read_text()) for run in runs]
    assert len(losses) == 3
