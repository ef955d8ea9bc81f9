"""The run folder: settings, tokenizers and checkpoints on disk; written atomically, read without pickle.

    config.yaml              every setting of the run (the file that makes a folder a run)
    versions.json            what made the run: mt, git commit, torch, python, platform, command line
    tokenizer/               SentencePiece models
    checkpoints/
        step_00001234/       model.safetensors, training.safetensors (optimizer, random generators), state.json
        best.json last.json  {"checkpoint": "step_00001234"}
    log.jsonl tensorboard/ results/

A checkpoint is written into a folder `.tmp-…` and renamed when every byte is on the disk, so that a name without a
leading dot is complete however the program ended.
"""

import json
import os
import shutil
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import yaml
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from mt.config import TrainConfig, from_mapping, to_mapping
from mt.tokenizer import TokenizerPair
from mt.versions import mt_version, versions

FORMAT = 1  # of state.json and the tensor names; a change that older code cannot read adds 1
CONFIG, VERSIONS, TOKENIZER, CHECKPOINTS = "config.yaml", "versions.json", "tokenizer", "checkpoints"
MODEL, TRAINING, STATE = "model.safetensors", "training.safetensors", "state.json"
_NAMES_SHOWN = 3  # of missing or unknown tensors in a message


def is_run(path: Path) -> bool:
    """Returns whether the folder holds a run, finished or not."""
    return (path / CONFIG).is_file()


def create_run(run_dir: Path, config: TrainConfig, tokenizers: TokenizerPair, command: list[str]) -> None:
    """Writes tokenizers, versions and settings; the settings last, for they make the folder a run.

    `command` is the command line, stored for the record. Raises ValueError where the folder already holds a run.
    """
    if is_run(run_dir):
        raise ValueError(f"run_dir={run_dir}: holds a run; resume=true continues it, another run_dir starts anew")
    (run_dir / CHECKPOINTS).mkdir(parents=True, exist_ok=True)
    tokenizers.save(run_dir / TOKENIZER)
    _sync_files(run_dir / TOKENIZER)
    _write(run_dir / VERSIONS, _to_json({**versions(), "command": command}))
    update_config(run_dir, config)


def update_config(run_dir: Path, config: TrainConfig) -> None:
    """Replaces the settings of a run, which a resumed session may change."""
    text = yaml.safe_dump(to_mapping(config), allow_unicode=True, sort_keys=False)
    _write(run_dir / CONFIG, text.encode())


def load_config(run_dir: Path) -> TrainConfig:
    """Returns the settings of a run. Raises ValueError where the folder is no run or a setting is wrong."""
    file = run_dir / CONFIG
    if not is_run(run_dir):
        raise ValueError(f"{run_dir} is not a run folder: no {CONFIG}; train with mt train run_dir={run_dir}")
    try:
        return from_mapping(TrainConfig, yaml.safe_load(file.read_bytes()))
    except (ValueError, yaml.YAMLError) as error:
        raise ValueError(f"{file}: {_one_line(error)}") from error


def load_tokenizers(run_dir: Path) -> TokenizerPair:
    """Returns the tokenizers stored in a run. Raises ValueError where a file is missing or broken."""
    return TokenizerPair.load(run_dir / TOKENIZER)


def check_tokenizer(state: Mapping[str, Any], tokenizers: TokenizerPair) -> None:
    """Raises ValueError where a checkpoint's state was written with other tokenizers than these."""
    if state["tokenizer_fingerprint"] != tokenizers.fingerprint:
        raise ValueError(
            f"the tokenizer does not match this model: the checkpoint has {state['tokenizer_fingerprint']}, "
            f"the tokenizer is {tokenizers.fingerprint}; restore the run's own {TOKENIZER} folder"
        )


