"""A training run from settings to trained folder: checks, tokenizers, encoded corpora, then the loop."""

import dataclasses
import os
import shutil
import time
import warnings
from contextlib import nullcontext
from pathlib import Path

import torch

from mt import checkpoint as folder
from mt.config import DataConfig, DecodeConfig, TrainConfig
from mt.data.clean import check_cleaning
from mt.data.corpus import check_corpora
from mt.data.encoded import DEFAULT_CACHE_DIR, EncodedCorpus, encode_corpus, make_cache_dir
from mt.data.mixture import check_mixture
from mt.data.streamed import StreamedCorpus, is_streamed
from mt.data.tags import check_tags, training_tags
from mt.data.tokenizers import sampled_tokenizers
from mt.model.allocator import keep_freed_memory
from mt.model.device import resolve_device
from mt.processes import OtherWork
from mt.tokenizer import TokenizerPair
from mt.training.distributed import Group, joined, local_rank, restarts
from mt.training.fit_batch import check_fit_batch, fit_batch
from mt.training.monitor import Monitor
from mt.training.parts import check_streaming
from mt.training.progress import TrainResult
from mt.training.resume import Found, check_folder, check_same_pairs, locked, look_into, with_parents_tokenizer
from mt.training.signals import StopRequest
from mt.training.trainer import Trainer
from mt.training.validation import too_long

_PARTS = Path("cache", "stream")  # in the run folder: parts of a streamed corpus


def train(config: TrainConfig, command: list[str]) -> TrainResult:
    """Returns the result of a new or resumed run; `command` is stored in the run for the record.

    Started by torchrun, this is one rank of the run. A finished run is left as it is. Raises ValueError, before
    anything is written, for corpora that do not fit and for a folder that this run must not touch; ConnectionError
    naming the ranks that are gone.
    """
    session = config.trainer.max_session_minutes
    if session is not None and restarts():
        raise ValueError(
            f"trainer.max_session_minutes={session}: torchrun --max-restarts={restarts()} would begin another session "
            "then: leave one of them out, or end torchrun itself by SIGTERM (SLURM: --signal=TERM@120)"
        )
    session_end = None if session is None else time.monotonic() + session * 60
    others = OtherWork()
    with joined() as group:
        device = _device(config.device, group)
        check_fit_batch(config, device)
        group.connect(device, config.trainer.distributed_timeout_seconds)
        if device.type == "cpu":
            keep_freed_memory()
        else:
            torch.set_float32_matmul_precision("high")
        run_dir = Path(config.run_dir or Path("runs") / config.name)
        if group.first:
            _check(run_dir, config)
        # the first rank of an earlier start, cut off from the others, may not have noticed yet
        patience = config.trainer.distributed_timeout_seconds if restarts() else 0.0
        with locked(run_dir, patience) if group.first else nullcontext():
            told: list[str] = []
            if config.init_from:
                config, told = with_parents_tokenizer(config, run_dir)
            found = group.share(look_into(run_dir, config) if group.first else None)
            if found.finished:
                return _finished(run_dir, found)
            with Monitor(run_dir, config.trainer.tensorboard, group.first) as monitor, warnings.catch_warnings():
                warnings.simplefilter("always", UserWarning)
                warnings.showwarning = lambda message, *rest: monitor.message(f"warning: {message}")
                for change in told:
                    monitor.message(change)
                trainer = _prepare(config, run_dir, device, group, found, command, monitor)
                if device.type == "cpu" and group.world_size == 1:  # else the other ranks are the others
                    _warn_of(others.cores(), monitor)
                with StopRequest(session_end) as stop:
                    result = trainer.fit(monitor, stop)
                if result.finished:  # a streamed corpus's parts, kept for going on
                    shutil.rmtree(run_dir / _PARTS, ignore_errors=True)
                return result


def _check(run_dir: Path, config: TrainConfig) -> None:
    """Raises ValueError for what can be known before anything is written."""
    if not check_folder(run_dir, config):
        if not config.data.train:
            raise ValueError("data.train: no corpus given: set data.train.main.source and .target, .path or .dataset")
        check_streaming(config)
        check_mixture(config.data)
        training_tags(config.data)
        check_corpora(config.data)
        check_cleaning(config.data)
    patience = config.trainer.early_stopping_patience
    if patience is not None and not config.data.valid:
        raise ValueError(
            f"trainer.early_stopping_patience={patience}: has no effect without data.valid, whose validations it "
            "counts: set data.valid.main or leave it out"
        )


def _device(name: str, group: Group) -> torch.device:
    """Returns this rank's device: of several GPUs the one with the rank's number on its machine."""
    device = resolve_device(name)
    if device.type == "cuda" and group.world_size > 1:
        if name not in ("auto", "cuda"):
            raise ValueError(f"device={name}: torchrun gives each rank its GPU; use device=auto")
        device = resolve_device(f"cuda:{local_rank()}")
        torch.cuda.set_device(device)
    return device


def _finished(run_dir: Path, found: Found) -> TrainResult:
    state = folder.read_state(found.saved)
    return TrainResult(run_dir, state["step"], state["last_metrics"], None, True)


