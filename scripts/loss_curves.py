"""Trains the same updates by the plain path and by each of our optimisations, and prints the loss curves side by side.

Plain: the attention formula written out over padded sentences, torch's dropout, all logits at once into torch's cross
entropy, one backward pass over the whole batch, torch.optim.AdamW. Each further column puts one part of ours in its
place; the last has all of them, as `mt train` has. Without dropout the curves differ by rounding alone; with it, by
what other random masks make of them, which the column "plain, other masks" shows. Begin, order of batches and learning
rates are the same everywhere.
"""

import argparse
import dataclasses
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import bench_train
import torch
import torch.nn.functional as F
from bench_setting import BETAS, LABEL_SMOOTHING, LEARNING_RATE, SHAPES
from torch import Tensor, nn

from mt import config as c
from mt.data.batch import Batch
from mt.data.encoded import EncodedCorpus
from mt.model.allocator import keep_freed_memory
from mt.model.attention import attend_explicit, attend_grouped
from mt.model.dropout import Dropout, seed_dropout
from mt.tokenizer import PAD_ID, TokenizerPair
from mt.training.distributed import Group
from mt.training.loss import smoothed_cross_entropy
from mt.training.monitor import Monitor
from mt.training.trainer import Trainer

OTHER_MASKS = 1_000_003  # added to the seeds of the masks, of which torch takes 32 bits
COLUMNS: dict[str, frozenset[str]] = {
    "plain": frozenset(),
    "plain, other masks": frozenset({"other masks"}),
    "attention": frozenset({"attention"}),
    "dropout": frozenset({"dropout"}),
    "loss": frozenset({"loss"}),
    "AdamW": frozenset({"AdamW"}),
    "lanes": frozenset({"lanes", "attention", "dropout", "loss"}),  # threads share no generator of torch's
    "all": frozenset({"lanes", "attention", "dropout", "loss", "AdamW"}),
}


