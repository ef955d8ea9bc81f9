import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import yaml
from torch import nn

from mt import checkpoint, versions
from mt.config import CorpusConfig, DataConfig, DecodeConfig, TrainConfig

STATE = {"tokenizer_fingerprint": "f" * 64, "metrics": {"bleu": 12.5}, "finished": False}


class FakeTokenizers:
    def __init__(self, fingerprint: str = "f" * 64) -> None:
        self.fingerprint = fingerprint

    def save(self, folder: Path) -> None:
        folder.mkdir()
        (folder / "joint.model").write_bytes(b"model")


class Tied(nn.Module):
    def __init__(self, size: int = 5) -> None:
        super().__init__()
        self.embedding = nn.Embedding(size, 4)
        self.output = nn.Linear(4, size)
        self.output.weight = self.embedding.weight


def save(run_dir: Path, step: int, model: nn.Module | None = None, **more: object) -> Path:
    weights = (model or Tied()).state_dict()
    training = {"adam/step": torch.tensor(float(step)), "rng": torch.get_rng_state()}
    return checkpoint.save_checkpoint(run_dir, step, weights, training, {**STATE, **more})


def test_a_run_gives_back_its_settings(tmp_path):
    corpus = CorpusConfig(path="数据/a b.tsv")
    config = TrainConfig(name="试", data=DataConfig(train={"main": corpus}))
    config.optim.lr = 1e-7
    checkpoint.create_run(tmp_path / "run", config, FakeTokenizers(), ["mt", "train", "bad\udc80name"])
    assert checkpoint.load_config(tmp_path / "run") == config
    assert "数据/a b.tsv" in (tmp_path / "run" / "config.yaml").read_text(encoding="utf-8")
    versions = json.loads((tmp_path / "run" / "versions.json").read_bytes())
    assert versions["command"] == ["mt", "train", "bad\udc80name"] and versions["torch"] == torch.__version__
    with pytest.raises(ValueError, match="resume=true"):
        checkpoint.create_run(tmp_path / "run", config, FakeTokenizers(), [])


def test_a_folder_without_settings_is_no_run(tmp_path):
    assert not checkpoint.is_run(tmp_path)
    with pytest.raises(ValueError, match="is not a run folder: no config.yaml; train with mt train run_dir="):
        checkpoint.load_config(tmp_path)
    (tmp_path / "config.yaml").write_text("model: {d_modell: 1}\n")
    with pytest.raises(ValueError, match=r"config\.yaml: unknown setting model\.d_modell; did you mean model\.d_model"):
        checkpoint.load_config(tmp_path)
    (tmp_path / "config.yaml").write_text("optim: {lr: [\n")
    with pytest.raises(ValueError, match=r"config\.yaml: ") as caught:
        checkpoint.load_config(tmp_path)
    assert "\n" not in str(caught.value)


def test_settings_of_another_version_are_no_reason_to_refuse_a_run(tmp_path):
    checkpoint.create_run(tmp_path / "run", TrainConfig(), FakeTokenizers(), [])
    file = tmp_path / "run" / "config.yaml"
    settings = yaml.safe_load(file.read_bytes())
    settings["trainer"]["average_last_checkpoints"] = 0  # no longer there
    settings["decode"]["diversity_penalty"] = 1.0  # of no effect with one group
    del settings["decode"]["lookahead"]  # newer
    file.write_text(yaml.safe_dump(settings))
    with pytest.warns(UserWarning, match="config.yaml: trainer.average_last_checkpoints=0 is no setting of this ver"):
        config = checkpoint.load_config(tmp_path / "run")
    assert config == TrainConfig(decode=DecodeConfig(diversity_penalty=1.0))


def test_a_checkpoint_gives_back_what_was_saved(tmp_path):
    model, other = Tied(), Tied()
    path = save(tmp_path, 7, model, epoch=3)
    assert path == tmp_path / "checkpoints" / "step_00000007"
    checkpoint.load_weights(other, path)
    assert torch.equal(other.output.bias, model.output.bias) and torch.equal(other.output.weight, model.output.weight)
    assert other.output.weight is other.embedding.weight
    training, state = checkpoint.read_training(path)
    assert torch.equal(training["rng"], torch.get_rng_state()) and training["adam/step"].shape == ()
    assert (state["step"], state["epoch"], state["metrics"]) == (7, 3, {"bleu": 12.5})
    assert {file.stat().st_mode for file in path.iterdir()} == {(path / "state.json").stat().st_mode}


