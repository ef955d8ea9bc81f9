"""Whether a run folder can be trained into, and what may differ when a run goes on."""

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from filelock import FileLock, Timeout

from mt import checkpoint as folder
from mt.config import TokenizerConfig, TrainConfig
from mt.mapping import to_mapping

FIXED = ("model", "tokenizer", "data", "init_from")  # what the weights and the place in the corpus depend on
FIXED_ALSO = ("optim.optimizer", "trainer.seed")
FREE = ("resume", "run_dir", "device", "data.cache_dir", "data.processes",
        "trainer.max_session_minutes")  # say where and how, not what  # fmt: skip
# where a corpus lies; whether it is the same one, its fingerprint tells
CORPUS_PLACE = re.compile(r"data\.(train|valid|test)\..+\.(source|target|path|dataset)")
LIMITS = tuple(f"trainer.{name}" for name in ("max_steps", "max_epochs", "max_minutes", "early_stopping_patience"))
SHAPE = ("d_model", "d_ff", "n_heads", "encoder_layers", "decoder_layers", "norm_position", "norm", "norm_epsilon",
         "activation", "positions", "tying", "output_bias")  # fmt: skip
LOCK = ".lock"
# by a start that ended before config.yaml made the folder a run
LEFT_BEFORE_A_RUN_BEGINS = ("log.jsonl", "tensorboard", "cache", LOCK, "checkpoints", "tokenizer", "versions.json")


@dataclass(frozen=True)
class Found:
    """What a run folder holds."""

    is_run: bool
    saved: Path | None  # the checkpoint to go on from
    changes: tuple[str, ...] = ()  # settings that differ from the run's, as 'key: old -> new'
    finished: bool = False  # and none of its limits was changed since
    fitted_batch_tokens: int | None = None  # that trainer.fit_batch found when the run began


@contextmanager
def locked(run_dir: Path, patience_seconds: float = 0.0) -> Iterator[None]:
    """Keeps other processes from training into the folder. Raises ValueError where one does, and still does later."""
    try:
        run_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"run_dir={run_dir}: cannot be created ({error.strerror}): choose another run_dir") from error
    lock = FileLock(run_dir / LOCK)
    try:
        lock.acquire(timeout=patience_seconds)
    except Timeout as error:
        raise ValueError(
            f"run_dir={run_dir}: another process is training into it; wait for it, or choose another run_dir"
        ) from error
    except NotImplementedError:  # a network disk without locks
        warnings.warn(f"{run_dir} is on a disk without locks: let no second process train into it", stacklevel=2)
    try:
        yield
    finally:
        lock.release()


def check_folder(run_dir: Path, config: TrainConfig) -> bool:
    """Returns whether the folder holds a run. Raises ValueError for a folder that this run must not touch."""
    if folder.is_run(run_dir):
        if not config.resume:
            raise ValueError(f"run_dir={run_dir}: holds a run; resume=true continues it, another run_dir starts anew")
        return True
    names = sorted(path.name for path in run_dir.iterdir()) if run_dir.is_dir() else []
    strangers = [name for name in names if name not in LEFT_BEFORE_A_RUN_BEGINS and not name.startswith(".tmp-")]
    if strangers or folder.list_checkpoints(run_dir):
        if folder.list_checkpoints(run_dir):
            raise ValueError(
                f"run_dir={run_dir}: holds checkpoints but no config.yaml: restore it, a copy is in each state.json "
                '("config"), or choose another run_dir'
            )
        stranger = strangers[0]
        raise ValueError(
            f"run_dir={run_dir}: holds {stranger!r} but no run (no config.yaml); choose an empty or new folder"
        )
    return False


def look_into(run_dir: Path, config: TrainConfig) -> Found:
    """Returns what there is to go on from. For the process that holds the folder's lock.

    Raises ValueError for settings that the run cannot take over, and where no checkpoint of several can be read.
    """
    if not check_folder(run_dir, config):
        return Found(False, None)
    folder.remove_unfinished(run_dir)
    before = folder.load_config(run_dir)
    found = changes(before, config)
    fitted = before.trainer.batch_tokens if before.trainer.fit_batch else None
    saved = folder.newest_readable(run_dir)
    state = folder.read_state(saved) if saved is not None else {"finished": False}
    if saved is not None and folder.read_record(run_dir).get("run", state.get("run")) != state.get("run"):
        raise ValueError(f"{saved}: is of another run than {run_dir}; remove it, or use init_from")
    finished = state["finished"]
    keys = [change.split(":")[0] for change in found]
    if not finished or any(key in LIMITS for key in keys):
        return Found(True, saved, tuple(found), fitted_batch_tokens=fitted)
    if found:
        raise ValueError(
            f"run_dir={run_dir}: the run is finished, and {found[0]} would change nothing; raise trainer.max_steps, "
            "max_epochs or max_minutes to go on, or choose another run_dir"
        )
    return Found(True, saved, finished=True)


