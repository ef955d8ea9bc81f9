"""Damaged checkpoints: cut off, changed by a bit, of another kind, from a full disk; each is named and passed over."""

import hashlib
import json
import re
import signal
import tracemalloc
from pathlib import Path

import pytest
import torch
from torch import nn

from mt import checkpoint, tensors

COMPLETE = {"step": 1, "format": 1, "tokenizer_fingerprint": "f", "metrics": {}, "finished": False}
WRONG = {"step": "1", "format": None, "tokenizer_fingerprint": 5, "metrics": [], "finished": 2, "sha256": []}
STATE = {"tokenizer_fingerprint": "f" * 64, "metrics": {"bleu": 12.5}, "finished": False}


def save(run_dir: Path, step: int, model: nn.Module | None = None, **more: object) -> Path:
    weights = (model or nn.Linear(4, 5)).state_dict()
    training = {"adam/step": torch.tensor(float(step)), "rng": torch.get_rng_state()}
    return checkpoint.save_checkpoint(run_dir, step, weights, training, {**STATE, **more})


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


def flip(file: Path, place: int, bit: int) -> None:
    content = bytearray(file.read_bytes())
    content[place] ^= 1 << bit
    file.write_bytes(content)


@pytest.mark.parametrize("name", ["model.safetensors", "training.safetensors"])
def test_one_flipped_bit_is_a_damaged_checkpoint(tmp_path, name):
    good, bad = save(tmp_path, 9), save(tmp_path, 10)
    size = (bad / name).stat().st_size
    for place in [*range(0, size, size // 25), size - 1]:
        flip(bad / name, place, place % 8)
        with pytest.warns(UserWarning, match=re.escape(f"{bad / name}: ") + ".*damaged.*trying the checkpoint before"):
            assert checkpoint.newest_readable(tmp_path) == good
        flip(bad / name, place, place % 8)
    assert checkpoint.newest_readable(tmp_path) == bad
    assert checkpoint.list_checkpoints(tmp_path) == [good, bad]


def test_no_flipped_bit_changes_the_values_of_a_state(tmp_path):
    path = save(tmp_path, 123, progress={"loss_scale": 65536.0, "best_value": None, "seconds": 1.5e-7}, who="试")
    file = path / "state.json"
    content, state = file.read_bytes(), checkpoint.read_state(path)
    refused = 0
    for place in range(len(content)):
        flip(file, place, place % 7)
        try:
            read = checkpoint.read_state(path)
        except ValueError as error:
            assert str(file) in str(error) and "\n" not in str(error)
            refused += 1
        else:  # inside the digests
            assert all(read[key] == state[key] for key in state if key != "sha256")
        file.write_bytes(content)
    assert refused > 0.5 * len(content)


def test_every_byte_is_checked_once_a_load(tmp_path, monkeypatch):
    path = save(tmp_path, 1)
    hashed, real = [], tensors.sha256
    monkeypatch.setattr(tensors, "sha256", lambda file: hashed.append(file.name) or real(file))
    for load, files in (
        (lambda: checkpoint.newest_readable(tmp_path), ["model.safetensors", "training.safetensors"]),
        (lambda: checkpoint.read_training(path, verify=False), []),
        (lambda: checkpoint.read_weights(path, verify=False), []),
        (lambda: checkpoint.load_weights(nn.Linear(4, 5), path), ["model.safetensors"]),
    ):
        hashed.clear()
        load()
        assert hashed == files


def test_hashing_reads_a_file_in_pieces(tmp_path):
    file = tmp_path / "big"
    with file.open("wb") as output:
        output.truncate(64 << 20)
    tracemalloc.start()
    digest = tensors.sha256(file)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 << 20 and digest == hashlib.sha256(bytes(64 << 20)).hexdigest()


def test_a_state_of_an_earlier_version_without_digests_loads(tmp_path):
    path = save(tmp_path, 1)
    state = json.loads((path / "state.json").read_bytes())
    for key in ("sha256", "versions"):
        del state[key]
    (path / "state.json").write_text(json.dumps({**state, "edited": True}))
    flip(path / "model.safetensors", -1, 0)
    assert checkpoint.newest_readable(tmp_path) == path
    assert checkpoint.read_state(path)["edited"]


@pytest.mark.parametrize(
    "content",
    [b"", b"null", b"[1]", b"{}", b"[" * 100_000, b"\xff\xfe", b'{"format": "1"}']
    + [json.dumps({**COMPLETE, key: value}).encode() for key, value in WRONG.items()],
)
def test_a_state_that_is_none_is_damaged_and_no_more(tmp_path, content):
    good, bad = save(tmp_path, 1), save(tmp_path, 2)
    (bad / "state.json").write_bytes(content)
    with pytest.warns(UserWarning, match="step_00000002/state.json: damaged"):
        assert checkpoint.newest_readable(tmp_path) == good


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
