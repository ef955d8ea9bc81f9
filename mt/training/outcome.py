"""How an update came out, which a GPU tells after the host has gone on."""

import torch
from torch import Tensor

from mt.data.batch import Batch
from mt.data.encoded import EncodedCorpus
from mt.training.monitor import Monitor
from mt.training.progress import Progress

SKIPS_SHOWN = 3  # in a row, before only the 4th, 8th, 16th, ... are


class Outcome:
    """An update's gradient norm, on its way from the device, and where the update was, in case it has to be told."""

    def __init__(self, norm: Tensor, batches: list[Batch], epochs_done: float) -> None:
        self.batches, self.epochs_done = batches, epochs_done
        self._norm = norm.to("cpu", non_blocking=True)  # from a GPU into page-locked memory
        self._arrived: torch.cuda.Event | None = None
        if norm.device.type == "cuda":
            self._arrived = torch.cuda.Event()
            self._arrived.record()

    def norm(self) -> float:
        """Returns the gradient norm; waits until the device has come so far."""
        if self._arrived is not None:
            self._arrived.synchronize()
        return float(self._norm)

    def tell_of_skip(self, progress: Progress, corpus: EncodedCorpus, limit: int, monitor: Monitor) -> None:
        """Warns that the update, counted in `progress`, was left out; raises ValueError after `limit` in a row."""
        pairs = [pair for batch in self.batches for pair in batch.pairs]
        first = repr(corpus.texts(pairs[0])[0][:60]) if pairs else "none"
        where = f"update {progress.step + 1}, epoch {self.epochs_done:.2f}, {len(pairs)} pairs, the first {first}"
        row = progress.skipped_in_a_row
        if row <= SKIPS_SHOWN or row & (row - 1) == 0:
            monitor.message(f"warning: gradients are not finite at {where}: this update is left out ({row} in a row)")
        if row >= limit:
            raise ValueError(
                f"gradients were not finite in {row} updates in a row, the last at {where}: lower optim.lr or use "
                f"trainer.precision=float32 (trainer.max_skipped_steps={limit}); the last checkpoint is unharmed"
            )