class TorchDropout(nn.Module):
    """torch's dropout behind the interface of ours."""

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.probability = probability

    @property
    def active(self) -> bool:
        return self.training and self.probability > 0

    def forward(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        x = F.dropout(x, self.probability, self.training)
        return x if residual is None else residual + x


class CurveTrainer(Trainer):
    """The trainer with the named parts of ours; all else is plain."""

    def use(self, parts: frozenset[str]) -> None:
        self.parts = parts
        self.model.attend = attend_grouped if "attention" in parts else attend_explicit
        if "dropout" not in parts:
            for module in list(self.model.modules()):
                for name, child in module.named_children():
                    if isinstance(child, Dropout):
                        setattr(module, name, TorchDropout(child.probability))
        if "AdamW" not in parts:
            self.plain_adamw = torch.optim.AdamW(
                self.model.parameters(), betas=BETAS, eps=self.config.optim.eps, weight_decay=0, foreach=False
            )

    def train_step(self, batches: list[Batch], tokens: int, monitor: Monitor) -> tuple[float | Tensor, float | Tensor]:
        if "lanes" in self.parts:
            return super().train_step(batches, tokens, monitor)
        total = 0.0
        for batch in batches:
            seed_dropout(self.model, batch.dropout_seed + (OTHER_MASKS if "other masks" in self.parts else 0))
            hidden = self.model(batch.source, batch.source_layout, batch.target_input, batch.target_layout)
            smoothed, likelihood = self._loss(hidden, batch)
            (smoothed / tokens).backward()
            total += float(likelihood)
        self.model.leave_out_key_biases()
        return total, self._update(monitor, batches)

    def _loss(self, hidden: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        table, targets = self.model.output_table, batch.target_output
        if "loss" in self.parts:
            loss = smoothed_cross_entropy(hidden, table, targets, LABEL_SMOOTHING, batch.target_tokens)
            return loss.smoothed, loss.negative_log_likelihood
        logits = F.linear(hidden, table)
        smoothed = F.cross_entropy(
            logits, targets, ignore_index=PAD_ID, reduction="sum", label_smoothing=LABEL_SMOOTHING
        )
        return smoothed, F.cross_entropy(logits.detach(), targets, ignore_index=PAD_ID, reduction="sum")

    def _apply(self, skip: Tensor | None) -> None:
        if "AdamW" in self.parts:
            super()._apply(skip)
            return
        for group in self.plain_adamw.param_groups:
            group["lr"] = self._factor(self.progress.step + 1) * self.config.optim.lr
        self.plain_adamw.step()
        self.progress.step += 1


def make_config(arguments: argparse.Namespace) -> c.TrainConfig:
    """Returns the benchmark's settings, with a rate at which two hundred updates learn something."""
    shape = dataclasses.replace(SHAPES["tiny"], dropout=arguments.dropout)
    config = bench_train.make_config(arguments, shape)
    config.optim.lr, config.optim.warmup_steps = 4 * LEARNING_RATE, 50
    config.trainer.max_steps = arguments.updates
    return config


def curve(
    config: c.TrainConfig, tokenizers: TokenizerPair, corpus: EncodedCorpus, parts: frozenset[str]
) -> list[float]:
    """Returns the loss a target token, without smoothing, of each update before it is made."""
    losses = []
    with tempfile.TemporaryDirectory() as folder, Monitor(Path(folder), tensorboard=False) as monitor:
        trainer = CurveTrainer(config, Path(folder), torch.device("cpu"), tokenizers, corpus, None, Group())
        trainer.use(parts)
        trainer.model.train()
        for _ in range(config.trainer.max_steps):
            window = trainer.stream.next_window()
            tokens = sum(batch.target_tokens for batch in window.batches)
            loss, _ = trainer.train_step(window.batches, tokens, monitor)
            losses.append(float(loss) / tokens)
    return losses


def table(curves: dict[str, list[float]], every: int) -> str:
    """Returns the means of every so many updates as a table in Markdown, and below them the difference from plain."""
    names, count = list(curves), len(next(iter(curves.values())))
    lines = ["| updates | " + " | ".join(names) + " |", "|---|" + "---|" * len(names)]
    for start in range(0, count - every + 1, every):
        means = [sum(curves[name][start : start + every]) / every for name in names]
        lines.append(f"| {start + 1}-{start + every} | " + " | ".join(f"{mean:.4f}" for mean in means) + " |")
    rows: list[tuple[str, Callable[[list[float]], float]]] = [("mean", lambda d: sum(d) / len(d)), ("largest", max)]
    for label, summary in rows:
        cells = [
            summary([abs(a - b) / b for a, b in zip(curves[name], curves["plain"], strict=True)]) for name in names
        ]
        lines.append(f"| {label} difference from plain | " + " | ".join(f"{cell:.1e}" for cell in cells) + " |")
    return "\n".join(lines)


def main(arguments: argparse.Namespace) -> None:
    torch.set_num_threads(arguments.threads)
    keep_freed_memory()
    config = make_config(arguments)
    tokenizers, corpus = bench_train.prepare_corpus(config)
    curves = {}
    for name, parts in COLUMNS.items():
        if arguments.dropout or name not in ("plain, other masks", "dropout"):
            curves[name] = curve(config, tokenizers, corpus, parts)
            print(f"{name}: {curves[name][0]:.4f} -> {curves[name][-1]:.4f}", file=sys.stderr)
    print(table(curves, arguments.every))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=Path, required=True, help="source sentences, one a line (.gz too)")
    parser.add_argument("--target", type=Path, required=True, help="target sentences, one a line (.gz too)")
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--updates", type=int, default=200)
    parser.add_argument("--every", type=int, default=25, help="updates that a row is the mean of")
    parser.add_argument("--batch-tokens", type=int, default=1000, help="tokens of the longer side in a batch")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--work", type=Path, default=Path(".bench"), help="folder of prepared text")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    main(options)
