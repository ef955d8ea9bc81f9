"""Where a run stands, when it ends, and what it reports about its speed."""

import time
from dataclasses import dataclass, field
from pathlib import Path

from torch import Tensor

from mt.config import TrainerConfig


@dataclass
class Progress:
    """Where a run stands; stored with each checkpoint."""

    step: int = 0  # updates applied
    skipped_steps: int = 0  # updates left out for non-finite gradients
    skipped_in_a_row: int = 0
    seconds: float = 0.0  # of training, validation included, over all sessions
    epoch: int = 0  # of the next micro-batch
    next_batch: int = 0  # its number in the epoch's plan
    epochs_done: float = 0.0  # as a fraction
    batches_per_update: int = 1  # micro-batches, over all ranks
    validated_step: int = 0
    best_value: float | None = None
    best_step: int = 0
    validations_without_improvement: int = 0
    loss_scale: float = 1.0  # what an fp16 loss is multiplied with
    finished: bool = False

    def __post_init__(self) -> None:
        counts = (self.step, self.skipped_steps, self.epoch, self.next_batch, self.validated_step, self.best_step)
        if min(counts) < 0 or self.batches_per_update < 1 or self.seconds < 0:
            raise ValueError("progress: counts must be 0 or more, and batches_per_update at least 1")

    def share(self, limits: TrainerConfig) -> float:
        """Returns the share (0 to 1) of the first limit that is used up."""
        shares = [0.0]
        if limits.max_steps:
            shares.append(self.step / limits.max_steps)
        if limits.max_epochs:
            shares.append(self.epochs_done / limits.max_epochs)
        if limits.max_minutes:
            shares.append(self.seconds / 60 / limits.max_minutes)
        return min(max(shares), 1.0)

    def limit_reached(self, limits: TrainerConfig) -> str | None:
        """Returns the name of the limit that ends the run, or None while it goes on."""
        if limits.max_steps and self.step >= limits.max_steps:
            return "max_steps"
        if limits.max_epochs and self.epochs_done >= limits.max_epochs:
            return "max_epochs"
        if limits.max_minutes and self.seconds >= limits.max_minutes * 60:
            return "max_minutes"
        if limits.early_stopping_patience and self.validations_without_improvement >= limits.early_stopping_patience:
            return "early_stopping"
        return None


@dataclass(frozen=True)
class TrainResult:
    """What a call of train did."""

    run_dir: Path
    steps: int
    metrics: dict[str, float]  # of the last validation: loss, perplexity, bleu, chrf
    # a limit ("max_steps", "early_stopping", ...), the name of a signal, or "max_session_minutes"; None: ended before
    stopped_by: str | None
    finished: bool  # False: the same command goes on
    skipped_steps: int = 0  # updates left out for non-finite gradients


@dataclass
class Meter:
    """Sums over the updates since the last report, of this rank; time in validation and saving is left out."""

    start: float = field(default_factory=time.monotonic)
    loss: float | Tensor = 0.0  # from a GPU a scalar, which is read for the report only
    source_tokens: int = 0
    target_tokens: int = 0

    def sums(self) -> list[float]:
        return [float(self.loss), float(self.source_tokens), float(self.target_tokens)]
