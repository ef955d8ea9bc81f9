"""mt train: settings and overrides -> a run."""

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from mt.config import TrainConfig

STOPPED_AND_SAVED = 75  # by a signal or max_session_minutes: "try again" in sysexits.h, and that is what goes on


def train(
    context: typer.Context,
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="Start from a run's config.yaml, composing nothing.")
    ] = None,
) -> None:
    """Train a model: mt train experiment=NAME KEY=VALUE ..."""
    from mt.compose import read_config, run_hydra

    if config is None:
        run_hydra(context.args, _run)
        return
    options = [argument for argument in context.args if argument.startswith("-")]
    if options:
        raise ValueError(f"{options[0]} has no meaning with --config, which composes nothing; give KEY=VALUE only")
    settings = read_config(config, context.args)
    _check_place(config, settings, context.args)
    _run(settings)


def _check_place(file: Path, settings: "TrainConfig", overrides: list[str]) -> None:
    """Raises ValueError where a run was moved or copied, and its settings alone would begin another where it was."""
    chosen = any(override.lstrip("+").startswith(("run_dir=", "name=")) for override in overrides)
    if chosen or file.name != "config.yaml" or not (file.parent / "checkpoints").is_dir():
        return
    run_dir = Path(settings.run_dir or Path("runs") / settings.name)
    if run_dir.resolve() != file.parent.resolve():
        raise ValueError(
            f"--config={file}: its run_dir is {run_dir}, but it lies in another run folder: set run_dir={file.parent} "
            "to go on with that run, or another run_dir to begin one with its settings"
        )


def _run(config: "TrainConfig") -> float | None:
    """Returns the metric by which the run is judged, of its last validation."""
    from mt.training.run import train as train_run

    result = train_run(config, sys.argv)
    if not result.finished:  # neither a script nor a multirun should go on
        raise SystemExit(STOPPED_AND_SAVED)
    value = result.metrics.get(config.trainer.best_metric)
    if os.environ.get("RANK", "0") != "0":
        return value
    if result.stopped_by is None:
        how = "in an earlier session; raise trainer.max_steps, max_epochs or max_minutes to go on"
    else:
        how = f"ended by {result.stopped_by}"
    with suppress(OSError):  # who read it has gone, such as `| head`: the run is finished all the same
        print(f"finished: {result.run_dir} ({result.steps} updates, {how})", file=sys.stderr)
    return value
