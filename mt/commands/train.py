"""mt train: settings and overrides -> a run."""

import sys
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
    _run(read_config(config, context.args))


def _run(config: "TrainConfig") -> None:
    from mt.training.run import train as train_run

    result = train_run(config, sys.argv)
    if not result.finished:  # neither a script nor a multirun should go on
        raise SystemExit(STOPPED_AND_SAVED)
    print(f"finished: {result.run_dir} ({result.steps} updates, ended by {result.stopped_by})", file=sys.stderr)
