import json
import os
import pickle
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from torch import nn

from mt import checkpoint
from mt.config import CorpusConfig, DataConfig, TrainConfig

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
    (tmp_path / "config.yaml").write_text("optim: {lrr: 1}\n")
    with pytest.raises(ValueError, match=r"config\.yaml: unknown setting optim\.lrr"):
        checkpoint.load_config(tmp_path)
    (tmp_path / "config.yaml").write_text("optim: {lr: [\n")
    with pytest.raises(ValueError, match=r"config\.yaml: ") as caught:
        checkpoint.load_config(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_yaml_tag_runs_no_code(tmp_path):
    (tmp_path / "config.yaml").write_text(f"name: !!python/object/apply:os.mkdir ['{tmp_path}/pwned']\n")
    with pytest.raises(ValueError, match=r"config\.yaml"):
        checkpoint.load_config(tmp_path)
    assert not (tmp_path / "pwned").exists()


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


@pytest.mark.parametrize("name", ["model.safetensors", "training.safetensors", "state.json"])
@pytest.mark.parametrize("share", [0, 0.5, 0.99, None])
def test_a_truncated_checkpoint_is_passed_over_and_kept(tmp_path, name, share):
    good, bad = save(tmp_path, 9), save(tmp_path, 10)
    content = (bad / name).read_bytes()
    if share is None:
        (bad / name).unlink()
    else:
        (bad / name).write_bytes(content[: int(len(content) * share)])
    with pytest.warns(UserWarning, match=re.escape(str(bad / name))):
        assert checkpoint.newest_readable(tmp_path) == good
    assert checkpoint.list_checkpoints(tmp_path) == [good, bad]
    assert save(tmp_path, 10) == bad and checkpoint.newest_readable(tmp_path) == bad  # replaced when reached again
    assert sorted(path.name for path in bad.parent.iterdir()) == [good.name, bad.name]


def test_no_checkpoint_yet_and_none_readable(tmp_path):
    assert checkpoint.newest_readable(tmp_path) is None
    (save(tmp_path, 1) / "state.json").write_bytes(b"[1]")
    with pytest.warns(UserWarning), pytest.raises(ValueError, match="no checkpoint of 1 can be read"):
        checkpoint.newest_readable(tmp_path)


@pytest.mark.skipif(not hasattr(signal, "SIGXFSZ"), reason="needs a limit on file sizes (Unix)")
@pytest.mark.parametrize("limit_bytes", [10, 3000])
def test_a_full_disk_leaves_earlier_checkpoints_alone(tmp_path, limit_bytes):
    import resource

    good = save(tmp_path, 1)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, hard))  # Python ignores SIGXFSZ; writing fails instead
    try:
        with pytest.raises(OSError, match="step_00000002: not saved") as caught:
            save(tmp_path, 2, nn.Linear(50, 50))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "\n" not in str(caught.value)
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == [good.name]
    assert checkpoint.newest_readable(tmp_path) == good


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
    named = checkpoint.save_checkpoint(tmp_path, 30, Tied().state_dict(), {}, STATE, name="average")
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


@pytest.mark.parametrize("name", ["best", "step_00000009", "../checkpoints", "", ".", ".."])
def test_a_checkpoint_that_is_not_there_is_named(tmp_path, name):
    save(tmp_path, 1)
    with pytest.raises(ValueError, match="which has step_00000001"):
        checkpoint.pointed(tmp_path, name)


class Evil:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.path),)


def test_a_pickled_file_runs_no_code(tmp_path):
    evil = tmp_path / "evil.pt"
    torch.save({"model": Evil(tmp_path / "pwned")}, evil)
    for read in (checkpoint.read_weights, checkpoint.read_training, checkpoint.read_state, checkpoint.load_config):
        with pytest.raises(ValueError):
            read(evil)
    path = save(tmp_path, 1)
    (path / "model.safetensors").write_bytes(pickle.dumps(Evil(tmp_path / "pwned")))
    with pytest.raises(ValueError, match="damaged"):
        checkpoint.read_weights(path)
    assert not (tmp_path / "pwned").exists()


def test_no_code_reads_pickles():
    forbidden = re.compile(r"weights_only\s*=\s*False|torch\.load\(|pickle\.loads?\(|yaml\.load\(|allow_pickle=True")
    for file in Path(checkpoint.__file__).parent.rglob("*.py"):
        assert not forbidden.search(file.read_text(encoding="utf-8")), file


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
