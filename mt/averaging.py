"""The mean of a run's checkpoints, as one more checkpoint to translate and score with."""

import re
from pathlib import Path

from torch import Tensor

from mt.checkpoint import (
    CHECKPOINTS,
    MODEL,
    POINTERS,
    check_bytes,
    check_tokenizer,
    checkpoint_names,
    load_tokenizers,
    read_state,
    read_weights,
    save_checkpoint,
)
from mt.tensors import check_same, find_not_finite, mean


def save_average(run_dir: Path, checkpoints: list[Path], name: str) -> Path:
    """Returns the folder of a new checkpoint `name` that holds the mean of the checkpoints' weights.

    It can be translated and scored with, not resumed. An earlier average of the same name is replaced. Raises
    ValueError for fewer than 2 checkpoints, for one named twice, for a name that means something else, for tokenizers
    that are not the run's, and as average_weights.
    """
    averaged = [checkpoint.name for checkpoint in checkpoints]
    if len(checkpoints) < 2 or len(set(averaged)) < len(averaged):
        given = ", ".join(averaged) or "none"
        known = checkpoint_names(run_dir)
        raise ValueError(f"an average needs 2 or more different checkpoints, got {given}; the run has {known}")
    if not re.fullmatch(r"\w[\w-]*", name) or name.startswith("step_") or name in POINTERS:
        raise ValueError(
            f"name={name}: must be letters, digits, _ and -, and neither step_… nor {' nor '.join(POINTERS)}"
        )
    target = run_dir / CHECKPOINTS / name
    if target.is_dir() and "averaged" not in read_state(target):
        raise ValueError(f"name={name}: {target} is a checkpoint that is no average; choose another name")
    newest = max((read_state(checkpoint) for checkpoint in checkpoints), key=lambda state: state["step"])
    check_tokenizer(newest, load_tokenizers(run_dir))
    made_by = {key: value for key, value in newest.items() if key not in ("progress", "signatures")}
    state = {**made_by, "metrics": {}, "averaged": averaged}
    return save_checkpoint(run_dir, newest["step"], average_weights(checkpoints), None, state, name)


def average_weights(checkpoints: list[Path]) -> dict[str, Tensor]:
    """Returns the mean of the checkpoints' weights, summed in float64, in the dtype of the first; tied names stay tied.

    Raises ValueError where the checkpoints hold other or non-finite tensors, or differ in tokenizers or model settings.
    """
    if not checkpoints:
        raise ValueError("no checkpoints to average")
    states = [read_state(checkpoint) for checkpoint in checkpoints]
    loaded = [read_weights(checkpoint, verify=False) for checkpoint in checkpoints]  # memory-mapped: read where used
    for checkpoint, state, weights in zip(checkpoints, states, loaded, strict=True):
        cannot = f"{checkpoint}: cannot be averaged with {checkpoints[0]}"
        for key, words in (("tokenizer_fingerprint", "another tokenizer"), ("model", "other model settings")):
            if state.get(key) != states[0].get(key):
                raise ValueError(f"{cannot}: {words}")
        check_same(loaded[0], weights, cannot)
        check_bytes(checkpoint / MODEL, state)
        if (name := find_not_finite(weights)) is not None:
            raise ValueError(f"{checkpoint}: cannot be averaged: {name} holds NaN or infinity; leave this one out")
    return mean(loaded)