def _prepare(
    config: TrainConfig,
    run_dir: Path,
    device: torch.device,
    group: Group,
    found: Found,
    command: list[str],
    monitor: Monitor,
) -> Trainer:
    """Returns the trainer, ready to go on from where the run stands; the folder is a run by then."""
    data = dataclasses.replace(config.data, cache_dir=str(_cache_dir(config.data, run_dir)))
    if found.is_run:
        if group.first:
            check_corpora(config.data)
            check_cleaning(config.data)
        tokenizers = folder.load_tokenizers(run_dir)
    else:
        tokenizers = group.share(_tokenizers(config, data, monitor) if group.first else None)
    check_tags(config.data, config.decode.tags, tokenizers.source)
    train_corpus, valid_corpus = _encode(data, config.decode, tokenizers, run_dir, group, monitor)
    if config.trainer.fit_batch:
        if found.fitted_batch_tokens is None:
            config = fit_batch(config, run_dir, device, tokenizers, train_corpus, group, monitor)
        else:
            limits = dataclasses.replace(config.trainer, batch_tokens=found.fitted_batch_tokens)
            config = dataclasses.replace(config, trainer=limits)
    trainer = Trainer(config, run_dir, device, tokenizers, train_corpus, valid_corpus, group)
    _describe(trainer, train_corpus, monitor)
    if config.init_from and found.saved is None:  # before anything is written
        folder.load_weights(trainer.model, folder.pointed(Path(config.init_from), "best"))
    if found.saved is not None:
        trainer.restore(found.saved, monitor)
        for change in found.changes:
            monitor.message(f"changed since the last session: {change}")
        monitor.message(f"resuming {run_dir} at update {trainer.progress.step}")
        if limit := trainer.progress.limit_reached(config.trainer):
            monitor.message(f"nothing is left to do: trainer.{limit} is used up; raise it to go on")
    elif found.is_run:
        check_same_pairs(folder.read_record(run_dir).get("corpora", {}), trainer.fingerprints, run_dir)
        monitor.message(f"warning: {run_dir} has no checkpoint (yet): its training begins at update 1")
    if group.first:
        if not found.is_run:
            folder.create_run(run_dir, config, tokenizers, command, trainer.fingerprints)
        elif trainer.progress.limit_reached(config.trainer) is None:  # settings of updates that are made
            folder.update_config(run_dir, config)
    group.wait()
    return trainer


def _cache_dir(data: DataConfig, run_dir: Path) -> Path:
    """Returns the folder of the encoded corpora: shared by all runs, or the run's own where that fails.

    Raises ValueError where the settings name one that cannot be used.
    """
    if data.cache_dir is not None:
        make_cache_dir(Path(data.cache_dir))  # before a tokenizer is trained, which may take minutes
        return Path(data.cache_dir)
    shared = Path(DEFAULT_CACHE_DIR)
    try:
        shared.mkdir(parents=True, exist_ok=True)
    except OSError:
        return run_dir / "cache"
    return shared if os.access(shared, os.W_OK) else run_dir / "cache"


def _encode(
    data: DataConfig, decode: DecodeConfig, tokenizers: TokenizerPair, run_dir: Path, group: Group, monitor: Monitor
) -> tuple[EncodedCorpus | StreamedCorpus, EncodedCorpus | None]:
    """Returns the training and the validation corpus. The first rank encodes them, the others read its cache."""
    if not group.first:
        group.wait()
    if is_streamed(data):
        train_corpus = StreamedCorpus(data, tokenizers, run_dir / _PARTS)
    else:
        train_corpus = encode_corpus(data.train, data, tokenizers, verify=group.first)
    valid_corpus = None
    if data.valid:
        valid_corpus = encode_corpus(data.valid, data, tokenizers, clean=False, split="valid", verify=group.first)
        empty = int(((valid_corpus.source_lengths == 0) | (valid_corpus.target_lengths == 0)).sum())
        if empty:
            monitor.message(f"warning: data.valid: {empty} of {len(valid_corpus)} pairs have an empty side")
        if long := int(too_long(valid_corpus, decode).sum()):
            monitor.message(
                f"warning: data.valid: {long} of {len(valid_corpus)} pairs have a side of more than "
                f"decode.max_source_tokens={decode.max_source_tokens} tokens: the loss leaves them out"
            )
    if group.first:
        group.wait()
    return train_corpus, valid_corpus


def _tokenizers(config: TrainConfig, data: DataConfig, monitor: Monitor) -> TokenizerPair:
    if config.init_from:
        parent = Path(config.init_from)
        tokenizers = folder.load_tokenizers(parent)
        folder.check_tokenizer(folder.read_state(folder.pointed(parent, "best")), tokenizers)
        return tokenizers
    return sampled_tokenizers(data, config.tokenizer, config.trainer.seed, monitor.message)


def _describe(trainer: Trainer, corpus: EncodedCorpus | StreamedCorpus, monitor: Monitor) -> None:
    if isinstance(corpus, EncodedCorpus):
        monitor.message(_described(corpus))
    parameters = sum(parameter.numel() for parameter in trainer.model.parameters())
    tokenizers, ranks = trainer.tokenizers, trainer.group.world_size
    if len(trainer.config.data.train) > 1 or len(trainer.stream.stages) > 1:
        for stage in trainer.stream.stages:
            monitor.message(stage.describe(list(trainer.config.data.train)))
    monitor.message(f"vocabulary: {tokenizers.source.size} source and {tokenizers.target.size} target pieces")
    where = str(trainer.device) if ranks == 1 else f"{ranks} ranks, this one on {trainer.device}"
    monitor.message(f"model: {parameters:,} parameters on {where}, {str(trainer.dtype).removeprefix('torch.')}")


def _warn_of(busy_cores: float, monitor: Monitor) -> None:
    if busy_cores > 0.4:
        monitor.message(
            f"warning: other programs keep {busy_cores:.1f} of this machine's cores busy: training shares them, and a "
            "limit of minutes will hold fewer updates"
        )


def _described(corpus: EncodedCorpus) -> str:
    dropped, repaired = (
        ", ".join(f"{count} {what}" for what, count in counts.most_common())
        for counts in (corpus.counts, corpus.repaired)
    )
    told = f"dropped: {dropped or 'none'}" + (f"; repaired: {repaired}" if repaired else "")
    return f"{len(corpus):,} training pairs ({told})"
