"""The training loop: batches in, updates out, validation and checkpoints on the way."""

import dataclasses
import math
import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from mt import checkpoint as folder
from mt.config import TrainConfig
from mt.data.batch import Batch
from mt.data.encoded import EncodedCorpus
from mt.model.attention import attend_varlen, choose_attend
from mt.model.transformer import Transformer
from mt.tokenizer import TokenizerPair
from mt.training.loss import smoothed_cross_entropy
from mt.training.monitor import Monitor
from mt.training.optim import Optimizer, clip_gradients
from mt.training.schedule import learning_rate_factor
from mt.training.signals import StopRequest
from mt.training.stream import BatchStream
from mt.training.validation import validate
from mt.translation.translator import Translator

FIRST_LOSS_SCALE = 2.0**16
UPDATES_PER_LOSS_SCALE_DOUBLING = 2000


@dataclass
class Progress:
    """Where a run stands; stored with each checkpoint."""

    step: int = 0  # updates applied
    skipped_steps: int = 0  # updates left out for non-finite gradients
    skipped_in_a_row: int = 0
    seconds: float = 0.0  # of training, validation included, over all sessions
    epoch: int = 0  # of the next batch
    next_batch: int = 0
    best_value: float | None = None
    best_step: int = 0
    validations_without_improvement: int = 0
    loss_scale: float = 1.0  # what an fp16 loss is multiplied with
    finished: bool = False


@dataclass(frozen=True)
class TrainResult:
    """What a call of train did."""

    run_dir: Path
    steps: int
    metrics: dict[str, float]  # of the last validation: loss, perplexity, bleu, chrf
    stopped_by: str  # "max_steps", "max_epochs", "max_minutes", "early_stopping", or the name of a signal
    finished: bool  # False: the same command with resume=true goes on