def save_checkpoint(
    run_dir: Path,
    step: int,
    weights: Mapping[str, Tensor],
    training: Mapping[str, Tensor],
    state: Mapping[str, Any],
    name: str | None = None,
) -> Path:
    """Returns the folder of a new, complete checkpoint: step_00001234, or `name` for one that is no training step.

    weights: model.state_dict(), tied tensors stored once, wrapper prefixes of torch.compile and DDP removed.
    training: optimizer and random generator tensors. state: JSON values; must have tokenizer_fingerprint, metrics and
    finished. A checkpoint of the same name is replaced. Raises OSError in one line where the disk is full or cannot be
    written; nothing but the new checkpoint is lost.
    """
    assert {"tokenizer_fingerprint", "metrics", "finished"} <= state.keys()
    folder = run_dir / CHECKPOINTS
    final = folder / (name or f"step_{step:08d}")
    temporary, replaced = folder / f".tmp-{final.name}", folder / f".old-{final.name}"
    content = {**state, "step": step, "format": FORMAT, "mt_version": mt_version()}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        remove_unfinished(run_dir)
        temporary.mkdir()
        _write_new(temporary / STATE, _to_json(content))
        _save_tensors(temporary / MODEL, strip_wrappers(weights))
        _save_tensors(temporary / TRAINING, training)
        _sync_files(temporary)
        if final.exists():
            os.replace(final, replaced)
        os.replace(temporary, final)
        _sync(folder)
        shutil.rmtree(replaced, ignore_errors=True)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(temporary, ignore_errors=True)
        raise OSError(f"{final}: not saved ({_one_line(error)}); earlier checkpoints are untouched") from error
    return final


def remove_unfinished(run_dir: Path) -> None:
    """Removes what a killed save left behind. For the process that writes the run, at its start and before a save."""
    folder = run_dir / CHECKPOINTS
    for path in folder.glob(".old-*"):  # killed between the two renames: the old checkpoint is the complete one
        final = folder / path.name.removeprefix(".old-")
        if final.exists():
            shutil.rmtree(path, ignore_errors=True)
        else:
            os.replace(path, final)
    for path in folder.glob(".tmp-*"):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def list_checkpoints(run_dir: Path) -> list[Path]:
    """Returns the folders of all training steps, oldest first."""
    folders = [path for path in (run_dir / CHECKPOINTS).glob("step_*") if path.name[5:].isdecimal() and path.is_dir()]
    return sorted(folders, key=lambda path: int(path.name[5:]))


def newest_readable(run_dir: Path) -> Path | None:
    """Returns the newest undamaged checkpoint, or None where the run has none yet.

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
    _write(run_dir / CHECKPOINTS / f"{name}.json", _to_json({"checkpoint": checkpoint.name}))


def is_pointed(run_dir: Path, name: str) -> bool:
    """Returns whether `name` (best or last) was given to a checkpoint yet."""
    return (run_dir / CHECKPOINTS / f"{name}.json").is_file()


def pointed(run_dir: Path, name: str) -> Path:
    """Returns the checkpoint that `name` means: best, last, or a folder below checkpoints/ such as step_00001234.

    Raises ValueError where there is none, naming those that there are.
    """
    folder = run_dir / CHECKPOINTS
    pointer = folder / f"{name}.json"
    checkpoint = folder / name
    if pointer.is_file():
        try:
            checkpoint = folder / json.loads(pointer.read_bytes())["checkpoint"]
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(f"{pointer}: damaged, expected {{'checkpoint': NAME}}") from error
    if checkpoint.parent != folder or checkpoint.name.startswith(".") or not checkpoint.is_dir():
        names = [path.stem for path in sorted(folder.glob("*.json"))]
        names += [path.name for path in list_checkpoints(run_dir)]
        raise ValueError(f"checkpoint={name}: not in {run_dir}, which has {', '.join(names) or 'none yet'}")
    return checkpoint


def rotate(run_dir: Path, keep_last: int) -> None:
    """Deletes all but the newest `keep_last` steps; never the best or the last checkpoint, nor a named one."""
    folder = run_dir / CHECKPOINTS
    kept = [pointed(run_dir, name) for name in ("best", "last") if is_pointed(run_dir, name)]
    checkpoints = list_checkpoints(run_dir)
    for checkpoint in checkpoints[: max(len(checkpoints) - keep_last, 0)]:
        if checkpoint not in kept:  # renamed first: a kill never leaves half a checkpoint under its own name
            doomed = folder / f".tmp-{checkpoint.name}"
            os.replace(checkpoint, doomed)
            shutil.rmtree(doomed, ignore_errors=True)


def read_state(checkpoint: Path) -> dict[str, Any]:
    """Returns step, metrics, tokenizer_fingerprint, finished and the trainer's own values.

    Raises ValueError where the file is missing, damaged or of a newer format.
    """
    file = checkpoint / STATE
    if checkpoint.is_file():
        raise ValueError(f"{checkpoint}: not a checkpoint folder; mt reads safetensors only, no pickled files")
    try:
        state = json.loads(file.read_bytes())
    except OSError as error:
        raise ValueError(f"{file}: cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise ValueError(f"{file}: damaged ({_one_line(error)})") from error
    if not isinstance(state, dict) or not {"step", "format", "tokenizer_fingerprint"} <= state.keys():
        raise ValueError(f"{file}: damaged (no step, format or tokenizer_fingerprint)")
    if state["format"] > FORMAT:
        raise ValueError(f"{file}: has format {state['format']}, this mt reads up to {FORMAT}; use a newer mt")
    return state


def read_weights(checkpoint: Path) -> dict[str, Tensor]:
    """Returns the model's tensors by name, on the CPU; tied names share one tensor. Raises ValueError as read_state."""
    read_state(checkpoint)
    return _read_tensors(checkpoint / MODEL)