def test_tied_tensors_are_stored_once_and_views_are_copied(tmp_path):
    whole = torch.arange(12.0).reshape(3, 4)
    weights = {"a": whole, "b": whole, "row": whole[1], "transposed": whole.t()}
    weights |= {"x": torch.empty(0), "y": torch.empty(0)}
    path = checkpoint.save_checkpoint(tmp_path, 1, weights, {}, STATE)
    read = checkpoint.read_weights(path)
    assert read["a"] is read["b"] and read["x"] is not read["y"]
    assert all(torch.equal(read[name], weights[name]) for name in weights) and len(read) == len(weights)
    assert (path / "model.safetensors").stat().st_size < 12 * 4 * 3 + 800
    read["a"].add_(1)  # memory-mapped, but private
    assert torch.equal(checkpoint.read_weights(path)["a"], whole)


def test_wrapper_prefixes_are_removed_and_accepted(tmp_path):
    model = Tied()
    wrapped = nn.ModuleDict({"module": nn.ModuleDict({"_orig_mod": model})})
    path = save(tmp_path, 1, wrapped)
    assert set(checkpoint.read_weights(path)) == set(model.state_dict())
    plain, again = Tied(), nn.ModuleDict({"_orig_mod": Tied()})
    checkpoint.load_weights(plain, path)
    checkpoint.load_weights(again, path)
    assert torch.equal(plain.output.weight, model.output.weight)
    assert torch.equal(again["_orig_mod"].output.bias, model.output.bias)


def test_a_tied_tensor_may_be_given_under_one_name(tmp_path):
    model, tied = Tied(), Tied()
    weights = dict(model.named_parameters())
    assert "output.weight" not in weights
    checkpoint.copy_weights(tied, weights, "memory")
    assert torch.equal(tied.output.weight, model.embedding.weight)
    untied = Tied()
    untied.output.weight = nn.Parameter(torch.zeros(5, 4))
    with pytest.raises(ValueError, match="memory does not fit the model: missing output.weight$"):
        checkpoint.copy_weights(untied, weights, "memory")


def test_weights_that_do_not_fit_are_named_in_one_line(tmp_path):
    path = save(tmp_path, 1, Tied(5))
    bigger = Tied(6)
    bigger.extra = nn.Linear(2, 2)
    del bigger.output.bias
    before = bigger.embedding.weight.clone()
    with pytest.raises(ValueError) as caught:
        checkpoint.load_weights(bigger, path)
    message = str(caught.value)
    assert "missing extra.weight, extra.bias" in message and "unknown output.bias" in message
    assert "embedding.weight (5x4 given, 6x4 in the model)" in message and "\n" not in message
    assert torch.equal(bigger.embedding.weight, before)


def test_another_tokenizer_is_refused_with_both_fingerprints():
    checkpoint.check_tokenizer(STATE, FakeTokenizers())
    with pytest.raises(ValueError, match="does not match") as caught:
        checkpoint.check_tokenizer(STATE, FakeTokenizers("0" * 64))
    assert "f" * 64 in str(caught.value) and "0" * 64 in str(caught.value)


def test_a_newer_format_is_refused(tmp_path):
    path = save(tmp_path, 1)
    state = json.loads((path / "state.json").read_bytes())
    (path / "state.json").write_text(json.dumps({**state, "format": checkpoint.FORMAT + 1}))
    with pytest.raises(ValueError, match="newer mt"):
        checkpoint.read_weights(path)


def test_a_state_says_what_made_it(tmp_path):
    state = checkpoint.read_state(save(tmp_path, 1, config={"optim": {"lr": 0.1}}))
    assert state["versions"] == versions.versions() and state["versions"]["torch"] == torch.__version__
    assert state["config"] == {"optim": {"lr": 0.1}}


