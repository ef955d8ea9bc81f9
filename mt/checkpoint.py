"""The run folder: settings, tokenizers and checkpoints on disk; written atomically, read without pickle.

    config.yaml              every setting of the run (the file that makes a folder a run)
    versions.json            what made the run: mt, git commit, torch, python, platform, command line
    tokenizer/               SentencePiece models
    checkpoints/
        step_00001234/       model.safetensors, training.safetensors (optimizer, random generators), state.json
        average/             what mt average made: no training.safetensors
        best.json last.json  {"checkpoint": "step_00001234"}
    log.jsonl tensorboard/ results/

A checkpoint is written into a folder `.tmp-…` and renamed when every byte is on the disk, so that a name without a
leading dot is complete however the program ended. Its state.json holds the SHA-256 of the tensor files and of its own
values, so that a checkpoint whose bytes changed later is known as damaged.
"""

import hashlib
import json
import math
import os
import shutil
import uuid
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from safetensors import SafetensorError
from torch import Tensor, nn

from mt import durable
from mt.config import TrainConfig
from mt.mapping import from_mapping, known_keys, read_json, to_mapping
from mt.tensors import (
    check_fit,
    check_sha256,
    copy_weights,
    find_not_finite,
    one_line,
    read_tensors,
    save_tensors,
    strip_wrappers,
)
from mt.tokenizer import TokenizerPair
from mt.versions import versions

FORMAT = 1  # of state.json and the tensor names; a change that older code cannot read adds 1
CONFIG, VERSIONS, TOKENIZER, CHECKPOINTS = "config.yaml", "versions.json", "tokenizer", "checkpoints"
MODEL, TRAINING, STATE = "model.safetensors", "training.safetensors", "state.json"
POINTERS = ("best", "last")
LOWER_IS_BETTER = ("loss", "perplexity")
_STATE_KINDS = {"step": int, "format": int, "tokenizer_fingerprint": str, "metrics": dict, "finished": bool}


def is_run(path: Path) -> bool:
    """Returns whether the folder holds a run, finished or not."""
    return (path / CONFIG).is_file()


def create_run(
    run_dir: Path,
    config: TrainConfig,
    tokenizers: TokenizerPair,
    command: list[str],
    corpora: Mapping[str, str | None] | None = None,
) -> None:
    """Writes tokenizers, versions and settings; the settings last, for they make the folder a run.

    `command` is the command line and `corpora` the fingerprints of the encoded corpora by split, stored for the record.
    Raises ValueError where the folder already holds a run.
    """
    if is_run(run_dir):
        raise ValueError(f"run_dir={run_dir}: holds a run; resume=true continues it, another run_dir starts anew")
    (run_dir / CHECKPOINTS).mkdir(parents=True, exist_ok=True)
    tokenizers.save(run_dir / TOKENIZER)
    durable.sync_files(run_dir / TOKENIZER)
    record = {**versions(), "command": command, "corpora": corpora or {}, "run": uuid.uuid4().hex}
    durable.write(run_dir / VERSIONS, durable.to_json(record))
    update_config(run_dir, config)


def update_config(run_dir: Path, config: TrainConfig) -> None:
    """Replaces the settings of a run, which a resumed session may change."""
    text = yaml.safe_dump(to_mapping(config), allow_unicode=True, sort_keys=False)
    durable.write(run_dir / CONFIG, text.encode())


def read_record(run_dir: Path) -> dict[str, Any]:
    """Returns what create_run noted: versions, command, corpora, and "run", a name that no other run has.

    Empty where the file is missing or damaged: nothing but the record is lost then.
    """
    try:
        return read_json(run_dir / VERSIONS)
    except ValueError:
        return {}


def load_config(run_dir: Path) -> TrainConfig:
    """Returns the settings of a run. Raises ValueError where the folder is no run or a setting is wrong."""
    file = run_dir / CONFIG
    if run_dir.is_file():
        raise ValueError(f"{run_dir} is a file, not a run folder; give the folder that mt train wrote")
    if not is_run(run_dir):
        raise ValueError(f"{run_dir} is not a run folder: no {CONFIG}; train with mt train run_dir={run_dir}")
    try:
        settings = yaml.safe_load(file.read_bytes())
        config = from_mapping(TrainConfig, _of_this_version(settings, file))
        missing = [key for key in to_mapping(config) if key not in settings]
        if missing:
            raise ValueError(f"damaged: {missing[0]} is missing; restore the file, a copy is in each state.json")
        return config
    except (yaml.YAMLError, RecursionError) as error:
        why = one_line(error)
        raise ValueError(f"{file}: damaged ({why}); restore the file, a copy is in each state.json") from error
    except ValueError as error:
        raise ValueError(f"{file}: {one_line(error)}") from error


