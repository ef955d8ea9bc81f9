"""COMET, a score by a trained network, through its own program comet-score, which has an environment of its own.

unbabel-comet (2.2.7) needs numpy 1 and an old huggingface_hub, so it cannot be installed beside mt.
"""

import hashlib
import json
import math
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from sacrebleu.significance import estimate_ci

from mt.evaluation.metrics import Interval, Score, check_seed
from mt.evaluation.resampling import RESAMPLES, draws

# nothing is downloaded while scoring; the program opens files in the locale's encoding
_SETTINGS = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "PYTHONUTF8": "1"}


@dataclass(frozen=True)
class Comet:
    """The program, and the model by name and checkpoint file."""

    program: Path
    model: str
    checkpoint: Path


def find_comet(model: str) -> Comet:
    """Returns COMET with a model that is a .ckpt file, a folder with checkpoints/model.ckpt, or a downloaded name.

    Raises ValueError where the program comet-score is not on PATH or the model is not on this machine.
    """
    program = shutil.which("comet-score")
    if program is None:
        raise ValueError("--comet: needs the program comet-score, which is not on PATH: pipx install unbabel-comet")
    path = Path(model)
    if path.is_dir():
        path = path / "checkpoints" / "model.ckpt"
    if not path.is_file():
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

        try:
            path = Path(snapshot_download(model, local_files_only=True)) / "checkpoints" / "model.ckpt"
        except (LocalEntryNotFoundError, HFValidationError):
            pass
    if not path.is_file():
        raise ValueError(
            f"--comet={model}: is no .ckpt file, no folder with checkpoints/model.ckpt and no model that was "
            "downloaded: hf download NAME and that of its encoder, such as xlm-roberta-large"
        )
    return Comet(Path(program), model, path)


def score_comet(
    comet: Comet, sources: list[str], hypotheses: list[str], references: list[str], on_gpu: bool = False
) -> Score:
    """Returns the mean of the sentences' scores with its interval; all lists are of one length.

    The scale is the model's own: about 0 to 1 for most, higher being better. The signature holds the SHA-256 of the
    checkpoint. Raises ValueError where comet-score fails.
    """
    seed = check_seed()
    scores = np.array(_run(comet, {"sources": sources, "translations": hypotheses, "references": references}, on_gpu))
    means = np.array([drawn @ scores for drawn in draws(len(scores), seed)]) / len(scores)
    interval = Interval(*map(float, estimate_ci(means)))
    with comet.checkpoint.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()[:16]
    signature = f"nrefs:1|bs:{RESAMPLES}|seed:{seed}|model:{comet.model}|sha256:{digest}|version:{_version(comet)}"
    return Score("COMET", float(scores.mean()), signature, interval, decimals=4)


def _run(comet: Comet, sides: dict[str, list[str]], on_gpu: bool) -> list[float]:
    """Returns the score of each sentence."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "scores.json"
        command = [str(comet.program), "--model", str(comet.checkpoint), "--gpus", str(int(on_gpu)), "--quiet"]
        command += ["--only_system", "--to_json", str(result)]
        for side, lines in sides.items():
            file = Path(folder) / side
            text = "".join(line.replace("\r", " ") + "\n" for line in lines)  # comet-score takes CR for a line's end
            file.write_bytes(text.encode())
            command += [f"--{side}", str(file)]
        run = subprocess.run(command, env={**os.environ, **_SETTINGS}, capture_output=True, text=True, check=False)
        if run.returncode != 0 or not result.is_file():
            lines = run.stderr.strip().splitlines() or ["no message"]
            raise ValueError(f"{comet.program}: failed with exit code {run.returncode}: {lines[-1][:300]}")
        try:
            (rows,) = json.loads(result.read_bytes()).values()
            scores = [float(row["COMET"]) for row in rows]
        except (ValueError, TypeError, KeyError, AttributeError):
            scores = []
        if len(scores) != len(sides["translations"]) or not all(map(math.isfinite, scores)):
            raise ValueError(f"{comet.program}: wrote no number for each sentence: is it unbabel-comet 2.2 or later?")
        return scores


def _version(comet: Comet) -> str:
    """Returns the version of unbabel-comet in the program's environment, "unknown" where that cannot be asked."""
    python = comet.program.resolve().parent / "python"
    code = "import importlib.metadata; print(importlib.metadata.version('unbabel-comet'))"
    if not python.exists():
        return "unknown"
    run = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    return run.stdout.strip() or "unknown"
