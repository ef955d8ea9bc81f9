"""Files that are not what they seem: pickles that run code, YAML tags, tokenizers and weights of another model.

Every command refuses them in one line with exit code 2, runs nothing out of them, and never advises to read them
another way.
"""

import io
import json
import os
import pickle
import random
import re
import shutil
import sys
import warnings
from pathlib import Path

import pytest
import torch
import yaml
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import mt
from mt import checkpoint
from mt.__main__ import main
from mt.config import TokenizerConfig
from mt.tokenizer import TokenizerPair, train_tokenizers

WORDS = [a + b + c for a in ("ka", "mel", "sto", "ri") for b in ("po", "ten", "lu") for c in ("sa", "di", "vek", "na")]
COMMANDS = ("translate", "evaluate", "average", "resume", "init_from")
STEPS = ("step_00000002", "step_00000004")
BAD_ADVICE = re.compile("weights_only|allow_pickle|trust_remote|unsafe|disable|torch.load", re.IGNORECASE)


class Evil:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.path),)


def evil_bytes(kind: str, path: Path) -> bytes:
    """Returns a file that makes a folder `path` in a reader that unpickles it, or builds what its YAML tags say."""
    if kind == "yaml":
        return f"name: !!python/object/apply:os.mkdir ['{path}']\n".encode()
    if kind.startswith("pickle"):
        return pickle.dumps({"model": {}, "extra": Evil(path)}, protocol=int(kind[-1]))
    buffer = io.BytesIO()
    torch.save({"model": {}, "extra": Evil(path)}, buffer, _use_new_zipfile_serialization=kind == "torch")
    return buffer.getvalue()


def words(seed: int, count: int, vocabulary: list[str] = WORDS) -> list[list[str]]:
    generator = random.Random(seed)
    return [[generator.choice(vocabulary) for _ in range(generator.randint(1, 8))] for _ in range(count)]


def tokenizers_of(seed: int, size: int) -> TokenizerPair:
    """Returns tokenizers of other text than the run's."""
    lines = words(seed, 200, ["".join(reversed(word)) for word in WORDS])
    config = TokenizerConfig(vocabulary_size=size, joint=False)
    return train_tokenizers([(" ".join(line), " ".join(line).upper()) for line in lines], config, 1)