def _of_this_version(settings: Any, file: Path) -> Any:
    """Returns settings without those of training and search that this version does not know, and warns of them.

    They say nothing of what the weights mean, so a run of another version is good without them.
    """
    known = known_keys(TrainConfig)
    kept = dict(settings) if isinstance(settings, dict) else settings
    for section in ("optim", "trainer", "decode"):
        own = kept.get(section) if isinstance(kept, dict) else None
        if isinstance(own, dict):
            kept[section] = {name: value for name, value in own.items() if f"{section}.{name}" in known}
            for name in own.keys() - kept[section].keys():  # stacklevel: of one place, so told once
                warnings.warn(f"{file}: {section}.{name}={own[name]} is no setting of this version", stacklevel=1)
    return kept


def load_tokenizers(run_dir: Path) -> TokenizerPair:
    """Returns the tokenizers stored in a run. Raises ValueError where a file is missing or broken."""
    return TokenizerPair.load(run_dir / TOKENIZER)


def check_tokenizer(state: Mapping[str, Any], tokenizers: TokenizerPair) -> None:
    """Raises ValueError where a checkpoint's state was written with other tokenizers than these.

    The message names the vocabulary sizes where they differ.
    """
    if state["tokenizer_fingerprint"] == tokenizers.fingerprint:
        return
    trained, given = state["tokenizer_fingerprint"], tokenizers.fingerprint
    sizes = state.get("vocabulary")  # {"source": pieces, "target": pieces}; states of earlier versions lack it
    if sizes and sizes != {"source": tokenizers.source.size, "target": tokenizers.target.size}:
        trained = f"{sizes.get('source')} source and {sizes.get('target')} target pieces ({trained})"
        given = f"{tokenizers.source.size} and {tokenizers.target.size} ({given})"
    raise ValueError(
        f"the tokenizer does not match this model: the checkpoint has {trained}, the tokenizer is {given}; "
        f"restore the run's own {TOKENIZER} folder"
    )


def save_checkpoint(
    run_dir: Path,
    step: int,
    weights: Mapping[str, Tensor],
    training: Mapping[str, Tensor] | None,
    state: Mapping[str, Any],
    name: str | None = None,
) -> Path:
    """Returns the folder of a new, complete checkpoint: step_00001234, or `name` for one that is no training step.

    weights: model.state_dict(), tied tensors stored once, wrapper prefixes of torch.compile and DDP removed.
    training: optimizer and random generator tensors; None writes a checkpoint that cannot be resumed. state: JSON
    values; must have tokenizer_fingerprint, metrics and finished; step, format, versions and sha256 are added. A
    checkpoint of the same name is replaced. Raises OSError in one line where the disk is full or cannot be written;
    nothing but the new checkpoint is lost.
    """
    assert {"tokenizer_fingerprint", "metrics", "finished"} <= state.keys()
    folder = run_dir / CHECKPOINTS
    final = folder / (name or f"step_{step:08d}")
    temporary, replaced = folder / f".tmp-{final.name}", folder / f".old-{final.name}"
    content = json.loads(durable.to_json({**state, "step": step, "format": FORMAT, "versions": versions()}))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _remove_unfinished(final)
        temporary.mkdir()
        content["sha256"] = {MODEL: save_tensors(temporary / MODEL, strip_wrappers(weights))}
        if training is not None:
            content["sha256"][TRAINING] = save_tensors(temporary / TRAINING, training)
        content["sha256"][STATE] = _state_sha256(content)
        durable.write_new(temporary / STATE, durable.to_json(content))
        for file in temporary.iterdir():  # safetensors makes files that only their owner can read
            shutil.copymode(temporary / STATE, file)
        durable.sync_files(temporary)
        if os.path.lexists(final):
            os.replace(final, replaced)
        os.replace(temporary, final)
        durable.sync(folder)
        durable.remove(replaced)
    except (OSError, SafetensorError) as error:
        durable.remove(temporary)
        raise OSError(f"{final}: not saved ({one_line(error)}); earlier checkpoints are untouched") from error
    return final


def remove_unfinished(run_dir: Path) -> None:
    """Removes what killed saves left behind. For the process that trains the run, at its start."""
    folder = run_dir / CHECKPOINTS
    for path in [*folder.glob(".old-*"), *folder.glob(".tmp-*")]:
        _remove_unfinished(folder / path.name[5:])