def test_a_named_checkpoint_leaves_the_trainers_unfinished_save_alone(tmp_path):
    save(tmp_path, 1)
    unfinished = tmp_path / "checkpoints" / ".tmp-step_00000002"  # training goes on in another process
    unfinished.mkdir()
    for _ in range(2):
        checkpoint.save_checkpoint(tmp_path, 1, Tied().state_dict(), None, STATE, name="average")
    assert unfinished.is_dir()


def test_strays_are_removed_and_a_half_replaced_checkpoint_returns(tmp_path):
    path = save(tmp_path, 3)
    os.replace(path, path.with_name(".old-step_00000003"))  # killed between the two renames
    path.with_name(".tmp-step_00000003").mkdir()
    path.with_name(".tmp-best.json").write_bytes(b"{")
    checkpoint.remove_unfinished(tmp_path)
    assert [each.name for each in path.parent.iterdir()] == ["step_00000003"]
    assert checkpoint.newest_readable(tmp_path) == path


def test_pointers_and_rotation(tmp_path):
    paths = [save(tmp_path, step) for step in (1, 2, 30, 100_000_000)]
    named = checkpoint.save_checkpoint(tmp_path, 30, Tied().state_dict(), None, STATE, name="average")
    assert checkpoint.list_checkpoints(tmp_path) == paths
    assert not checkpoint.is_pointed(tmp_path, "best")
    checkpoint.point(tmp_path, "best", paths[0])
    assert checkpoint.is_pointed(tmp_path, "best")
    checkpoint.point(tmp_path, "last", paths[3])
    checkpoint.rotate(tmp_path, 1)
    assert checkpoint.list_checkpoints(tmp_path) == [paths[0], paths[3]] and named.is_dir()
    assert checkpoint.pointed(tmp_path, "best") == paths[0]
    assert checkpoint.pointed(tmp_path, paths[3].name) == paths[3]
    checkpoint.rotate(tmp_path, 5)
    assert len(checkpoint.list_checkpoints(tmp_path)) == 2
    assert checkpoint.newest_readable(tmp_path) == paths[3]  # not the average, which cannot be resumed


NAN = float("nan")


@pytest.mark.parametrize(
    ("metric", "values", "best"),
    [
        ("bleu", [30.0, 10.0, 20.0, 5.0, 1.0], [1, 3]),
        ("chrf", [1.0, 50.0, 50.0, 5.0, 1.0], [2, 3]),
        ("loss", [3.0, 1.0, 2.0, 5.0, 9.0], [2, 3]),
        ("loss", [NAN, float("-inf"), None, 4.0, NAN], [4]),
        ("bleu", [NAN, float("inf"), "99", 4.0, None], [4]),
    ],
)
def test_rotation_keeps_the_best_by_a_metric(tmp_path, metric, values, best):
    for step, value in enumerate(values, start=1):
        save(tmp_path, step, metrics={"other": 0.0} if value is None else {metric: value})
    checkpoint.rotate(tmp_path, keep_last=1, keep_best=2, metric=metric)
    kept = [int(path.name[5:]) for path in checkpoint.list_checkpoints(tmp_path)]
    assert kept == sorted({*best, 5})


def test_rotation_keeps_what_it_cannot_judge(tmp_path):
    paths = [save(tmp_path, step) for step in range(1, 6)]
    (paths[0] / "state.json").write_bytes(b"{")
    (paths[4] / "state.json").unlink()
    with pytest.warns(UserWarning) as warned:
        checkpoint.rotate(tmp_path, 1)
    assert [str(each.message).split(": ")[0] for each in warned] == [str(paths[i] / "state.json") for i in (0, 4)]
    assert checkpoint.list_checkpoints(tmp_path) == [paths[0], paths[3], paths[4]]  # the newest readable one is kept
    (tmp_path / "checkpoints" / "best.json").write_bytes(b"{")
    with pytest.warns(UserWarning) as warned:
        checkpoint.rotate(tmp_path, 0)
    assert re.search("best.json: damaged.*no checkpoint is deleted", str(warned[-1].message))
    assert len(checkpoint.list_checkpoints(tmp_path)) == 3


def test_a_best_checkpoint_deleted_by_hand(tmp_path):
    paths = [save(tmp_path, step) for step in (1, 2, 3)]
    checkpoint.point(tmp_path, "best", paths[0])
    shutil.rmtree(paths[0])
    with pytest.raises(ValueError, match="best.json: names step_00000001, which is not there; the run has best, st"):
        checkpoint.pointed(tmp_path, "best")
    checkpoint.rotate(tmp_path, 1)  # training goes on
    assert checkpoint.list_checkpoints(tmp_path) == [paths[2]]