def changes(old: TrainConfig, new: TrainConfig) -> list[str]:
    """Returns the settings that differ, as 'key: old -> new'; raises ValueError for one that a run cannot change."""
    found = []
    if old.trainer.fit_batch and new.trainer.fit_batch:  # what it found stays
        new = replace(new, trainer=replace(new.trainer, batch_tokens=old.trainer.batch_tokens))
    before, after = _flatten(to_mapping(old)), _flatten(to_mapping(new))
    for key in sorted(before.keys() | after.keys(), key=lambda key: (CORPUS_PLACE.fullmatch(key) is None, key)):
        if before.get(key) == after.get(key) or key in FREE:
            continue
        moved = CORPUS_PLACE.fullmatch(key) and key in before and key in after
        fixed = key.split(".")[0] in FIXED and not moved
        if fixed or key in FIXED_ALSO or _switched(key, before.get(key), after.get(key)):
            raise ValueError(
                f"{key}={after.get(key)}: the run in {new.run_dir or f'runs/{new.name}'} was begun with "
                f"{before.get(key)}, which cannot change on resume; choose another run_dir for a new run, and "
                "init_from to start it from these weights"
            )
        found.append(f"{key}: {before.get(key)} -> {after.get(key)}")
    return found


def check_same_pairs(before: dict[str, str | None], now: dict[str, str | None], run_dir: Path) -> None:
    """Raises ValueError where a split's encoded pairs, by their fingerprints, are not those that a run began with."""
    for split, fingerprint in before.items():
        if fingerprint != now.get(split):
            raise ValueError(
                f"data.{split}: the pairs differ from those that {run_dir} was begun with (fingerprint "
                f"{str(fingerprint)[:12]}, now {str(now.get(split))[:12]}): restore the files and the versions in its "
                "versions.json, or begin a new run with init_from"
            )


def with_parents_tokenizer(config: TrainConfig, run_dir: Path) -> tuple[TrainConfig, list[str]]:
    """Returns the settings with the tokenizer's from init_from, which brings its own, and lines on what that changed.

    How training sentences are cut (bpe_dropout, unigram_alpha) stays as asked for. Raises ValueError where the model
    has another shape than the parent's.
    """
    parent_dir = Path(config.init_from)
    if folder.is_run(run_dir):
        if folder.load_config(run_dir).init_from != config.init_from:
            return config, []  # which is refused when the settings are compared
        parent_dir = run_dir  # the parent may be gone by now
    parent = folder.load_config(parent_dir)
    other = [name for name in SHAPE if getattr(parent.model, name) != getattr(config.model, name)]
    if other:
        settings = " ".join(f"model.{name}={getattr(parent.model, name)}" for name in other)
        raise ValueError(f"init_from={config.init_from}: its model has another shape; set {settings}")
    own = config.tokenizer
    sampling = {"bpe_dropout": own.bpe_dropout, "unigram_alpha": own.unigram_alpha}
    tokenizer: TokenizerConfig = replace(parent.tokenizer, **sampling)
    before, after = to_mapping(own), to_mapping(tokenizer)
    told = [
        f"taken from init_from: tokenizer.{key}: {before[key]} -> {after[key]}"
        for key in before
        if before[key] != after[key]
    ]
    for side in ("source_language", "target_language"):
        code, parents = getattr(config.data, side), getattr(parent.data, side)
        if code != parents:
            told.append(f"warning: data.{side}={code}, but init_from's is {parents}: set it so where it is the same")
    return replace(config, tokenizer=tokenizer), told


def _switched(key: str, before: object, after: object) -> bool:
    """The moving average cannot begin or end half-way: its weights would mean something else."""
    return key == "trainer.ema_decay" and (before == 0) != (after == 0)


def _flatten(mapping: dict, prefix: str = "") -> dict[str, object]:
    flat = {}
    for key, value in mapping.items():
        flat |= _flatten(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return flat