def _remove_unfinished(final: Path) -> None:
    """Removes what a killed save of this checkpoint or pointer left behind; a half replaced one returns."""
    temporary, replaced = final.with_name(f".tmp-{final.name}"), final.with_name(f".old-{final.name}")
    if os.path.lexists(replaced) and not os.path.lexists(final):  # killed between the two renames
        os.replace(replaced, final)
    durable.remove(replaced)
    durable.remove(temporary)


def list_checkpoints(run_dir: Path) -> list[Path]:
    """Returns the folders of all training steps, oldest first."""
    folders = [path for path in (run_dir / CHECKPOINTS).glob("step_*") if path.name[5:].isdecimal() and path.is_dir()]
    return sorted(folders, key=lambda path: int(path.name[5:]))


def newest_readable(run_dir: Path) -> Path | None:
    """Returns the newest undamaged checkpoint, every byte checked, or None where the run has none yet.

    Warns of every damaged one that it passes over, and deletes none. Raises ValueError where all are damaged.
    """
    checkpoints = list_checkpoints(run_dir)
    for checkpoint in reversed(checkpoints):
        try:
            read_weights(checkpoint)
            read_training(checkpoint)
        except ValueError as error:
            warnings.warn(f"{error}; trying the checkpoint before it", stacklevel=2)
        else:
            return checkpoint
    if checkpoints:
        raise ValueError(f"{run_dir}: no checkpoint of {len(checkpoints)} can be read; start anew in another run_dir")
    return None


def point(run_dir: Path, name: str, checkpoint: Path) -> None:
    """Makes `name` (best or last) mean this checkpoint."""
    assert checkpoint.parent == run_dir / CHECKPOINTS
    durable.write(run_dir / CHECKPOINTS / f"{name}.json", durable.to_json({"checkpoint": checkpoint.name}))


def is_pointed(run_dir: Path, name: str) -> bool:
    """Returns whether `name` (best or last) was given to a checkpoint yet."""
    return (run_dir / CHECKPOINTS / f"{name}.json").is_file()


def pointed(run_dir: Path, name: str) -> Path:
    """Returns the checkpoint that `name` means: best, last, or a folder below checkpoints/ such as step_00001234.

    Raises ValueError where there is none, naming those that there are.
    """
    folder, known = run_dir / CHECKPOINTS, f"the run has {checkpoint_names(run_dir)}"
    is_pointer = Path(name).name == name and is_pointed(run_dir, name)
    checkpoint = _pointee(run_dir, name) if is_pointer else folder / name
    if checkpoint.parent == folder and not checkpoint.name.startswith(".") and checkpoint.is_dir():
        return checkpoint
    if is_pointer:
        raise ValueError(f"{folder / name}.json: names {checkpoint.name}, which is not there; {known}")
    raise ValueError(f"checkpoint={name}: not in {run_dir}; {known}")


def _pointee(run_dir: Path, name: str) -> Path:
    """Returns what a pointer names, there or not. Raises ValueError where the pointer is damaged."""
    pointer = run_dir / CHECKPOINTS / f"{name}.json"
    try:
        return pointer.parent / read_json(pointer)["checkpoint"]
    except (ValueError, TypeError, KeyError) as error:
        known = checkpoint_names(run_dir)
        raise ValueError(f"{pointer}: damaged, expected {{'checkpoint': NAME}}; the run has {known}") from error


def checkpoint_names(run_dir: Path) -> str:
    """Returns, for messages, all that `pointed` knows: best and last, the training steps, then those with a name."""
    folder, steps = run_dir / CHECKPOINTS, list_checkpoints(run_dir)
    named = sorted(path.name for path in folder.glob("[!.]*") if path.is_dir() and path not in steps)
    pointers = sorted(path.stem for path in folder.glob("[!.]*.json"))
    return ", ".join([*pointers, *[path.name for path in steps], *named]) or "none yet"


def rotate(run_dir: Path, keep_last: int, keep_best: int = 0, metric: str = "loss") -> None:
    """Deletes training steps but the newest `keep_last`, the `keep_best` best by `metric`, and the best and the last.

    Never deleted are named checkpoints, and steps whose state cannot be read, which may be needed yet: they count for
    neither number. Where best.json or last.json is damaged nothing is deleted, with a warning.
    """
    folder, states = run_dir / CHECKPOINTS, read_states(run_dir)
    kept = [*list(states)[max(len(states) - keep_last, 0) :], *best_first(states, metric)[:keep_best]]
    for name in POINTERS:
        if is_pointed(run_dir, name):
            try:
                kept.append(_pointee(run_dir, name))
            except ValueError as error:
                warnings.warn(f"{error}; no checkpoint is deleted", stacklevel=2)
                return
    for checkpoint in states.keys() - set(kept):  # renamed first: a kill never leaves half of one under its own name
        doomed = folder / f".tmp-{checkpoint.name}"
        os.replace(checkpoint, doomed)
        durable.remove(doomed)


