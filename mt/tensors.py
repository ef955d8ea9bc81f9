"""Tensors by name: written to safetensors files, hashed, read back memory-mapped, averaged, fitted into a model."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

_NAMES_SHOWN = 3  # of missing or unknown tensors in a message


def save_tensors(file: Path, tensors: Mapping[str, Tensor]) -> str:
    """Returns the SHA-256 hex digest of the new file; names of one and the same tensor are stored once.

    The other names of a tensor are aliases in the file's metadata. Raises OSError or SafetensorError.
    """
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
    return sha256(file)


def sha256(file: Path) -> str:
    """Returns the hex digest of a file's bytes, read in pieces. Raises OSError."""
    with file.open("rb", buffering=0) as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def check_sha256(file: Path, digest: str) -> None:
    """Raises ValueError where a file's bytes do not have this SHA-256 hex digest, or cannot be read."""
    try:
        found = sha256(file)
    except OSError as error:
        raise ValueError(f"{file}: missing or damaged ({error.strerror})") from error
    if found != digest:
        raise ValueError(f"{file}: damaged (its bytes are not those that were saved: another SHA-256)")


def read_tensors(file: Path) -> dict[str, Tensor]:
    """Returns the tensors of a file, memory-mapped; aliases share one tensor.

    Opening a file checks its header against its size. Raises ValueError where it is missing, damaged or of another
    kind.
    """
    try:
        with safe_open(file, framework="pt", device="cpu") as opened:
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}
            aliases = json.loads((opened.metadata() or {}).get("aliases", "{}"))
    except (OSError, SafetensorError, ValueError, RecursionError) as error:
        raise ValueError(f"{file}: missing or damaged ({one_line(error)})") from error
    if not isinstance(aliases, dict) or not all(isinstance(name, str) for name in aliases.values()):
        raise ValueError(f"{file}: damaged (the aliases are no names)")
    return tensors | {alias: tensors[name] for alias, name in aliases.items() if name in tensors}


def copy_weights(model: nn.Module, weights: Mapping[str, Tensor], origin: str) -> None:
    """Copies weights into a model, wrapped by torch.compile or DDP or not; tied names need be given only once.

    Raises ValueError as check_fit; the model is unchanged then.
    """
    check_fit(model, weights, origin)
    wanted = strip_wrappers(model.state_dict())
    with torch.no_grad():
        for name, tensor in strip_wrappers(weights).items():
            fill(wanted[name], tensor)


def check_fit(model: nn.Module, weights: Mapping[str, Tensor], origin: str) -> None:
    """Raises ValueError in one line that names `origin` and the missing, unknown and wrongly shaped tensors."""
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


def check_same(first: Mapping[str, Tensor], other: Mapping[str, Tensor], what: str) -> None:
    """Raises ValueError, which begins with `what`, where two sets of tensors differ in names or shapes."""
    sizes = [
        f"{name} ({_size(other[name])} and {_size(first[name])})"
        for name in first
        if name in other and other[name].shape != first[name].shape
    ]
    faults = [
        _list_names("missing", [name for name in first if name not in other]),
        _list_names("unknown", [name for name in other if name not in first]),
        _list_names("of two sizes", sizes),
    ]
    if any(faults):
        raise ValueError(f"{what}: {'; '.join(filter(None, faults))}")


def find_not_finite(weights: Mapping[str, Tensor]) -> str | None:
    """Returns the name of the first tensor that holds NaN or infinity, or None."""
    return next((name for name, tensor in weights.items() if not torch.isfinite(tensor).all()), None)


def mean(all_weights: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Returns the mean of equally named and shaped tensors, summed in float64, in the dtype of the first.

    Names that share a tensor in the first share one in the result.
    """
    means: dict[int, Tensor] = {}  # by the identity of the first's tensor
    for name, tensor in all_weights[0].items():
        if id(tensor) not in means:
            total = torch.zeros(tensor.shape, dtype=torch.float64)
            for weights in all_weights:
                total += weights[name]
            means[id(tensor)] = (total / len(all_weights)).to(tensor.dtype)
    return {name: means[id(tensor)] for name, tensor in all_weights[0].items()}


def own_part(tensor: Tensor) -> Tensor:
    """Returns what this rank holds of a tensor, a view: its rows of one that FSDP shares out, else all of it."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor  # importing DTensor to ask takes seconds


def own_rows(tensor: Tensor, first: int, end: int) -> tuple[Tensor, slice]:
    """Returns a view of rows first to end as far as this rank holds them, and which of those rows they are."""
    if not hasattr(tensor, "to_local"):
        return tensor[first:end], slice(0, end - first)
    mesh, part = tensor.device_mesh, tensor.to_local()  # its last dimension shares out, one before it repeats
    begin = mesh.get_local_rank(mesh.ndim - 1) * -(-tensor.shape[0] // mesh.size(mesh.ndim - 1))  # as torch.chunk cuts
    own_first, own_end = max(first, begin), min(end, begin + part.shape[0])
    if own_end <= own_first:
        return part[:0], slice(0, 0)
    return part[own_first - begin : own_end - begin], slice(own_first - first, own_end - first)


def whole_of(part: Tensor, like: Tensor) -> Tensor:
    """Returns all of a tensor of which each rank gives its part; `like` is one that is shared out the same way."""
    if not hasattr(like, "to_local"):
        return part
    how = like.device_mesh, like.placements
    return type(like).from_local(part, *how, shape=like.shape, stride=like.stride()).full_tensor()


def fill(tensor: Tensor, whole: Tensor) -> None:
    """Copies what this rank holds of a tensor from all of it."""
    if tensor.ndim == 0:
        own_part(tensor).copy_(whole)
    else:
        part, rows = own_rows(tensor, 0, tensor.shape[0])
        part.copy_(whole[rows])


def strip_wrappers(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Returns the tensors under the plain model's names, without `module.` (DDP) and `_orig_mod.` (torch.compile).

    Raises ValueError where two tensors would have one name.
    """
    stripped: dict[str, Tensor] = {}
    for name, tensor in weights.items():
        parts = [part for part in name.split(".") if part != "_orig_mod"]
        while parts[:1] == ["module"]:
            del parts[0]
        plain = ".".join(parts)
        if plain in stripped:
            raise ValueError(f"two tensors are named {plain!r} once the prefixes of wrappers are gone")
        stripped[plain] = tensor
    return stripped


def one_line(error: Exception) -> str:
    """Returns an error's message without line breaks."""
    return " ".join(str(error).split())


def _place(tensor: Tensor) -> tuple[Any, ...]:
    """Returns what is equal for two names of one tensor, such as tied embeddings."""
    return tensor.device, tensor.dtype, own_part(tensor).data_ptr(), tensor.shape, tensor.stride()


def _list_names(label: str, names: list[str]) -> str:
    more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
    return f"{label} {', '.join(names[:_NAMES_SHOWN])}{more}" if names else ""


def _size(tensor: Tensor) -> str:
    return "x".join(map(str, tensor.shape)) or "scalar"
