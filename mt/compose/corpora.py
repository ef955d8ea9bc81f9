"""What a command line says of corpora, beside what the experiment has there."""

import re
from collections.abc import Iterable
from pathlib import Path

from hydra.core.override_parser.types import Override

from mt.config import TrainConfig

# corpora and stages have names of the user's choice
NAMED = re.compile(r"(data\.(train|valid|test|stages)(?:\.[^.]+)?)(?:\.(.+))?")
_PLACES = ("source", "target", "path", "dataset", "test_set")  # settings of which a corpus has those of one kind


def other_places(keys: Iterable[str]) -> list[str]:
    """Returns overrides that take away where an experiment has a corpus which the command line places elsewhere.

    keys: the settings of the command line. A corpus is two files, a path, a dataset or a test set, one of these alone.
    """
    given: dict[str, set[str]] = {}
    for key in keys:
        named = NAMED.fullmatch(key.lstrip("+"))
        if named and named[2] != "stages" and named[3] in _PLACES:
            given.setdefault(named[1], set()).add(named[3])
    return [
        f"++{corpus}.{place}=null"
        for corpus, places in given.items()
        for place in _PLACES
        if place not in places and not (places & {"source", "target"} and place in ("source", "target"))
    ]


def check_default_corpora(overrides: list[Override], config: TrainConfig) -> None:
    """Raises ValueError where a corpus of experiment=default has no file and the command line names others too."""
    keys = [override.key_or_group for override in overrides]
    if "experiment" in keys:
        return
    named = {match[1] for key in keys if (match := NAMED.fullmatch(key))}
    for split in ("train", "valid"):
        corpora, main = getattr(config.data, split), f"data.{split}.main"
        path = corpora["main"].path if "main" in corpora else None
        if len(corpora) > 1 and path is not None and main not in named and not Path(path).exists():
            raise ValueError(
                f"{main}.path={path}: No such file; experiment=default has this corpus beside those given: set "
                f"{main}.path, or leave it out by '~{main}'"
            )
