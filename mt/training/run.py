"""A training run from settings to trained folder: checks, tokenizers, encoded corpora, then the loop."""

import os
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import torch

from mt import checkpoint as folder
from mt.config import DataConfig, TrainConfig, to_mapping
from mt.data.clean import clean_pairs
from mt.data.corpus import check_corpora, read_corpora
from mt.data.encoded import EncodedCorpus, encode_corpus
from mt.model.allocator import keep_freed_memory
from mt.model.device import resolve_device
from mt.tokenizer import TokenizerPair, train_tokenizers
from mt.training.monitor import Monitor
from mt.training.signals import StopRequest
from mt.training.trainer import Trainer, TrainResult

FIXED_ON_RESUME = ("model", "tokenizer", "data", "init_from")  # what the weights and the place in the corpus depend on
LEFT_BEFORE_A_RUN_BEGINS = ("log.jsonl", "tensorboard")  # by a start that ended before its first checkpoint
Say = Callable[[str], None]


def train(config: TrainConfig, command: list[str]) -> TrainResult:
    """Returns the result of a new or resumed run; `command` is stored in the run for the record.

    Raises ValueError, before anything is written, for corpora that do not fit and for a folder that holds a run which
    is not to be resumed or is finished.
    """
    run_dir = Path(config.run_dir or Path("runs") / config.name)
    device = resolve_device(config.device)
    resuming, saved = _check_folder(run_dir, config)
    check_corpora(config.data)
    if device.type == "cpu":
        keep_freed_memory()
    else:
        torch.set_float32_matmul_precision("high")
    with Monitor(run_dir, config.trainer.tensorboard) as monitor, warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = lambda message, *rest: monitor.message(f"warning: {message}")
        if resuming:
            changes = _check_changes(folder.load_config(run_dir), config)
            tokenizers = folder.load_tokenizers(run_dir)
            for change in changes:
                monitor.message(f"changed since the last session: {change}")
        else:
            tokenizers = _tokenizers(config, monitor.message)
        train_corpus = encode_corpus(config.data.train, config.data, tokenizers)
        valid_corpus = None
        if config.data.valid:
            valid_corpus = encode_corpus(config.data.valid, config.data, tokenizers, clean=False, split="valid")
            empty = int(((valid_corpus.source_lengths == 0) | (valid_corpus.target_lengths == 0)).sum())
            if empty:
                monitor.message(f"warning: data.valid: {empty} of {len(valid_corpus)} pairs have an empty side")
        trainer = Trainer(config, run_dir, device, tokenizers, train_corpus, valid_corpus)
        for line in _describe(trainer, train_corpus):
            monitor.message(line)
        busy = os.getloadavg()[0] if device.type == "cpu" and hasattr(os, "getloadavg") else 0.0
        if busy > 0.75 * torch.get_num_threads():
            monitor.message(
                f"warning: this machine is busy (load {busy:.1f}): training may be several times slower; "
                "OMP_WAIT_POLICY=PASSIVE in the environment bears other work better"
            )
        if config.init_from:  # before anything is written; a resumed run's own weights replace these
            folder.load_weights(trainer.model, folder.pointed(Path(config.init_from), "best"))
        if resuming:
            folder.update_config(run_dir, config)
            if saved is not None:
                trainer.restore(saved)
                monitor.message(f"resuming {run_dir} at update {trainer.progress.step}")
        else:
            if config.resume:
                monitor.message(f"nothing to resume in {run_dir}: a new run begins")
            folder.create_run(run_dir, config, tokenizers, command)
        with StopRequest() as stop:
            return trainer.fit(monitor, stop)


def _check_folder(run_dir: Path, config: TrainConfig) -> tuple[bool, Path | None]:
    """Returns whether to resume, and the checkpoint to resume from; refuses a folder that holds a run otherwise."""
    if not folder.is_run(run_dir):
        names = sorted(path.name for path in run_dir.iterdir()) if run_dir.is_dir() else []
        strangers = [name for name in names if name not in LEFT_BEFORE_A_RUN_BEGINS]
        if strangers:
            raise ValueError(
                f"run_dir={run_dir}: holds {strangers[0]!r} but no run (no config.yaml); choose an empty or new folder"
            )
        return False, None
    if config.resume:
        folder.remove_unfinished(run_dir)
    saved = folder.newest_readable(run_dir)
    finished = saved is not None and folder.read_state(saved)["finished"]
    if not config.resume:
        remedy = "mt evaluate scores it" if finished else "resume=true continues it"
        kind = "a finished" if finished else "an unfinished"
        raise ValueError(f"run_dir={run_dir}: holds {kind} run; {remedy}, another run_dir starts anew")
    if finished and _limits(folder.load_config(run_dir)) == _limits(config):
        raise ValueError(
            f"run_dir={run_dir}: the run is finished; raise trainer.max_steps, max_epochs or max_minutes to go on"
        )
    return True, saved


def _limits(config: TrainConfig) -> tuple[object, ...]:
    t = config.trainer
    return t.max_steps, t.max_epochs, t.max_minutes, t.early_stopping_patience


def _check_changes(old: TrainConfig, new: TrainConfig) -> list[str]:
    """Returns the settings that differ, as 'key: old -> new'; raises ValueError for one that a run cannot change."""
    changes = []
    before, after = _flatten(to_mapping(old)), _flatten(to_mapping(new))
    for key in sorted(before.keys() | after.keys()):
        if before.get(key) == after.get(key) or key in ("resume", "run_dir", "device", "data.cache_dir"):
            continue
        if key.split(".")[0] in FIXED_ON_RESUME or key in ("optim.optimizer", "trainer.seed"):
            raise ValueError(
                f"{key}={after.get(key)}: the run in run_dir was begun with {before.get(key)}, which cannot change on "
                "resume; use init_from for a new run that starts from its weights"
            )
        changes.append(f"{key}: {before.get(key)} -> {after.get(key)}")
    return changes


def _flatten(mapping: dict, prefix: str = "") -> dict[str, object]:
    flat = {}
    for key, value in mapping.items():
        flat |= _flatten(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return flat


def _tokenizers(config: TrainConfig, say: Say) -> TokenizerPair:
    if config.init_from:
        return folder.load_tokenizers(Path(config.init_from))
    say("training the tokenizer")
    counts: Counter[str] = Counter()
    data: DataConfig = config.data
    pairs = clean_pairs(read_corpora(data.train, data, "train"), data.cleaning, counts)
    return train_tokenizers(pairs, config.tokenizer, config.trainer.seed)


def _describe(trainer: Trainer, corpus: EncodedCorpus) -> list[str]:
    dropped = ", ".join(f"{count} {reason}" for reason, count in corpus.counts.most_common()) or "none"
    parameters = sum(parameter.numel() for parameter in trainer.model.parameters())
    tokenizers = trainer.tokenizers
    return [
        f"{len(corpus):,} training pairs (dropped: {dropped})",
        f"vocabulary: {tokenizers.source.size} source and {tokenizers.target.size} target pieces",
        f"model: {parameters:,} parameters on {trainer.device}, {str(trainer.dtype).removeprefix('torch.')}",
    ]
