"""Times our own training loop on a CPU and prints one JSON line: rate, padding, start, memory, share of the roofline.

The loop is the trainer's own: batches from its stream, loss, gradients, clipping, AdamW, logging; without validation
and saving. The tokenizer and the encoded corpus are made once and kept in --work. Linux only.
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from bench_setting import (
    BETAS,
    CLIP_NORM,
    LABEL_SMOOTHING,
    LEARNING_RATE,
    SEED,
    SHAPES,
    VOCABULARY_SIZE,
    Shape,
    UpdateClock,
    add_options,
    prepare_process,
)  # fmt: skip

if TYPE_CHECKING:
    from mt.config import TrainConfig
    from mt.data.encoded import EncodedCorpus
    from mt.tokenizer import TokenizerPair

LOGIT_ROWS, ROUNDS = 1024, 5  # of the matrix products that the roofline is measured with


def main(arguments: argparse.Namespace) -> dict[str, object]:
    """Returns what is printed."""
    prepare_process(arguments)
    import torch  # after the number of threads is set

    torch.set_num_threads(arguments.threads)
    shape = SHAPES[arguments.shape]
    config = make_config(arguments, shape)
    prepared = (arguments.work / "tokenizer").exists()
    tokenizers, corpus = prepare_corpus(config)
    clock = train(config, tokenizers, corpus, arguments)
    result = {
        "trainer": "mt",
        "version": version(),
        "torch": torch.__version__,
    } | clock.report()
    source, target = int(corpus.source_lengths.sum()) + len(corpus), int(corpus.target_lengths.sum()) + len(corpus)
    uses = products(shape, tokenizers.target.size, source / (source + target))
    gflops = matmul_gflops(uses, arguments.batch_tokens)
    mflop = sum(6 * inputs * outputs * count for inputs, outputs, count in uses) / 1e6
    return result | {
        "shape": arguments.shape,
        "threads": arguments.threads,
        "batch_tokens": arguments.batch_tokens,
        "prepared_before": prepared,  # else start and memory are those of training the tokenizer
        "vocabulary": tokenizers.target.size,
        "mflop_per_token": round(mflop, 3),
        "matmul_gflops": round(gflops, 2),
        "roofline_share": round(result["tokens_per_second"] * mflop / 1e3 / gflops, 4),
    }


def make_config(arguments: argparse.Namespace, shape: Shape) -> "TrainConfig":
    from mt import config as c

    corpus = c.CorpusConfig(source=str(arguments.source), target=str(arguments.target))
    return c.TrainConfig(
        name="bench",
        device="cpu",
        data=c.DataConfig("en", "de", train={"main": corpus}, cache_dir=str(arguments.work / "cache")),
        tokenizer=c.TokenizerConfig(vocabulary_size=VOCABULARY_SIZE),
        model=c.ModelConfig(
            d_model=shape.d_model, d_ff=shape.d_ff, n_heads=shape.heads, encoder_layers=shape.layers,
            decoder_layers=shape.layers, dropout=shape.dropout,
        ),
        optim=c.OptimConfig(
            lr=LEARNING_RATE, beta1=BETAS[0], beta2=BETAS[1], clip_norm=CLIP_NORM, label_smoothing=LABEL_SMOOTHING
        ),
        trainer=c.TrainerConfig(
            seed=SEED, max_steps=arguments.updates + 1, batch_tokens=arguments.batch_tokens, precision="float32",
            validate_every_steps=10**9,
        ),
    )  # fmt: skip


def prepare_corpus(config: "TrainConfig") -> tuple["TokenizerPair", "EncodedCorpus"]:
    """Returns tokenizers and encoded corpus, made now where they are not there yet."""
    from mt.data.clean import Cleaner, clean_corpora
    from mt.data.encoded import encode_corpus
    from mt.tokenizer import TokenizerPair, train_tokenizers

    folder = Path(config.data.cache_dir).parent / "tokenizer"
    if not (folder / "joint.model").exists():
        pairs = clean_corpora(config.data.train, config.data, Cleaner(config.data))
        train_tokenizers(pairs, config.tokenizer, SEED).save(folder)
    tokenizers = TokenizerPair.load(folder)
    return tokenizers, encode_corpus(config.data.train, config.data, tokenizers)


def train(
    config: "TrainConfig", tokenizers: "TokenizerPair", corpus: "EncodedCorpus", arguments: argparse.Namespace
) -> UpdateClock:
    """Returns the clock after the trainer's own loop has run."""
    import torch

    from mt.data.batch import Batch
    from mt.model.allocator import keep_freed_memory
    from mt.training.distributed import Group
    from mt.training.monitor import Monitor
    from mt.training.signals import StopRequest
    from mt.training.trainer import Trainer

    clock = UpdateClock(arguments.warmup, arguments.window)

    class TimedTrainer(Trainer):
        def train_step(self, batches: list[Batch], tokens: int, monitor: Monitor) -> tuple[float, float]:
            real = sum(batch.source_tokens + batch.target_tokens for batch in batches)
            positions = sum(batch.source.numel() + batch.target_input.numel() for batch in batches)
            clock.begin(real, positions, sum(len(batch.pairs) for batch in batches))
            return super().train_step(batches, tokens, monitor)

        def save(self, monitor: Monitor) -> None:
            """Writes nothing: the loop would save after its last update."""

    keep_freed_memory()  # as `mt train` does first
    with tempfile.TemporaryDirectory(dir=arguments.work) as run_dir:
        with Monitor(Path(run_dir), config.trainer.tensorboard) as monitor, StopRequest() as stop:
            trainer = TimedTrainer(config, Path(run_dir), torch.device("cpu"), tokenizers, corpus, None, Group())
            if not trainer.fit(monitor, stop).finished:
                raise ValueError("stopped before the last update: nothing to report")
    return clock


