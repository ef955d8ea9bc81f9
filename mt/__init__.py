"""mt trains, evaluates and runs encoder-decoder translation models.

    import mt
    mt.train(["experiment=demo", "trainer.max_minutes=5"])
    mt.evaluate("runs/demo")
    mt.load("runs/demo").translate(["I love china"])

Everything heavy is imported inside the functions, so that importing mt, and with it `mt --help`, is fast.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mt.config import DecodeConfig
    from mt.training.trainer import TrainResult
    from mt.translation.evaluate import Evaluation
    from mt.translation.translator import Translator


def load(
    run_dir: Path | str, device: str = "auto", checkpoint: str = "best", decode: DecodeConfig | None = None
) -> Translator:
    """Returns a translator of a trained folder: `load("runs/demo").translate(["I love china"])` is a list of strings.

    `checkpoint` is best, last or the name of a folder below checkpoints/; `decode` replaces the run's search settings.
    Raises ValueError where the folder is no run or is damaged.
    """
    from mt.translation.translator import load_translator

    return load_translator(run_dir, device, checkpoint, decode)


def train(overrides: list[str]) -> TrainResult:
    """Returns the result of a run composed from overrides such as ["experiment=demo", "optim.lr=1e-3"].

    Raises ValueError, before any data is read, for an unknown setting or a wrong value.
    """
    from mt.compose import compose
    from mt.training.run import train as train_run

    return train_run(compose(overrides), ["mt.train", *overrides])


def evaluate(
    run_dir: Path | str,
    source: Path | str | None = None,
    reference: Path | str | list[Path] | None = None,
    device: str = "auto",
    checkpoint: str = "best",
    decode: DecodeConfig | None = None,
) -> dict[str, Evaluation]:
    """Returns scores, with signatures and intervals, by name: of two text files, or of each of the run's test corpora.

    `scores` of each has bleu, chrf, chrf++ and ter. The translations and the scores are also written below results/ in
    the run. Raises ValueError for files that do not fit.
    """
    from mt.translation.evaluate import evaluate as evaluate_run

    return evaluate_run(run_dir, source, reference, device, checkpoint, decode)


def __getattr__(name: str) -> str:
    if name == "__version__":
        import importlib.metadata

        return importlib.metadata.version("mt")
    raise AttributeError(f"module 'mt' has no attribute {name!r}")
