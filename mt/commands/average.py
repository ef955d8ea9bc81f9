"""mt average: checkpoints of a run -> one more, with the mean of their weights."""

import sys
from pathlib import Path
from typing import Annotated

import typer

METRICS = ("bleu", "chrf", "loss")


def average(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A trained folder, such as runs/demo.")],
    last: Annotated[int | None, typer.Option(metavar="N", help="Average the newest N checkpoints.")] = None,
    best: Annotated[int | None, typer.Option(metavar="N", help="Average the N best checkpoints by --metric.")] = None,
    metric: Annotated[
        str | None, typer.Option(help="With --best: bleu, chrf or loss. [default: the run's trainer.best_metric]")
    ] = None,
    checkpoints: Annotated[
        str | None, typer.Option(metavar="NAME,NAME", help="Average these, such as step_00001000,step_00002000.")
    ] = None,
    name: Annotated[str, typer.Option(help="What the new checkpoint is called.")] = "average",
) -> None:
    """Average the weights of checkpoints: often a little better than each of them.

    Without --last, --best or --checkpoints all training steps that the run still holds are averaged. Prints the new
    checkpoint's folder; mt translate RUN --checkpoint average translates with it.
    """
    if sum(given is not None for given in (last, best, checkpoints)) > 1:
        raise ValueError("give only one of --last, --best and --checkpoints")
    if metric is not None and best is None:
        raise ValueError(f"--metric={metric}: has a meaning only with --best N")
    if metric not in (None, *METRICS):
        raise ValueError(f"--metric={metric}: must be one of {', '.join(METRICS)}")
    for option, number in (("--last", last), ("--best", best)):
        if number is not None and number < 2:
            raise ValueError(f"{option}={number}: must be at least 2")
    from mt.averaging import save_average
    from mt.checkpoint import load_config, pointed

    config = load_config(run)
    if checkpoints is not None:
        chosen = [pointed(run, each.strip()) for each in checkpoints.split(",")]
    else:
        chosen = _choose(run, last, best, metric or config.trainer.best_metric)
    replaces = (run / "checkpoints" / name).is_dir()
    saved = save_average(run, chosen, name)
    print(f"averaged {len(chosen)} checkpoints: {', '.join(each.name for each in chosen)}", file=sys.stderr)
    if replaces:
        print(f"replaced the earlier {name}", file=sys.stderr)
    print(saved)


def _choose(run: Path, last: int | None, best: int | None, metric: str) -> list[Path]:
    """Returns the checkpoints that --last, --best or neither of them means. Raises ValueError for too few."""
    from mt.checkpoint import best_first, checkpoint_names, read_states

    states = read_states(run)
    found = list(states) if best is None else best_first(states, metric)
    wanted = best or last or len(found)
    if len(found) < wanted:
        option, kind = ("--last", "readable") if best is None else ("--best", f"validated (with a finite {metric})")
        raise ValueError(
            f"{option}={wanted}: the run has {len(found)} {kind} checkpoints; there are {checkpoint_names(run)}"
        )
    return found[:wanted] if best is not None else found[len(found) - wanted :]
