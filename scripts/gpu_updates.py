"""Whole updates of a model on made-up batches, for gpu_check.py."""

import argparse
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING
from unittest import mock

from bench_setting import LABEL_SMOOTHING, SEED, Shape

if TYPE_CHECKING:
    import torch

    from mt.data.batch import Batch

VOCABULARY_SIZE = 32_000


class Updates:
    """A model of a shape, and whole updates of it in bf16 (float32 on a CPU), as the trainer makes them."""

    def __init__(self, options: argparse.Namespace, shape: Shape, mode: str | None) -> None:
        """mode: None, not compiled; "default", or another mode of torch.compile."""
        import torch

        from mt.config import ModelConfig, OptimConfig
        from mt.model.attention import attend_varlen
        from mt.model.transformer import Transformer
        from mt.training.loss import PairLoss
        from mt.training.optim import Optimizer

        torch.manual_seed(SEED)
        torch.set_float32_matmul_precision("high")
        self.device = torch.device(options.device)
        config = ModelConfig(
            shape.d_model,
            shape.d_ff,
            shape.heads,
            shape.layers,
            shape.layers,
            dropout=0.0 if options.dry else shape.dropout,
        )
        self.vocabulary = 100 if options.dry else VOCABULARY_SIZE
        self.model = Transformer(config, self.vocabulary, self.vocabulary).to(self.device)
        self.model.attend = attention_of(self.device, shape.d_model // shape.heads)
        if mode is not None and self.model.attend is not attend_varlen:
            self.model.attend = torch.compiler.disable(self.model.attend)  # as the trainer does
        # the dry run does without a compiler for C++
        chosen = {"backend": "aot_eager"} if options.dry else {} if mode in (None, "default") else {"mode": mode}
        with mock.patch.object(torch, "compile", partial(torch.compile, **chosen)):
            self.pair_loss = PairLoss(self.model, LABEL_SMOOTHING, 0.0, mode is not None)
        self.optimizer = Optimizer(self.model, OptimConfig())

    def autocast(self) -> AbstractContextManager:
        import torch

        return torch.autocast("cuda", torch.bfloat16) if self.device.type == "cuda" else nullcontext()

    def make(self, batch: "Batch") -> None:
        """One update, without waiting for the device."""
        from mt.model.dropout import seed_dropout
        from mt.training.optim import clip_gradients

        seed_dropout(self.model, batch.dropout_seed)
        with self.autocast():
            loss = self.pair_loss(batch.to(self.device))
        (loss.smoothed / batch.target_tokens).backward()
        self.model.leave_out_key_biases()
        norm = clip_gradients(self.model, 1.0)
        self.optimizer.step(0.1, (~norm.isfinite()).float())
        self.model.zero_grad(set_to_none=True)


def attention_of(device: "torch.device", head_size: int) -> Callable:
    """Returns variable-length attention, by a stand-in in the dry run, or what the trainer would take in its place."""
    import torch

    from mt.model.attention import attend_varlen, choose_attend

    if device.type == "cpu":
        from tests.model.varlen_on_cpu import register

        register()
        return attend_varlen
    return choose_attend(device, torch.bfloat16, head_size)


def batches(count: int, batch_tokens: int, vocabulary: int, repeating: bool) -> "list[Batch]":
    """Returns different batches of made-up sentences of 4 to 120 tokens, about 25 in the mean."""
    import numpy as np

    from mt.data.batch import pack, repeating_stream_tokens

    random = np.random.default_rng(SEED)
    stream_tokens = repeating_stream_tokens(batch_tokens) if repeating else 0
    made = []
    for number in range(count):
        source = np.clip(random.lognormal(3.1, 0.5, batch_tokens // 4), 3, 119).astype(np.int64)
        target = np.clip(source * random.uniform(0.8, 1.25, len(source)), 3, 119).astype(np.int64)
        fitting = int((np.cumsum(np.maximum(source, target) + 1) <= batch_tokens).sum())
        order = np.lexsort((source[:fitting], target[:fitting]))
        source, target = source[:fitting][order], target[:fitting][order]
        ids = [random.integers(4, vocabulary, int(side.sum())) for side in (source, target)]
        made.append(pack(ids[0], source, ids[1], target, np.arange(len(source)), stream_tokens, number))
    return made


def wait(options: argparse.Namespace) -> None:
    import torch

    if options.device != "cpu":
        torch.cuda.synchronize()
