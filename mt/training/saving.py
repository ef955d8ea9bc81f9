"""Checkpoints on their way to the disk: written at once, or, of a model that ranks hold together, in the background."""

import shutil
import uuid
import warnings
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mt import checkpoint as folder
from mt.config import TrainerConfig
from mt.training.distributed import Group
from mt.training.monitor import Monitor

MODEL = "model."  # in front of the names of the model's own tensors, among those that are saved together


class Saver:
    """Writes the checkpoints of one run, with the pointers best and last; ranks have to call it alike."""

    def __init__(self, run_dir: Path, trainer: TrainerConfig, group: Group) -> None:
        self.run_dir, self.trainer, self.group = run_dir, trainer, group
        self._written: Future | None = None  # of the save on its way: each rank's share
        self._finished: Future | None = None  # and the checkpoint that the first rank makes of them
        self._thread = ThreadPoolExecutor(1, "saving")

    def save(
        self,
        weights: Mapping[str, Tensor],
        training: Mapping[str, Tensor],
        state: Mapping[str, Any],
        best: bool,
        monitor: Monitor,
    ) -> None:
        """Writes a checkpoint, to which `last` points, and `best` if it is. For the rank that writes."""
        step = state["progress"]["step"]
        saved = folder.save_checkpoint(self.run_dir, step, weights, training, state)
        folder.point(self.run_dir, "last", saved)
        if best:
            folder.point(self.run_dir, "best", saved)
        trainer = self.trainer
        folder.rotate(self.run_dir, trainer.keep_last_checkpoints, trainer.keep_best_checkpoints, trainer.best_metric)
        monitor.event("save", {"step": step, "checkpoint": saved.name})

    def save_shares(
        self,
        weights: Mapping[str, Tensor],
        names: Mapping[str, str],
        training: Mapping[str, Tensor],
        state: Mapping[str, Any],
        best: bool,
        monitor: Monitor,
    ) -> None:
        """Does the same for tensors that the ranks hold together, and returns as soon as each has copied its share.

        Each rank writes its share by a thread, and the first then makes an ordinary checkpoint of them, for which its
        host needs the memory of all. names: of the model's tensors, each with the one of `weights` that it is.
        """
        from torch.distributed import checkpoint as dcp

        self.wait()
        name = self.group.share(f".tmp-shares-{uuid.uuid4().hex}" if self.group.first else None)
        shares = self.run_dir / folder.CHECKPOINTS / name  # which nobody else writes to, not even a rank taken for lost
        tensors = {f"{MODEL}{name}": tensor for name, tensor in weights.items()} | dict(training)
        empty = {name: (tensor.shape, tensor.dtype) for name, tensor in tensors.items()}
        writer = dcp.HuggingFaceStorageWriter(str(shares), save_distributed=True)  # safetensors, where others pickle
        warnings.filterwarnings("ignore", "torch.distributed is disabled")  # of dcp.load by one rank, as is meant
        with self.group.watch():
            self._written = dcp.async_save(tensors, storage_writer=writer, process_group=self.group.saving)

        def finish(written: Future) -> None:
            written.result()
            whole = {name: torch.empty(shape, dtype=dtype) for name, (shape, dtype) in empty.items()}
            dcp.load(whole, storage_reader=dcp.HuggingFaceStorageReader(str(shares)), no_dist=True)
            model = {name: whole[MODEL + first] for name, first in names.items()}
            others = {name: tensor for name, tensor in whole.items() if not name.startswith(MODEL)}
            self.save(model, others, state, best, monitor)
            shutil.rmtree(shares)

        if self.group.first:
            self._finished = self._thread.submit(finish, self._written)

    def wait(self) -> None:
        """Returns when no save is on its way any more. Raises OSError where one failed."""
        if self._written is None:
            return
        from torch.distributed.checkpoint.api import CheckpointException

        try:
            with self.group.watch():
                self._written.result()
            if self._finished is not None:
                self._finished.result()
        except CheckpointException as error:
            reason = " ".join(str(next(iter(error.failures.values()), error)).split())
            raise OSError(f"{self.run_dir}: not saved ({reason}); earlier checkpoints are untouched") from error
        self._written = self._finished = None