@pytest.mark.parametrize(
    "content", [b"", b"[]", b'{"checkpoint": 5}', b'{"checkpoint": ".."}', b"[" * 100_000, b"\xff"]
)
def test_a_pointer_that_names_no_checkpoint(tmp_path, content):
    path = save(tmp_path, 1)
    (path.parent / "best.json").write_bytes(content)
    with pytest.raises(ValueError, match=r"best.json: .*the run has best, step_00000001$"):
        checkpoint.pointed(tmp_path, "best")


def test_links_are_followed_and_never_half_removed(tmp_path):
    elsewhere, run_dir = tmp_path / "disk", tmp_path / "run"
    elsewhere.mkdir()
    run_dir.symlink_to(elsewhere)
    paths = [save(run_dir, step) for step in (1, 2)]
    checkpoint.point(run_dir, "best", paths[1])
    assert checkpoint.pointed(run_dir, "best") == paths[1] and checkpoint.newest_readable(elsewhere) is not None
    moved = tmp_path / "archive"
    paths[0].rename(moved)
    paths[0].symlink_to(moved)
    assert checkpoint.list_checkpoints(run_dir) == paths
    checkpoint.rotate(run_dir, 1)
    assert sorted(os.listdir(paths[0].parent)) == ["best.json", "step_00000002"]
    assert sorted(os.listdir(moved)) == [
        "model.safetensors",
        "state.json",
        "training.safetensors",
    ]  # not ours
    paths[0].symlink_to(tmp_path / "gone")
    assert save(run_dir, 1) == paths[0] and checkpoint.read_state(paths[0])["step"] == 1


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    path = save(tmp_path, 1)
    path.parent.chmod(0o555)
    try:
        with pytest.raises(OSError, match="step_00000002: not saved .*Permission denied") as caught:
            save(tmp_path, 2)
        assert "\n" not in str(caught.value) and checkpoint.newest_readable(tmp_path) == path
        with pytest.raises(OSError, match="Permission denied: .*checkpoints/.tmp-last.json"):
            checkpoint.point(tmp_path, "last", path)
    finally:
        path.parent.chmod(0o755)


@pytest.mark.parametrize("name", ["best", "step_00000009", "../checkpoints", "", ".", ".."])
def test_a_checkpoint_that_is_not_there_is_named(tmp_path, name):
    save(tmp_path, 1)
    with pytest.raises(ValueError, match="the run has step_00000001"):
        checkpoint.pointed(tmp_path, name)


SAVER = """
import sys, torch
from pathlib import Path
from mt import checkpoint
torch.set_num_threads(1)
state = {"tokenizer_fingerprint": "f", "metrics": {}, "finished": False}
print("ready", flush=True)
for step in range(1, 100000):
    weights = {"w": torch.full((200, 200), float(step))}
    path = checkpoint.save_checkpoint(Path(sys.argv[1]), step % 5 + 1, weights, {"s": torch.tensor(step)}, state)
    checkpoint.point(path.parents[1], "last", path)
    print(path.name, step, flush=True)
"""


@pytest.mark.skipif(os.name == "nt", reason="needs SIGKILL")
def test_a_kill_at_any_moment_leaves_readable_checkpoints(tmp_path):
    saved: dict[str, int] = {}
    process = subprocess.Popen([sys.executable, "-c", SAVER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.3)
    process.kill()
    for line in process.stdout.read().split("\n"):
        if line.count(" ") == 1:
            saved[line.split(" ")[0]] = int(line.split(" ")[1])
    process.wait()
    assert saved
    checkpoint.remove_unfinished(tmp_path)
    assert not list((tmp_path / "checkpoints").glob(".*"))
    for name, step in saved.items():
        path = checkpoint.pointed(tmp_path, name)
        training, _ = checkpoint.read_training(path)
        assert training["s"] >= step
        assert (checkpoint.read_weights(path)["w"] == training["s"].float()).all()
    checkpoint.pointed(tmp_path, "last")