@pytest.fixture
def run_mt(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]):
    """Runs a command in this process; returns exit code, stdout, stderr."""

    def call(*arguments: str | Path) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["mt", *map(str, arguments)])
        with pytest.raises(SystemExit) as stopped, warnings.catch_warnings():
            main()
            sys.exit(0)
        sys.stdout.flush()
        return (stopped.value.code or 0, *capfd.readouterr())

    return call


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of four updates, with two checkpoints, its settings in settings.yaml beside it."""
    place = tmp_path_factory.mktemp("runs")
    for name, seed, count in (("train", 1, 200), ("test", 2, 6)):
        lines = [" ".join(line) + "\t" + " ".join(reversed(line)).upper() + "\n" for line in words(seed, count)]
        (place / f"{name}.tsv").write_text("".join(lines))
    corpora = {name: {"main": {"path": str(place / f"{name}.tsv")}} for name in ("train", "test")}
    settings = {
        "run_dir": str(place / "run"),
        "device": "cpu",
        "data": {"target_language": "de", "cache_dir": str(place / "cache"), **corpora},
        "tokenizer": {"vocabulary_size": 300, "joint": False},
        "model": {
            "d_model": 16, "d_ff": 32, "n_heads": 2, "encoder_layers": 1, "decoder_layers": 1, "tying": "decoder",
        },
        "trainer": {"max_steps": 4, "batch_tokens": 200, "validate_every_steps": 2, "tensorboard": False},
        "decode": {"beam_size": 2, "max_length_ratio": 1.0, "max_length_offset": 2},
    }  # fmt: skip
    (place / "settings.yaml").write_text(yaml.safe_dump(settings))
    with warnings.catch_warnings(action="ignore"):
        from mt.compose import read_config
        from mt.training.run import train

        train(read_config(place / "settings.yaml", []), ["mt"])
    run_dir = place / "run"
    assert tuple(path.name for path in checkpoint.list_checkpoints(run_dir)) == STEPS
    tokenizers = checkpoint.load_tokenizers(run_dir)
    assert (tokenizers.source.size, tokenizers.target.size) == (300, 300)
    return run_dir


@pytest.fixture
def run_dir(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "run"))


def arguments_of(command: str, run_dir: Path, original: Path) -> list[str | Path]:
    settings = original.parent / "settings.yaml"
    return {
        "translate": ["translate", run_dir, "kaposa melludi"],
        "evaluate": ["evaluate", run_dir],
        "average": ["average", run_dir, "--checkpoints", ",".join(STEPS)],
        "resume": ["train", "--config", settings, f"run_dir={run_dir}", "resume=true", "trainer.max_steps=6"],
        "init_from": ["train", "--config", settings, f"run_dir={run_dir.parent / 'child'}", f"init_from={run_dir}"],
    }[command]


def replace_in_all(run_dir: Path, name: str, content: bytes) -> None:
    """Replaces a file of the run; one of a checkpoint in every checkpoint."""
    files = [run_dir / name] if (run_dir / name).exists() else sorted(run_dir.glob(f"checkpoints/step_*/{name}"))
    assert files
    for file in files:
        file.write_bytes(content)


def assert_refused(result: tuple[int, str, str], words: str) -> None:
    code, out, err = result
    errors = [line for line in err.split("\n") if line.startswith("error: ")]
    assert (code, out, len(errors)) == (2, "", 1), err
    assert errors[0] == err.split("\n")[-2], "the error is the last line"
    assert re.search(words, errors[0]), errors[0]
    assert "Traceback" not in err and not BAD_ADVICE.search(err)


READ_BY = {
    "model.safetensors": COMMANDS,
    "training.safetensors": ("resume",),
    "state.json": COMMANDS,
    "config.yaml": COMMANDS,
    "tokenizer/source.model": COMMANDS,
    "tokenizer/target.model": COMMANDS,
    "checkpoints/best.json": ("translate", "evaluate", "init_from"),
    "checkpoints/last.json": (),
    "versions.json": (),
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("name", READ_BY)
def test_a_pickle_under_any_name_runs_no_code(run_mt, run_dir, original, tmp_path, name, command) -> None:
    pwned = tmp_path / "pwned"
    replace_in_all(run_dir, name, evil_bytes("torch", pwned))
    result = run_mt(*arguments_of(command, run_dir, original))
    assert not pwned.exists()
    if command in READ_BY[name]:
        steps_tried = command == "resume" and not (run_dir / name).exists()
        assert_refused(result, "no checkpoint of 2 can be read" if steps_tried else re.escape(str(run_dir)))
        assert Path(name).name in result[2] and not (tmp_path / "child" / "config.yaml").exists()
    else:
        assert result[0] == 0 and not BAD_ADVICE.search(result[2])


@pytest.mark.parametrize("kind", ["legacy", "pickle0", "pickle2", "pickle5", "yaml"])
@pytest.mark.parametrize("name", ["model.safetensors", "state.json", "config.yaml", "tokenizer/source.model"])
def test_every_kind_of_pickle_and_tag_is_refused(run_mt, run_dir, original, tmp_path, name, kind) -> None:
    replace_in_all(run_dir, name, evil_bytes(kind, tmp_path / "pwned"))
    assert_refused(run_mt(*arguments_of("translate", run_dir, original)), re.escape(Path(name).name))
    assert not (tmp_path / "pwned").exists()


def test_the_payloads_work_where_they_are_read_carelessly(tmp_path) -> None:
    for number, kind in enumerate(("pickle0", "pickle2", "pickle5")):
        pickle.loads(evil_bytes(kind, tmp_path / str(number)))
        assert (tmp_path / str(number)).is_dir()
    yaml.unsafe_load(evil_bytes("yaml", tmp_path / "tag"))
    assert (tmp_path / "tag").is_dir()


def test_a_pickle_in_the_newest_checkpoint_is_passed_over(run_mt, run_dir, original, tmp_path) -> None:
    for name in ("model.safetensors", "training.safetensors", "state.json"):
        copy = Path(shutil.copytree(run_dir, tmp_path / name.replace(".", "_")))
        file = copy / "checkpoints" / STEPS[1] / name
        file.write_bytes(evil_bytes("torch", tmp_path / "pwned"))
        code, _, err = run_mt(*arguments_of("resume", copy, original))
        assert code == 0 and str(file) in err and "at update 2" in err and "trying the checkpoint before it" in err
        assert not (tmp_path / "pwned").exists() and not BAD_ADVICE.search(err)


@pytest.mark.parametrize("kind", ["torch", "pickle5"])
def test_a_pickle_in_the_place_of_a_folder_or_a_corpus_is_refused(run_mt, run_dir, original, tmp_path, kind) -> None:
    pwned, evil = tmp_path / "pwned", tmp_path / "evil.pt"
    evil.write_bytes(evil_bytes(kind, pwned))
    (run_dir / "checkpoints" / "evil.pt").write_bytes(evil.read_bytes())
    settings, child = original.parent / "settings.yaml", f"run_dir={tmp_path / 'child'}"
    dataset = tmp_path / "dataset"
    dataset.mkdir()
    (dataset / "train.pkl").write_bytes(evil.read_bytes())
    (dataset / "README.md").write_text("---\nconfigs:\n- config_name: default\n  data_files: train.pkl\n---\n")
    for name in ("evil.pkl", "evil.tsv", "evil.jsonl"):
        (tmp_path / name).write_bytes(evil.read_bytes())
    corpora = [f"data.train={{main: {{path: {tmp_path / name}}}}}" for name in ("evil.pkl", "evil.tsv", "evil.jsonl")]
    for arguments in (
        ["translate", evil, "tea"],
        ["evaluate", evil],
        ["average", evil],
        ["translate", run_dir, "tea", "--checkpoint", "evil.pt"],
        ["evaluate", run_dir, "--checkpoint", "evil.pt"],
        ["average", run_dir, "--checkpoints", f"evil.pt,{STEPS[0]}"],
        ["translate", run_dir, "--input", evil],
        ["train", "--config", evil, child],
        ["train", "--config", settings, f"run_dir={evil}", "resume=true"],
        ["train", "--config", settings, child, f"init_from={evil}"],
        *(["train", "--config", settings, child, corpus] for corpus in corpora),
        ["train", "--config", settings, child, f"data.train={{main: {{dataset: {dataset}}}}}"],
    ):
        assert_refused(run_mt(*arguments), "evil|dataset=")
        assert not pwned.exists() and not (tmp_path / "child" / "config.yaml").exists()


def test_pickles_in_the_cache_of_encoded_corpora_are_built_anew(run_mt, run_dir, original, tmp_path) -> None:
    pwned = tmp_path / "pwned"
    cache = Path(shutil.copytree(original.parent / "cache", tmp_path / "cache"))
    for file in cache.rglob("*"):
        if file.is_file() and file.suffix != ".lock":
            file.write_bytes(evil_bytes("torch", pwned))
    code, _, _ = run_mt(*arguments_of("resume", run_dir, original), f"data.cache_dir={cache}")
    assert code == 0 and not pwned.exists()


@pytest.mark.parametrize("tag", ["object/apply:os.mkdir", "object/new:os.mkdir", "name:os.mkdir", "module:os"])
def test_a_yaml_tag_runs_no_code(run_mt, tmp_path, tag) -> None:
    pwned, file = tmp_path / "pwned", tmp_path / "config.yaml"
    value = f"['{pwned}']" if tag.startswith("object") else "''"
    file.write_text(f"name: !!python/{tag} {value}\n")
    for arguments in (["translate", tmp_path, "tea"], ["train", "--config", file, f"run_dir={tmp_path / 'new'}"]):
        assert_refused(run_mt(*arguments), "config.yaml")
        assert not pwned.exists() and not (tmp_path / "new").exists()


def test_no_code_reads_pickles() -> None:
    forbidden = re.compile(
        r"weights_only\s*=\s*False|torch\.load\(|pickle\.(loads?|Unpickler)\(|import pickle|joblib|dill|shelve"
        r"|yaml\.(unsafe_|full_)?load\(|allow_pickle\s*=\s*True|trust_remote_code|[^.\w](eval|exec)\("
    )
    for file in Path(checkpoint.__file__).parent.rglob("*.py"):
        found = [line for line in file.read_text(encoding="utf-8").split("\n") if forbidden.search(line)]
        # omegaconf's loader is a yaml.SafeLoader that refuses duplicate keys
        found = [line for line in found if "get_yaml_loader()" not in line]
        if file.name == "marian_import.py":  # others' weights: tensors alone, by torch's own restricted reader
            own = ("weights_only=True", "import pickle")  # pickle: for the name of that reader's error
            found = [line for line in found if not any(part in line for part in own)]
            assert "pickle.load" not in file.read_text(encoding="utf-8")
        if file.name == "processes.py":  # what a process hears from the one that started it, and says to it: no file
            found = [line for line in found if "open(" in line]
        assert found == [], file


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("how", ["same size", "other size", "swapped", "one side"])
def test_another_tokenizer_is_refused_by_every_command(run_mt, run_dir, original, tmp_path, how, command) -> None:
    own = checkpoint.load_tokenizers(run_dir)
    other = tokenizers_of(7, 320 if how == "other size" else 300)
    assert other.source.size == (320 if how == "other size" else 300) and other.fingerprint != own.fingerprint
    pair = {"swapped": TokenizerPair(own.target, own.source), "one side": TokenizerPair(own.source, other.target)}
    pair.get(how, other).save(run_dir / "tokenizer")
    result = run_mt(*arguments_of(command, run_dir, original))
    assert_refused(result, "the tokenizer does not match this model: ")
    if how == "other size":
        error = result[2].split("\n")[-2]
        assert re.search("300 source and 300 target pieces .* 320 and 320 ", error) and len(error) < 500
    assert not (tmp_path / "child" / "config.yaml").exists()


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("digests", [True, False])
def test_a_deleted_tensor_is_named_and_never_made_up(run_mt, run_dir, original, command, digests) -> None:
    for folder in checkpoint.list_checkpoints(run_dir)[1 if command == "average" else 0 :]:
        tensors = load_file(folder / "model.safetensors")
        deleted = next(name for name in tensors if "norm" in name)
        del tensors[deleted]
        save_file(tensors, folder / "model.safetensors", metadata=metadata_of(folder / "model.safetensors"))
        if not digests:
            without_digests(folder)
    result = run_mt(*arguments_of(command, run_dir, original))
    if command == "resume" and digests:  # known before there is a model
        assert_refused(result, "no checkpoint of 2 can be read")
        assert "model.safetensors: damaged" in result[2]
    else:
        assert_refused(result, f"missing {re.escape(deleted)}")


def metadata_of(file: Path) -> dict[str, str]:
    with safe_open(file, framework="pt") as opened:
        return opened.metadata() or {}


def without_digests(folder: Path) -> None:
    """Makes the state one of an earlier version."""
    state = json.loads((folder / "state.json").read_bytes())
    del state["sha256"]
    (folder / "state.json").write_text(json.dumps(state))


@pytest.mark.parametrize("prefix", ["_orig_mod.", "module.", "module._orig_mod.", "_orig_mod.module."])
@pytest.mark.parametrize("by_other_hands", [False, True])
def test_weights_of_a_wrapped_model_translate_the_same(run_dir, prefix, by_other_hands) -> None:
    expected = translations(run_dir)
    best = checkpoint.pointed(run_dir, "best")
    weights, state = checkpoint.read_weights(best), checkpoint.read_state(best)
    wrapped = {prefix + name: tensor for name, tensor in weights.items()}
    if by_other_hands:  # a file that holds the prefixes
        save_file({name: tensor.clone() for name, tensor in wrapped.items()}, best / "model.safetensors")
        without_digests(best)
    else:
        best = checkpoint.save_checkpoint(run_dir, state["step"], wrapped, None, state)
        assert set(load_file(best / "model.safetensors")) <= set(weights)
    assert translations(run_dir) == expected


def translations(run_dir: Path) -> list[tuple[str, float]]:
    with warnings.catch_warnings(action="ignore"):  # an untrained model does not finish
        found = mt.load(run_dir).translate_n_best([" ".join(line) for line in words(3, 5)], 2)
    return [(each.text, each.score) for line in found for each in line]


def test_names_that_collide_without_prefixes_are_refused(run_mt, run_dir, original) -> None:
    best = checkpoint.pointed(run_dir, "best")
    tensors = load_file(best / "model.safetensors")
    name = next(iter(tensors))
    save_file({**tensors, f"module.{name}": tensors[name].clone()}, best / "model.safetensors")
    assert_refused(run_mt(*arguments_of("translate", run_dir, original)), f"two tensors are named '{re.escape(name)}'")


@pytest.mark.parametrize("aliases", ["[" * 100_000, "[1]", '{"a": 1}', '{"a": ["b"]}', "null", "{"])
def test_hostile_metadata_is_refused(run_mt, run_dir, original, aliases) -> None:
    best = checkpoint.pointed(run_dir, "best")
    tensors = load_file(best / "model.safetensors")
    save_file(tensors, best / "model.safetensors", metadata={"aliases": aliases})
    assert_refused(run_mt(*arguments_of("translate", run_dir, original)), "model.safetensors: .*damaged")


def test_a_moved_folder_translates_the_same_without_what_made_it(run_dir, original, tmp_path, monkeypatch) -> None:
    expected = translations(run_dir)
    moved, hidden = tmp_path / "另一个 folder" / "m", original.parent.with_name("hidden")
    moved.parent.mkdir()
    shutil.move(run_dir, moved)
    monkeypatch.chdir(moved)
    original.parent.rename(hidden)  # corpora, cache, settings and the run itself
    try:
        assert translations(Path(".")) == translations(moved) == expected
    finally:
        hidden.rename(original.parent)


def test_a_best_checkpoint_deleted_by_hand_is_named(run_mt, run_dir, original) -> None:
    best = checkpoint.pointed(run_dir, "best")
    shutil.rmtree(best)
    for command in ("translate", "evaluate", "init_from"):
        result = run_mt(*arguments_of(command, run_dir, original))
        assert_refused(result, f"best.json: names {best.name}, which is not there; the run has best, last, step_")
    code, _, err = run_mt(*arguments_of("resume", run_dir, original))
    assert code == 0 and checkpoint.pointed(run_dir, "best").is_dir(), err


def test_a_linked_run_folder_works_with_every_command(run_mt, run_dir, original, tmp_path) -> None:
    link = tmp_path / "link"
    link.symlink_to(run_dir)
    for command in ("translate", "evaluate", "average", "init_from", "resume"):
        code, _, err = run_mt(*arguments_of(command, link, original))
        assert code == 0, err
    assert link.is_symlink() and (run_dir / "checkpoints" / "average").is_dir()
    assert (run_dir / "checkpoints" / "step_00000006").is_dir()


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_run_folder_translates_and_names_what_cannot_be_written(run_mt, run_dir, original) -> None:
    folders = [run_dir, *(path for path in run_dir.rglob("*") if path.is_dir())]
    for folder in folders:
        folder.chmod(0o555)
    for file in run_dir.rglob("*"):
        if file.is_file():
            file.chmod(0o444)
    try:
        assert run_mt(*arguments_of("translate", run_dir, original))[0] == 0
        for command in ("evaluate", "average", "resume"):
            result = run_mt(*arguments_of(command, run_dir, original))
            assert_refused(result, f"{re.escape(str(run_dir))}.*Permission denied")
    finally:
        for folder in folders:
            folder.chmod(0o755)
