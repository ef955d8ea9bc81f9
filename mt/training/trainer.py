"""The training loop: batches in, updates out, validation and checkpoints on the way."""

import dataclasses
import math
import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import torch
from torch import Tensor

from mt import checkpoint as folder
from mt.config import TrainConfig
from mt.data.batch import Batch, nothing_asked
from mt.data.encoded import EncodedCorpus
from mt.data.streamed import StreamedCorpus
from mt.mapping import from_mapping, to_mapping
from mt.model.attention import attend_varlen, choose_attend
from mt.model.device import precision_of
from mt.model.dropout import seed_dropout
from mt.model.transformer import Transformer
from mt.tensors import fill, find_not_finite, own_part
from mt.tokenizer import TokenizerPair
from mt.training.distributed import Group, without_sync
from mt.training.lanes import Lanes, pieces_of
from mt.training.loss import PairLoss
from mt.training.monitor import Monitor
from mt.training.optim import Optimizer, clip_gradients
from mt.training.outcome import Outcome
from mt.training.parts import open_stream
from mt.training.progress import Meter, Progress, TrainResult
from mt.training.resume import check_same_pairs
from mt.training.saving import Saver
from mt.training.schedule import learning_rate_factor, long_warmup
from mt.training.sharding import of_weights, parallel, sharing_ranks
from mt.training.signals import StopRequest
from mt.training.validation import report, validate, validation_decode
from mt.translation.translator import Translator

FIRST_LOSS_SCALE = 2.0**16
UPDATES_PER_LOSS_SCALE_DOUBLING = 2000
SILENCE_SECONDS = 30.0  # after which a report is due, however few updates there were