def read_states(run_dir: Path) -> dict[Path, dict[str, Any]]:
    """Returns the state of each training step that is kept, oldest first; warns of those that cannot be read."""
    states = {}
    for checkpoint in list_checkpoints(run_dir):
        try:
            states[checkpoint] = read_state(checkpoint)
        except ValueError as error:
            warnings.warn(f"{error}; passed over", stacklevel=3)
    return states


def best_first(states: Mapping[Path, Mapping[str, Any]], metric: str) -> list[Path]:
    """Returns the checkpoints that have a finite value of `metric`, the best first, of equals the newest."""
    sign = 1 if metric in LOWER_IS_BETTER else -1
    values = {path: state["metrics"].get(metric) for path, state in states.items()}
    scored = [path for path, value in values.items() if isinstance(value, int | float) and abs(value) < math.inf]
    return sorted(scored, key=lambda path: (sign * values[path], -states[path]["step"]))


def read_state(checkpoint: Path) -> dict[str, Any]:
    """Returns step, metrics, tokenizer_fingerprint, finished and the trainer's own values.

    Raises ValueError where the file is missing, damaged or of a newer format.
    """
    file = checkpoint / STATE
    if checkpoint.is_file():
        raise ValueError(f"{checkpoint}: not a checkpoint folder; mt reads safetensors only, no pickled files")
    state = read_json(file)
    if isinstance(state.get("format"), int) and state["format"] > FORMAT:
        raise ValueError(f"{file}: has format {state['format']}, this mt reads up to {FORMAT}; use a newer mt")
    if not all(isinstance(state.get(key), kind) for key, kind in _STATE_KINDS.items()):
        raise ValueError(f"{file}: damaged (must hold {', '.join(_STATE_KINDS)})")
    if checkpoint.name.startswith("step_") and checkpoint.name != f"step_{state['step']:08d}":
        raise ValueError(f"{file}: damaged (of update {state['step']}, which its folder's name is not): remove it")
    digests = state.get("sha256", {})  # states of earlier versions lack it
    if not isinstance(digests, dict) or digests.get(STATE, _state_sha256(state)) != _state_sha256(state):
        raise ValueError(f"{file}: damaged (its values are not those that were saved: another SHA-256)")
    return state


def _state_sha256(state: Mapping[str, Any]) -> str:
    """Returns the digest of a state's values, its own digests left out."""
    values = {key: value for key, value in state.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def read_weights(checkpoint: Path, verify: bool = True) -> dict[str, Tensor]:
    """Returns the model's tensors by name, on the CPU; tied names share one tensor.

    `verify` compares the file with its SHA-256, as far as the state has one; not needed straight after
    newest_readable. Raises ValueError as read_state.
    """
    return _read(checkpoint / MODEL, read_state(checkpoint), verify)


def read_training(checkpoint: Path, verify: bool = True) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Returns optimizer and random generator tensors, on the CPU, and the state; see read_weights."""
    state = read_state(checkpoint)
    return _read(checkpoint / TRAINING, state, verify), state


def _read(file: Path, state: Mapping[str, Any], verify: bool) -> dict[str, Tensor]:
    tensors = read_tensors(file)  # memory-mapped, and first: a file of another kind is described as such
    if verify:
        check_bytes(file, state)
    return tensors


def check_bytes(file: Path, state: Mapping[str, Any]) -> None:
    """Raises ValueError where a tensor file has another SHA-256 than its checkpoint's state says, if it says any."""
    if file.name in state.get("sha256", {}):
        check_sha256(file, state["sha256"][file.name])


def load_weights(model: nn.Module, checkpoint: Path) -> None:
    """Copies a checkpoint's weights into a model. Raises ValueError as read_weights and copy_weights."""
    file = checkpoint / MODEL
    weights = read_weights(checkpoint, verify=False)
    check_fit(model, weights, str(file))  # before the bytes: a tensor that is missing is named
    check_bytes(file, read_state(checkpoint))
    if (name := find_not_finite(weights)) is not None:
        others = checkpoint_names(checkpoint.parents[1])
        raise ValueError(f"{file}: {name} holds NaN or infinity; use another checkpoint: {others}")
    copy_weights(model, weights, str(file))