def read_training(checkpoint: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Returns optimizer and random generator tensors, on the CPU, and the state. Raises ValueError as read_state."""
    state = read_state(checkpoint)
    return _read_tensors(checkpoint / TRAINING), state


def load_weights(model: nn.Module, checkpoint: Path) -> None:
    """Copies a checkpoint's weights into a model. Raises ValueError as read_state and copy_weights."""
    copy_weights(model, read_weights(checkpoint), str(checkpoint / MODEL))


def copy_weights(model: nn.Module, weights: Mapping[str, Tensor], origin: str) -> None:
    """Copies weights into a model, wrapped by torch.compile or DDP or not; tied names need be given only once.

    Raises ValueError in one line that names `origin` and the missing, unknown and wrongly shaped tensors; the model is
    unchanged then.
    """
    given, wanted = strip_wrappers(weights), strip_wrappers(model.state_dict())
    filled = {_place(wanted[name]) for name in given if name in wanted}
    sizes = [
        f"{name} ({_size(given[name])} given, {_size(wanted[name])} in the model)"
        for name in wanted
        if name in given and given[name].shape != wanted[name].shape
    ]
    faults = [
        _list_names("missing", [name for name in wanted if name not in given and _place(wanted[name]) not in filled]),
        _list_names("unknown", [name for name in given if name not in wanted]),
        _list_names("wrong size", sizes),
    ]
    if any(faults):
        raise ValueError(f"{origin} does not fit the model: {'; '.join(filter(None, faults))}")
    with torch.no_grad():
        for name, tensor in given.items():
            wanted[name].copy_(tensor)


def average_weights(checkpoints: list[Path]) -> dict[str, Tensor]:
    """Returns the mean of the checkpoints' weights, summed in float64, in the dtype of the first; tied names stay tied.

    Raises ValueError where the checkpoints hold other tensors or were trained with other tokenizers.
    """
    if not checkpoints:
        raise ValueError("no checkpoints to average")
    loaded = [read_weights(checkpoint) for checkpoint in checkpoints]  # memory-mapped: read where used
    first, fingerprint = loaded[0], read_state(checkpoints[0])["tokenizer_fingerprint"]
    for checkpoint, weights in zip(checkpoints, loaded, strict=True):
        same = weights.keys() == first.keys() and all(weights[name].shape == first[name].shape for name in first)
        if not same or read_state(checkpoint)["tokenizer_fingerprint"] != fingerprint:
            raise ValueError(f"{checkpoint}: cannot be averaged with {checkpoints[0]}: other tensors or tokenizer")
    means: dict[int, Tensor] = {}  # by the identity of the first checkpoint's tensor: tied names stay tied
    for name, tensor in first.items():
        if id(tensor) not in means:
            total = torch.stack([weights[name].double() for weights in loaded]).sum(0)
            means[id(tensor)] = (total / len(loaded)).to(tensor.dtype)
    return {name: means[id(tensor)] for name, tensor in first.items()}


def strip_wrappers(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Returns the tensors under the plain model's names, without `module.` (DDP) and `_orig_mod.` (torch.compile)."""
    stripped = {}
    for name, tensor in weights.items():
        parts = [part for part in name.split(".") if part != "_orig_mod"]
        while parts[0] == "module":
            del parts[0]
        stripped[".".join(parts)] = tensor
    assert len(stripped) == len(weights), "two tensors have one name without wrapper prefixes"
    return stripped


def _save_tensors(file: Path, tensors: Mapping[str, Tensor]) -> None:
    """Writes tensors; names of one and the same tensor are stored once, the others as aliases in the metadata."""
    stored: dict[str, Tensor] = {}
    aliases: dict[str, str] = {}
    names: dict[tuple[Any, ...], str] = {}
    for name, tensor in tensors.items():
        if tensor.numel() and _place(tensor) in names:
            aliases[name] = names[_place(tensor)]
            continue
        names[_place(tensor)] = name
        # a fresh, contiguous copy: safetensors refuses views, and training may go on while a copy is written
        stored[name] = torch.empty(tensor.shape, dtype=tensor.dtype).copy_(tensor.detach())
    save_file(stored, file, metadata={"aliases": json.dumps(aliases)})
    shutil.copymode(file.parent / STATE, file)  # safetensors makes files that only their owner can read


def _read_tensors(file: Path) -> dict[str, Tensor]:
    """Returns the tensors of a file, memory-mapped; opening it checks its header against its size."""
    try:
        with safe_open(file, framework="pt", device="cpu") as opened:
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}
            aliases = json.loads((opened.metadata() or {}).get("aliases", "{}"))
    except (OSError, SafetensorError, ValueError) as error:
        raise ValueError(f"{file}: missing or damaged ({_one_line(error)})") from error
    return tensors | {alias: tensors[name] for alias, name in aliases.items() if name in tensors}


def _write(file: Path, content: bytes) -> None:
    """Writes a file under a temporary name and renames it: readers see the old content or the new, never a part."""
    temporary = file.with_name(f".tmp-{file.name}")
    _write_new(temporary, content)
    os.replace(temporary, file)
    _sync(file.parent)


def _write_new(file: Path, content: bytes) -> None:
    with file.open("wb") as output:
        output.write(content)
        output.flush()
        os.fsync(output.fileno())


def _sync_files(folder: Path) -> None:
    for file in folder.iterdir():
        _sync(file)
    _sync(folder)


def _sync(path: Path) -> None:
    """Waits until a file, or the names in a folder, are on the disk."""
    if os.name == "nt":  # Windows cannot open a folder, and flushes on close
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _to_json(value: Any) -> bytes:
    # backslashreplace: a file name that is no UTF-8 reaches us as lone surrogates, and \udc80 is how JSON spells those
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode("utf-8", errors="backslashreplace")


def _place(tensor: Tensor) -> tuple[Any, ...]:
    """Returns what is equal for two names of one tensor, such as tied embeddings."""
    return tensor.device, tensor.dtype, tensor.data_ptr(), tensor.shape, tensor.stride()


def _list_names(label: str, names: list[str]) -> str:
    more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
    return f"{label} {', '.join(names[:_NAMES_SHOWN])}{more}" if names else ""


def _size(tensor: Tensor) -> str:
    return "x".join(map(str, tensor.shape)) or "scalar"


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