class Trainer:
    """One run over one corpus. `fit` trains until a limit, a signal or early stopping.

    Every rank of the group has one; they see disjoint micro-batches of the same update and hold equal weights.
    """

    def __init__(
        self,
        config: TrainConfig,
        run_dir: Path,
        device: torch.device,
        tokenizers: TokenizerPair,
        train_corpus: EncodedCorpus | StreamedCorpus,
        valid_corpus: EncodedCorpus | None,
        group: Group,
    ) -> None:
        self.config, self.run_dir, self.device, self.tokenizers = config, run_dir, device, tokenizers
        self.valid_corpus, self.group = valid_corpus, group
        torch.manual_seed(config.trainer.seed)
        self.sharded = sharing_ranks(config.trainer, group) > 1  # and so the ranks have to do all passes together
        self.model = Transformer(config.model, tokenizers.source.size, tokenizers.target.size)
        self.model.checkpoint_activations = config.trainer.checkpoint_activations
        if not self.sharded:  # else each layer goes there for itself
            self.model.to(device)
        self.dtype = precision_of(config.trainer.precision, device)
        self.model.attend = choose_attend(device, self.dtype, config.model.d_model // config.model.n_heads)
        compiled = config.trainer.compile
        if compiled and (self.model.attend is not attend_varlen or config.model.attention_dropout):
            # the others work from sentence lengths, which differ in each batch
            self.model.attend = torch.compiler.disable(self.model.attend)
        pair_loss = PairLoss(self.model, config.optim.label_smoothing, config.optim.r_drop, compiled)
        self.pair_loss = parallel(pair_loss, group, device, config.trainer)
        threads = torch.get_num_threads() if device.type == "cpu" and group.world_size == 1 else 1
        self.lanes = Lanes(pair_loss, threads) if threads > 1 else None
        self.optimizer = Optimizer(self.model, config.optim)
        self.progress = Progress(
            loss_scale=FIRST_LOSS_SCALE if self.dtype == torch.float16 else 1.0,
            batches_per_update=config.trainer.accumulate_batches * group.world_size,
        )
        on_gpu, per_update = device.type == "cuda", self.progress.batches_per_update
        self.stream = open_stream(train_corpus, tokenizers, config, per_update, group, on_gpu, pair_loss.repeating)
        self.fingerprints = {"train": train_corpus.fingerprint, "valid": valid_corpus and valid_corpus.fingerprint}
        self.metrics: dict[str, float] = {}
        self.signatures: dict[str, str] = {}  # of the metrics
        self.average: dict[str, Tensor] | None = None  # exponential moving average of the weights
        if config.trainer.ema_decay:
            self.average = {name: weight.clone() for name, weight in self.model.weights().items()}
        self.saver = Saver(run_dir, config.trainer, group)
        # a GPU is not waited for: what became of an update is asked when the next one's work is queued
        self.runs_ahead = on_gpu and self.dtype != torch.float16  # whose loss scale must be known
        self._outcome: Outcome | None = None
        self._most_batches = 1  # of the present update that a rank has
        self._session_start, self._seconds_before = time.monotonic(), 0.0
        self._saved_step, self._saved_seconds, self._reported_seconds = -1, 0.0, 0.0
        self._warmup_unjudged = True

    def fit(self, monitor: Monitor, stop: StopRequest) -> TrainResult:
        """Returns when a limit is reached or a stop is asked for; the state is saved by then."""
        trainer, progress, meter = self.config.trainer, self.progress, Meter()
        self._session_start, self._seconds_before = time.monotonic(), progress.seconds
        self._saved_seconds = self._reported_seconds = progress.seconds
        asked_to_stop, begun = None, progress.step
        self.model.train()
        while not (stopped_by := asked_to_stop or progress.limit_reached(trainer)):
            window = self.stream.next_window()
            for note in window.notes:
                monitor.message(note)
            tokens, asked_to_stop = self._agree(window.batches, stop)
            progress.epoch, progress.next_batch = window.epoch, window.next_batch
            progress.epochs_done = window.epochs_done
            with self.group.watch():
                loss, norm = self.train_step(window.batches, tokens, monitor)
            meter.loss += loss
            meter.source_tokens += sum(batch.source_tokens for batch in window.batches)
            meter.target_tokens += sum(batch.target_tokens for batch in window.batches)
            report = progress.step == 1 or progress.step % trainer.log_every_steps == 0  # the first: a sign of life
            report = report or progress.seconds - self._reported_seconds >= SILENCE_SECONDS
            validation, save = progress.step % trainer.validate_every_steps == 0, self._save_is_due()
            if report or validation or save or progress.limit_reached(trainer):
                self._settle(monitor)
            if progress.skipped_in_a_row:
                continue
            if report:
                self._report(meter, float(norm), monitor)
                meter = Meter()
            pause = time.monotonic()
            if validation:
                self.validate_and_save(monitor)
            elif save:
                self._check_finite()
                self.save(monitor)
            meter.start += time.monotonic() - pause
        self.stream.close()
        self._settle(monitor)
        finished = stopped_by != asked_to_stop
        if finished and progress.step > begun:
            self._judge_warmup(monitor)
        if finished and progress.validated_step < progress.step:
            self.validate_and_save(monitor)
        elif self._saved_step < progress.step or finished != progress.finished:
            self._check_finite()
            self.save(monitor)
        self.saver.wait()
        if not finished:
            last = folder.pointed(self.run_dir, "last") if self.group.first else self.run_dir
            monitor.message(f"stopped by {stopped_by} and saved in {last}; the same command goes on")
        monitor.event("stop", {"reason": stopped_by, "step": progress.step, "finished": finished})
        return TrainResult(self.run_dir, progress.step, self.metrics, stopped_by, finished, progress.skipped_steps)

    def _agree(self, batches: list[Batch], stop: StopRequest) -> tuple[int, str | None]:
        """Returns the target tokens of the update over all ranks, and the stop that any rank was asked for.

        The slowest rank's clock counts for all, so that limits and rates are the same everywhere.
        """
        tokens = sum(batch.target_tokens for batch in batches)
        table = self.group.table([tokens, self._seconds(), stop.number(), len(batches)])
        self.progress.seconds, self._most_batches = float(table[:, 1].max()), int(table[:, 3].max())
        return int(table[:, 0].sum()), StopRequest.name_of(int(table[:, 2].max()))

    def _save_is_due(self) -> bool:
        trainer, progress = self.config.trainer, self.progress
        if trainer.save_every_steps and progress.step % trainer.save_every_steps == 0:
            return True
        minutes = trainer.save_every_minutes  # by the clock that all ranks agreed on
        return minutes is not None and progress.seconds - self._saved_seconds >= minutes * 60

    def _check_finite(self) -> None:
        """Raises ValueError where the weights are no longer numbers, so that they are never saved."""
        own = find_not_finite({name: own_part(weight) for name, weight in self.model.weights().items()})
        if name := next(filter(None, self.group.gather(own) if self.sharded else [own]), None):
            raise ValueError(
                f"{name} holds NaN or infinity after update {self.progress.step}: lower optim.lr, or raise optim.eps; "
                "the last checkpoint is unharmed"
            )

    def _seconds(self) -> float:
        """Returns the seconds of all sessions by this rank's clock."""
        return self._seconds_before + time.monotonic() - self._session_start

    def _report(self, meter: Meter, norm: float, monitor: Monitor) -> None:
        progress = self.progress
        self._reported_seconds = progress.seconds
        loss, source_tokens, target_tokens = self.group.table(meter.sums()).sum(0).tolist()
        values = {
            "loss": loss / target_tokens,
            "tokens_per_second": (source_tokens + target_tokens) / max(time.monotonic() - meter.start, 1e-9),
            "learning_rate": self._factor(progress.step) * self.config.optim.lr,
            "gradient_norm": norm,
            "epoch": progress.epochs_done,
            "seconds": self._seconds(),
        }
        monitor.train(progress.step, values, progress.share(self.config.trainer))
        if progress.step > 1:  # the first says little about the speed
            self._judge_warmup(monitor)

    def _judge_warmup(self, monitor: Monitor) -> None:
        share, unjudged, self._warmup_unjudged = self.progress.share(self.config.trainer), self._warmup_unjudged, False
        if unjudged and (warning := long_warmup(self.config.optim, self.progress.step, share)):
            monitor.message(warning)

    def train_step(self, batches: list[Batch], tokens: int, monitor: Monitor) -> tuple[float | Tensor, float | Tensor]:
        """Returns this rank's summed loss without smoothing and the gradient norm, of a GPU as tensors.

        batches: this rank's micro-batches. tokens: the target tokens of the update over all micro-batches and ranks;
        each summed loss is divided by it, so how an update is cut changes nothing.
        """
        total = torch.zeros((), device=self.device)
        batches = batches or [nothing_asked(self.stream.stream_tokens)]
        pieces, of_batch = batches, 1
        if self.device.type == "cpu":  # however many threads or ranks there are, so that all draw the same masks
            of_batch = pieces_of(self.config.trainer.batch_tokens)
            pieces = [piece for batch in batches for piece in batch.split(of_batch)]
        if self.sharded:
            pieces += [nothing_asked(self.stream.stream_tokens)] * (self._most_batches * of_batch - len(pieces))
        # data parallelism averages over the ranks, where a sum is wanted
        scale = self.progress.loss_scale * self.group.world_size / tokens
        if self.lanes is not None:
            total += self.lanes.backward(pieces, scale, self._autocast)
        else:
            for number, piece in enumerate(pieces, start=1):
                seed_dropout(self.model, piece.dropout_seed)
                last = number == len(pieces)
                with nullcontext() if last else without_sync(self.pair_loss):
                    with self._autocast():
                        loss = self.pair_loss(piece.to(self.device))
                    (loss.smoothed * scale).backward()
                total += loss.negative_log_likelihood
        self.model.leave_out_key_biases()
        return total.double() if self.runs_ahead else float(total), self._update(monitor, batches)

    def _update(self, monitor: Monitor, batches: list[Batch]) -> float | Tensor:
        """Returns the gradient norm; applies the gradients if it is finite, else leaves everything as it was.

        Where the host runs ahead, the device decides, the step is counted at once, and `_settle` takes it back later.
        """
        self._settle(monitor)
        progress = self.progress
        if progress.loss_scale != 1.0:
            for parameter in self.model.parameters():
                if parameter.grad is not None:
                    parameter.grad.div_(progress.loss_scale)
        norm = clip_gradients(self.model, self.config.optim.clip_norm)
        self._outcome = Outcome(norm, batches, progress.epochs_done)
        if self.runs_ahead:
            self._apply((~norm.isfinite()).float())
        else:
            norm = self._outcome.norm()
            if math.isfinite(norm):
                self._apply(None)
            self._settle(monitor)
            if self.dtype == torch.float16:
                self._adapt_loss_scale(math.isfinite(norm))
        self.model.zero_grad(set_to_none=True)
        return norm

    def _apply(self, skip: Tensor | None) -> None:
        """Makes a step of the optimizer and of the moving average, unless `skip` (scalar float32) is 1."""
        progress = self.progress
        self.optimizer.step(self._factor(progress.step + 1), skip)
        progress.step += 1
        if self.average is not None:
            share = 1 - min(self.config.trainer.ema_decay, (1 + progress.step) / (10 + progress.step))
            for name, weight in self.model.weights().items():
                own_part(self.average[name]).lerp_(own_part(weight), share if skip is None else share * (1 - skip))

    def _settle(self, monitor: Monitor) -> None:
        """Counts and tells how the last update came out; waits for the device where that is not known yet."""
        outcome, self._outcome = self._outcome, None
        if outcome is None:
            return
        progress = self.progress
        if math.isfinite(outcome.norm()):
            progress.skipped_in_a_row = 0
            return
        progress.step -= self.runs_ahead
        progress.skipped_steps += 1
        progress.skipped_in_a_row += 1
        outcome.tell_of_skip(progress, self.stream.corpus, self.config.trainer.max_skipped_steps, monitor)

    def _adapt_loss_scale(self, finite: bool) -> None:
        """fp16 gradients underflow unless the loss is scaled: halve on overflow, double after many good updates."""
        if not finite:
            self.progress.loss_scale = max(self.progress.loss_scale / 2, 1.0)
        elif self.progress.step % UPDATES_PER_LOSS_SCALE_DOUBLING == 0:
            self.progress.loss_scale *= 2

    def validate_and_save(self, monitor: Monitor) -> None:
        """Scores the model (the moving average where there is one), saves, and notes whether it is the best so far."""
        progress, trainer = self.progress, self.config.trainer
        self._check_finite()
        progress.validated_step = progress.step
        better = False
        if self.valid_corpus is not None:
            with self.group.watch(), of_weights(self.model, self.average, self.sharded, self.device) as model:
                translator = Translator(model, self.tokenizers, validation_decode(self.config))
                result = validate(model, translator, self.valid_corpus, self.config, self._autocast(), self.group)
                report(monitor, progress.step, result, translator)
            self.metrics, self.signatures = result.values, result.signatures
            value = result.values[trainer.best_metric] * (-1 if trainer.best_metric == "loss" else 1)
            better = math.isfinite(value) and math.isfinite(result.values["loss"])
            better = better and (progress.best_value is None or value > progress.best_value)
            if better:
                progress.best_value, progress.best_step = value, progress.step
            progress.validations_without_improvement = 0 if better else progress.validations_without_improvement + 1
        self.save(monitor)

    def save(self, monitor: Monitor) -> None:
        """Writes a checkpoint, to which `last` points; `best` too where it is the best or none was chosen yet."""
        progress = self.progress
        self._saved_step, self._saved_seconds = progress.step, progress.seconds
        validated = progress.validated_step == progress.step
        progress.finished = validated and progress.limit_reached(self.config.trainer) is not None
        strands = self.stream.saved(self.group)
        if not self.group.first and not self.sharded:
            return
        weights, names = self.model.weights(), self.model.names()
        training = self.optimizer.tensors()
        if self.average is not None:
            training |= {f"weights.{name}": weight for name, weight in weights.items()}
            weights = self.average
        state = {
            "progress": {**vars(progress), "seconds": self._seconds()},
            "finished": progress.finished,
            "vocabulary": {"source": self.tokenizers.source.size, "target": self.tokenizers.target.size},
            "metrics": self.metrics if validated else {},
            "last_metrics": self.metrics,
            "signatures": self.signatures,
            "model": dataclasses.asdict(self.config.model),
            "config": to_mapping(self.config),
            "tokenizer_fingerprint": self.tokenizers.fingerprint,
            "corpora": self.fingerprints,
            "strands": strands,
            "run": folder.read_record(self.run_dir).get("run"),
        }
        best = progress.best_value is None or progress.best_step == progress.step
        if self.sharded:
            self.saver.save_shares(weights, names, training, state, best, monitor)
        else:
            weights = {name: weights[first] for name, first in names.items()}
            self.saver.save(weights, training, state, best, monitor)

    def restore(self, saved: Path, monitor: Monitor) -> None:
        """Takes back what `save` wrote, so that training goes on as if it had never stopped."""
        tensors, state = folder.read_training(saved, verify=False)  # newest_readable did it
        folder.check_tokenizer(state, self.tokenizers)
        for key in ("progress", "corpora", "config", "last_metrics", "signatures"):
            if not isinstance(state.get(key), dict):
                raise ValueError(f"{saved}/state.json: damaged ({key} is missing); remove this checkpoint")
        check_same_pairs(state["corpora"], self.fingerprints, self.run_dir)
        progress = from_mapping(Progress, state["progress"], f"{saved}/state.json: progress")
        weights = folder.read_weights(saved, verify=False)
        for name, average in (self.average or {}).items():
            fill(average, weights[name])
        weights = {n.removeprefix("weights."): w for n, w in tensors.items() if n.startswith("weights.")} or weights
        folder.copy_weights(self.model, weights, saved)
        self.optimizer.load_tensors(tensors)
        if (name := find_not_finite(weights)) is not None:
            raise ValueError(f"{saved}: {name} holds NaN or infinity; remove it to go on from the checkpoint before")
        batches_per_update = self.progress.batches_per_update
        self.progress = progress
        self.progress.finished = False
        self.metrics, self.signatures = state["last_metrics"], state["signatures"]
        self._saved_step = self.progress.step
        self._keep_place(state, batches_per_update, monitor)
        if self.group.first:  # a kill may have come between a save and its pointers; a damaged save is passed over
            folder.point(self.run_dir, "last", saved)
            best = saved.with_name(f"step_{self.progress.best_step:08d}")
            folder.point(self.run_dir, "best", best if best.is_dir() else saved)

    def _keep_place(self, state: dict, batches_per_update: int, monitor: Monitor) -> None:
        """Moves the stream to where it was saved, whatever the number of ranks and the batches are now."""
        progress, trainer, before = self.progress, self.config.trainer, state["config"]["trainer"]
        if trainer.accumulate_batches != before["accumulate_batches"]:
            progress.batches_per_update = batches_per_update
        elif batches_per_update != progress.batches_per_update:
            monitor.message(
                f"the number of ranks is {self.group.world_size} now: an update keeps its "
                f"{progress.batches_per_update} micro-batches"
            )
        changed = [n for n in ("batch_tokens", "shuffle_pool_batches") if getattr(trainer, n) != before[n]]
        if changed and progress.next_batch:
            rest = f"the rest of epoch {progress.epoch + 1} is left out, epoch {progress.epoch + 2} begins"
            rest = "the parts of the stream begin anew" if state.get("strands") else rest
            monitor.message(f"trainer.{changed[0]} changed, and with it the batches: {rest}")
            progress.epoch, progress.next_batch, progress.epochs_done = progress.epoch + 1, 0, progress.epoch + 1.0
        self.stream.batches_per_update = progress.batches_per_update
        self.stream.restore(state.get("strands", []))
        self.stream.seek(progress.epoch, progress.next_batch, progress.step + progress.skipped_steps)

    def _autocast(self) -> AbstractContextManager:
        if self.dtype == torch.float32:
            return nullcontext()
        return torch.autocast(self.device.type, self.dtype)

    def _factor(self, step: int) -> float:
        share = self.progress.share(self.config.trainer)
        return learning_rate_factor(self.config.optim, step, share, self.config.model.d_model)