def products(shape: Shape, vocabulary: int, source_share: float) -> list[tuple[int, int, float]]:
    """Returns the matrix products a token goes through in the forward pass: inputs, outputs, how often on average.

    With d = d_model, f = d_ff, L layers on each side, V pieces, s and t the shares of source and target tokens,
    multiply-adds in the forward pass are
        s (L (4 d^2 + 2 d f) + L 2 d^2) + t (L (6 d^2 + 2 d f) + d V)
    (an encoder layer; keys and values of the memory for each decoder layer; a decoder layer; the output table), and
    FLOP in training are 6 times as many: 2 for each multiply-add, and a product in the backward pass for each of its
    two factors. The products inside attention, 12 d times the sentence's length for each layer (2 to 4% at
    15 tokens), are left out, and so is all that is no matrix product.
    """
    d, f, layers, s, t = shape.d_model, shape.d_ff, shape.layers, source_share, 1 - source_share
    return [
        (d, 3 * d, layers),  # queries, keys and values in one
        (d, d, layers * (1 + 2 * t)),  # after self-attention; before and after cross-attention
        (d, 2 * d, layers * s),  # keys and values of the memory
        (d, f, layers),
        (f, d, layers),
        (d, vocabulary, t),
    ]


def matmul_gflops(uses: list[tuple[int, int, float]], batch_tokens: int) -> float:
    """Returns the float32 GFLOP/s of torch's products alone, in the mix of shapes and directions of one update."""
    flop = seconds = 0.0
    for inputs, outputs, count in uses:
        rows = LOGIT_ROWS if outputs > 4 * inputs else batch_tokens  # all logits at once would measure the memory
        flop += 6 * inputs * outputs * count
        seconds += count / rows * best_seconds(rows, inputs, outputs)
    return flop / seconds / 1e9


def best_seconds(rows: int, inputs: int, outputs: int) -> float:
    """Returns the shortest time of one forward product and its two backward products, together."""
    import torch

    x, w, g = torch.randn(rows, inputs), torch.randn(outputs, inputs), torch.randn(rows, outputs)
    y, grad_x, grad_w = torch.empty_like(g), torch.empty_like(x), torch.empty_like(w)
    times = []
    for left, right, out in ((x, w.T, y), (g, w, grad_x), (g.T, x, grad_w)):
        tries = []
        for _ in range(ROUNDS + 1):
            start = time.perf_counter()
            torch.mm(left, right, out=out)
            tries.append(time.perf_counter() - start)
        times.append(min(tries))
    return sum(times)


def version() -> str:
    """Returns the commit, with -dirty after it where files were changed."""
    from mt.versions import versions

    commit, mark, _ = (versions()["git_commit"] or "unknown").partition("-dirty")
    return commit[:9] + mark


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", type=Path, required=True, help="source sentences, one a line (.gz too)")
    parser.add_argument("--target", type=Path, required=True, help="target sentences, one a line (.gz too)")
    add_options(parser)
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    try:
        print(json.dumps(main(options)))
    except ValueError as problem:
        sys.exit(f"bench_train: {problem}")
