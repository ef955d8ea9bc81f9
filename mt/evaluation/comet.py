"""COMET, a score by a trained network, where its package and a model are on this machine: nothing is downloaded."""

import hashlib
import importlib.metadata
from pathlib import Path
from typing import Any

import numpy as np
from sacrebleu.significance import estimate_ci

from mt.evaluation.metrics import RESAMPLES, Interval, Score, check_seed

_BATCH_SENTENCES = 16


def find_comet(model: str) -> Path:
    """Returns the checkpoint file of a COMET model: a .ckpt file, a folder with one, or a name downloaded before.

    Raises ValueError where the package is not installed (it is the extra `comet`) or the model is not here.
    """
    try:
        importlib.metadata.version("unbabel-comet")
    except importlib.metadata.PackageNotFoundError as error:
        raise ValueError("--comet: needs unbabel-comet, which is not installed: pip install 'mt[comet]'") from error
    path = Path(model)
    if path.is_dir():
        path = path / "checkpoints" / "model.ckpt"
    if path.is_file():
        return path
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        found = Path(snapshot_download(model, local_files_only=True)) / "checkpoints" / "model.ckpt"
    except (LocalEntryNotFoundError, HFValidationError):
        found = path
    if not found.is_file():
        raise ValueError(
            f"--comet={model}: is no .ckpt file, no folder with checkpoints/model.ckpt, and no model that was "
            "downloaded; with a network: python -c \"import comet; comet.download_model('NAME')\""
        )
    return found


def score_comet(
    checkpoint: Path, name: str, sources: list[str], hypotheses: list[str], references: list[str], device: str
) -> Score:
    """Returns the mean of the sentences' scores with its interval; all lists are of one length.

    `name` stands in the signature beside the checkpoint's SHA-256. `device` is cpu, cuda or cuda:N. The scale is the
    model's own: about 0 to 1 for most, higher being better.
    """
    import comet

    seed = check_seed()
    model = comet.load_from_checkpoint(str(checkpoint), local_files_only=True)
    rows = [
        {"src": source, "mt": hypothesis, "ref": reference}
        for source, hypothesis, reference in zip(sources, hypotheses, references, strict=True)
    ]
    scores = np.array(_predict(model, rows, device))
    picked = np.random.default_rng(seed).choice(len(scores), size=(RESAMPLES, len(scores)), replace=True)
    interval = Interval(*map(float, estimate_ci(scores[picked].mean(1))))
    with checkpoint.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    version = importlib.metadata.version("unbabel-comet")
    signature = f"nrefs:1|bs:{RESAMPLES}|seed:{seed}|model:{name}|sha256:{digest[:16]}|version:{version}"
    return Score("COMET", float(scores.mean()), signature, interval, decimals=4)


def _predict(model: Any, rows: list[dict[str, str]], device: str) -> list[float]:
    on_gpu = device.startswith("cuda")
    devices = [int(device.partition(":")[2] or 0)] if on_gpu else None
    return model.predict(
        rows, batch_size=_BATCH_SENTENCES, gpus=int(on_gpu), devices=devices, progress_bar=False
    ).scores
