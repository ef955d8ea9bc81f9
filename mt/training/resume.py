"""Whether a run folder can be trained into, and what may differ when a run goes on."""

from dataclasses import dataclass
from pathlib import Path

from mt import checkpoint as folder
from mt.config import TrainConfig, to_mapping

FIXED = ("model", "tokenizer", "data", "init_from")  # what the weights and the place in the corpus depend on
FIXED_ALSO = ("optim.optimizer", "trainer.seed")
FREE = ("resume", "run_dir", "device", "data.cache_dir")  # say where and how, not what
LEFT_BEFORE_A_RUN_BEGINS = ("log.jsonl", "tensorboard", "cache")  # by a start that ended before its first checkpoint


@dataclass(frozen=True)
class Found:
    """What a run folder holds."""

    is_run: bool
    saved: Path | None  # the checkpoint to go on from
    finished: bool  # and none of its limits was changed since


def look_into(run_dir: Path, config: TrainConfig) -> Found:
    """Returns what is there to go on from. Raises ValueError for a folder that this run must not touch."""
    if not folder.is_run(run_dir):
        names = sorted(path.name for path in run_dir.iterdir()) if run_dir.is_dir() else []
        strangers = [name for name in names if name not in LEFT_BEFORE_A_RUN_BEGINS]
        if strangers:
            raise ValueError(
                f"run_dir={run_dir}: holds {strangers[0]!r} but no run (no config.yaml); choose an empty or new folder"
            )
        return Found(False, None, False)
    if not config.resume:
        raise ValueError(f"run_dir={run_dir}: holds a run; resume=true continues it, another run_dir starts anew")
    folder.remove_unfinished(run_dir)
    saved = folder.newest_readable(run_dir)
    finished = saved is not None and folder.read_state(saved)["finished"]
    return Found(True, saved, finished and _limits(folder.load_config(run_dir)) == _limits(config))


def _limits(config: TrainConfig) -> tuple[object, ...]:
    t = config.trainer
    return t.max_steps, t.max_epochs, t.max_minutes, t.early_stopping_patience


def changes(old: TrainConfig, new: TrainConfig) -> list[str]:
    """Returns the settings that differ, as 'key: old -> new'; raises ValueError for one that a run cannot change."""
    found = []
    before, after = _flatten(to_mapping(old)), _flatten(to_mapping(new))
    for key in sorted(before.keys() | after.keys()):
        if before.get(key) == after.get(key) or key in FREE:
            continue
        if key.split(".")[0] in FIXED or key in FIXED_ALSO or _switched(key, before.get(key), after.get(key)):
            raise ValueError(
                f"{key}={after.get(key)}: the run in {new.run_dir or f'runs/{new.name}'} was begun with "
                f"{before.get(key)}, which cannot change on resume; use init_from for a new run that starts from its "
                "weights"
            )
        found.append(f"{key}: {before.get(key)} -> {after.get(key)}")
    return found


def _switched(key: str, before: object, after: object) -> bool:
    """The moving average cannot begin or end half-way: its weights would mean something else."""
    return key == "trainer.ema_decay" and (before == 0) != (after == 0)


def _flatten(mapping: dict, prefix: str = "") -> dict[str, object]:
    flat = {}
    for key, value in mapping.items():
        flat |= _flatten(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return flat