def precision_of(name: str, device: torch.device) -> torch.dtype:
    """Returns the type that matrix products run in; auto is bf16 on a GPU that has it, else float32."""
    if name == "auto":
        return torch.bfloat16 if device.type == "cuda" and torch.cuda.is_bf16_supported() else torch.float32
    return {"float32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[name]


class Trainer:
    """One run over one corpus. `fit` trains until a limit, a signal or early stopping."""

    def __init__(
        self,
        config: TrainConfig,
        run_dir: Path,
        device: torch.device,
        tokenizers: TokenizerPair,
        train_corpus: EncodedCorpus,
        valid_corpus: EncodedCorpus | None,
    ) -> None:
        self.config, self.run_dir, self.device, self.tokenizers = config, run_dir, device, tokenizers
        self.valid_corpus = valid_corpus
        torch.manual_seed(config.trainer.seed)
        self.model = Transformer(config.model, tokenizers.source.size, tokenizers.target.size).to(device)
        self.dtype = precision_of(config.trainer.precision, device)
        self.model.attend = choose_attend(device, self.dtype, config.model.d_model // config.model.n_heads)
        self.forward = self.model
        if config.trainer.compile:
            if (
                self.model.attend is not attend_varlen
            ):  # the others work from sentence lengths, which differ in each batch
                self.model.attend = torch.compiler.disable(self.model.attend)
            self.forward = torch.compile(self.model, dynamic=True)
        self.optimizer = Optimizer(self.model, config.optim)
        self.stream = BatchStream(train_corpus, tokenizers, config.trainer, config.data.strip_final_stop_probability)
        self.progress = Progress(loss_scale=FIRST_LOSS_SCALE if self.dtype == torch.float16 else 1.0)
        self.metrics: dict[str, float] = {}
        self.average: dict[str, Tensor] | None = None  # exponential moving average of the weights
        if config.trainer.ema_decay:
            self.average = {name: weight.clone() for name, weight in self.model.weights().items()}
        decode = dataclasses.replace(config.decode, beam_size=config.trainer.validation_beam_size)
        self.translator = Translator(self.model, tokenizers, decode)

    def fit(self, monitor: Monitor, stop: StopRequest) -> TrainResult:
        """Returns when a limit is reached or a stop is asked for; the state is saved by then."""
        trainer, progress = self.config.trainer, self.progress
        session_start, seconds_before = time.monotonic(), progress.seconds
        window_start, window_tokens, window_loss, window_targets = time.monotonic(), 0, 0.0, 0
        validated_at = progress.step
        self.model.train()
        while True:
            progress.seconds = seconds_before + time.monotonic() - session_start
            stopped_by = stop.received or self._limit_reached()
            if stopped_by:
                break
            batches = self.stream.next_window()
            progress.epoch, progress.next_batch = self.stream.epoch, self.stream.next_batch
            loss, norm = self.train_step(batches, monitor)
            window_targets += sum(batch.target_tokens for batch in batches)
            window_tokens += sum(batch.target_tokens + batch.source_tokens for batch in batches)
            window_loss += loss
            due = progress.step == 1 or progress.step % trainer.log_every_steps == 0  # the first: a sign of life
            if due and progress.skipped_in_a_row == 0:
                now = time.monotonic()
                values = {
                    "loss": window_loss / window_targets,
                    "tokens_per_second": window_tokens / max(now - window_start, 1e-9),
                    "learning_rate": self._factor(progress.step) * self.config.optim.lr,
                    "gradient_norm": norm,
                    "epoch": self.stream.epochs_done,
                    "seconds": progress.seconds,
                }
                monitor.train(progress.step, values, self._done())
                window_start, window_tokens, window_loss, window_targets = now, 0, 0.0, 0
            if progress.step % trainer.validate_every_steps == 0 and progress.step > validated_at:
                validated_at = progress.step
                pause = time.monotonic()
                self.validate_and_save(monitor)
                window_start += time.monotonic() - pause
        progress.finished = stopped_by != stop.received
        if progress.step > validated_at and progress.finished:
            self.validate_and_save(monitor)
        else:
            self.save(monitor)
        if not progress.finished:
            monitor.message(
                f"stopped by {stopped_by} and saved in {self.run_dir}; the same command with resume=true goes on"
            )
        monitor.event("stop", {"reason": stopped_by, "step": progress.step, "finished": progress.finished})
        return TrainResult(self.run_dir, progress.step, self.metrics, stopped_by, progress.finished)

    def train_step(self, batches: list[Batch], monitor: Monitor) -> tuple[float, float]:
        """Returns the summed loss without smoothing and the gradient norm, after one update from these micro-batches.

        Each micro-batch's summed loss is divided by the tokens of all, so how they are cut changes nothing.
        """
        tokens = sum(batch.target_tokens for batch in batches)
        total = torch.zeros((), device=self.device)
        for batch in batches:
            batch = batch.to(self.device)
            with self._autocast():
                hidden = self.forward(batch.source, batch.source_layout, batch.target_input, batch.target_layout)
                loss = smoothed_cross_entropy(
                    hidden,
                    self.model.output_table,
                    batch.target_output,
                    self.config.optim.label_smoothing,
                    batch.target_tokens,
                )
            (loss.smoothed * (self.progress.loss_scale / tokens)).backward()
            total += loss.negative_log_likelihood
        return float(total), self._update(monitor, batches)

    def _update(self, monitor: Monitor, batches: list[Batch]) -> float:
        """Returns the gradient norm; applies the gradients if it is finite, else leaves everything as it was."""
        progress = self.progress
        if progress.loss_scale != 1.0:
            for parameter in self.model.parameters():
                if parameter.grad is not None:
                    parameter.grad.div_(progress.loss_scale)
        norm = float(clip_gradients(self.model, self.config.optim.clip_norm))
        if math.isfinite(norm):
            self.optimizer.step(self._factor(progress.step + 1))
            progress.step += 1
            progress.skipped_in_a_row = 0
            if self.average is not None:
                decay = min(self.config.trainer.ema_decay, (1 + progress.step) / (10 + progress.step))
                for name, weight in self.model.weights().items():
                    self.average[name].lerp_(weight, 1 - decay)
        else:
            progress.skipped_steps += 1
            progress.skipped_in_a_row += 1
            pairs = [pair for batch in batches for pair in batch.pairs[:3]]
            where = f"update {progress.step + 1}, epoch {progress.epoch}, pairs {pairs[:6]}…"
            monitor.message(f"warning: gradients are not finite at {where}: this update is left out")
            if progress.skipped_in_a_row >= self.config.trainer.max_skipped_steps:
                raise ValueError(
                    f"gradients were not finite in {progress.skipped_in_a_row} updates in a row, the last at {where}: "
                    f"lower optim.lr or use trainer.precision=float32 (trainer.max_skipped_steps="
                    f"{self.config.trainer.max_skipped_steps}); the last checkpoint is unharmed"
                )
        if self.dtype == torch.float16:
            self._adapt_loss_scale(math.isfinite(norm))
        self.model.zero_grad(set_to_none=True)
        return norm

    def _adapt_loss_scale(self, finite: bool) -> None:
        """fp16 gradients underflow unless the loss is scaled: halve on overflow, double after many good updates."""
        if not finite:
            self.progress.loss_scale = max(self.progress.loss_scale / 2, 1.0)
        elif self.progress.step % UPDATES_PER_LOSS_SCALE_DOUBLING == 0:
            self.progress.loss_scale *= 2

    def validate_and_save(self, monitor: Monitor) -> None:
        """Scores the model (the moving average where there is one), saves, and notes whether it is the best so far."""
        progress, metric = self.progress, self.config.trainer.best_metric
        if self.valid_corpus is None:
            self.save(monitor)
            return
        own = self._swap_in(self.average)
        result = validate(self.model, self.translator, self.valid_corpus, self.config, self._autocast())
        self._swap_in(own)
        self.metrics = result.values
        monitor.validation(progress.step, result.values, result.samples)
        value = result.values[metric] * (-1 if metric == "loss" else 1)
        better = math.isfinite(value) and (progress.best_value is None or value > progress.best_value)
        if better:
            progress.best_value, progress.best_step = value, progress.step
        progress.validations_without_improvement = 0 if better else progress.validations_without_improvement + 1
        saved = self.save(monitor, result.signatures)
        if better:
            folder.point(self.run_dir, "best", saved)
        folder.rotate(self.run_dir, self.config.trainer.keep_last_checkpoints)

    def save(self, monitor: Monitor, signatures: dict[str, str] | None = None) -> Path:
        """Returns the checkpoint just written, which `last` points to; `best` too where none was chosen yet."""
        weights = dict(self.model.state_dict())
        training = {**self.optimizer.tensors(), "rng.cpu": torch.get_rng_state()}
        if self.device.type == "cuda":
            training["rng.cuda"] = torch.cuda.get_rng_state(self.device)
        if self.average is not None:
            training |= {f"weights.{name}": weight for name, weight in weights.items()}
            first = {weight.data_ptr(): name for name, weight in reversed(self.model.weights().items())}
            weights = {name: self.average[first[weight.data_ptr()]] for name, weight in weights.items()}
        state = {
            "progress": vars(self.progress),
            "finished": self.progress.finished,
            "metrics": self.metrics,
            "signatures": signatures or {},
            "model": dataclasses.asdict(self.config.model),
            "tokenizer_fingerprint": self.tokenizers.fingerprint,
            "corpus_fingerprint": self.stream.corpus.fingerprint,
        }
        saved = folder.save_checkpoint(self.run_dir, self.progress.step, weights, training, state)
        folder.point(self.run_dir, "last", saved)
        if self.progress.best_value is None:  # not validated yet
            folder.point(self.run_dir, "best", saved)
        monitor.event("save", {"step": self.progress.step, "checkpoint": saved.name})
        return saved

    def restore(self, saved: Path) -> None:
        """Takes back what `save` wrote, so that training goes on as if it had never stopped."""
        tensors, state = folder.read_training(saved)
        weights = folder.read_weights(saved)
        if self.average is not None:
            self.average = {name: weights[name].to(self.device) for name in self.model.weights()}
            weights = {n.removeprefix("weights."): w for n, w in tensors.items() if n.startswith("weights.")} or weights
        folder.copy_weights(self.model, weights, saved)
        self.optimizer.load_tensors(tensors)
        torch.set_rng_state(tensors["rng.cpu"])
        if self.device.type == "cuda" and "rng.cuda" in tensors:
            torch.cuda.set_rng_state(tensors["rng.cuda"], self.device)
        self.progress = Progress(**state["progress"])
        self.metrics = state["metrics"]
        self.stream.epoch, self.stream.next_batch = self.progress.epoch, self.progress.next_batch

    def _swap_in(self, weights: dict[str, Tensor] | None) -> dict[str, Tensor] | None:
        """Returns copies of the present weights after replacing them by others; None changes nothing."""
        if weights is None:
            return None
        own = {name: weight.clone() for name, weight in self.model.weights().items()}
        for name, weight in self.model.weights().items():
            weight.copy_(weights[name])
        return own

    def _autocast(self) -> AbstractContextManager:
        if self.dtype == torch.float32:
            return nullcontext()
        return torch.autocast(self.device.type, self.dtype)

    def _done(self) -> float:
        """Returns the share (0 to 1) of the first limit that is used up."""
        trainer, progress = self.config.trainer, self.progress
        shares = [0.0]
        if trainer.max_steps:
            shares.append(progress.step / trainer.max_steps)
        if trainer.max_epochs:
            shares.append(self.stream.epochs_done / trainer.max_epochs)
        if trainer.max_minutes:
            shares.append(progress.seconds / 60 / trainer.max_minutes)
        return min(max(shares), 1.0)

    def _factor(self, step: int) -> float:
        return learning_rate_factor(self.config.optim, step, self._done(), self.config.model.d_model)

    def _limit_reached(self) -> str | None:
        trainer, progress = self.config.trainer, self.progress
        if trainer.max_steps and progress.step >= trainer.max_steps:
            return "max_steps"
        if trainer.max_epochs and self.stream.epochs_done >= trainer.max_epochs:
            return "max_epochs"
        if trainer.max_minutes and progress.seconds >= trainer.max_minutes * 60:
            return "max_minutes"
        patience = trainer.early_stopping_patience
        if patience and progress.validations_without_improvement >= patience:
            return "early_stopping"
        return None
