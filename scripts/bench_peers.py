"""Times the training loop of one peer on a CPU, in the peer's own environment, and prints one JSON line.

Each peer trains the same shape from the same pieces (bench_rounds.py writes them as words t4, t5, ..., one for each
SentencePiece id), with the same token budget, Adam, dropout, label smoothing and float32, by its own loop. Real tokens
are counted as ids that are not padding, in the batches that the peer's own training step is called with.
"""

import argparse
import contextlib
import importlib.metadata
import json
import random
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench_setting import (
    BETAS,
    BOS_ID,
    CLIP_NORM,
    EOS_ID,
    LABEL_SMOOTHING,
    LEARNING_RATE,
    PAD_ID,
    SEED,
    SHAPES,
    Shape,
    UpdateClock,
    add_options,
    prepare_process,
)

POOL_BATCHES = 64  # our own loop around Marian: sentences of so many batches are sorted together, as in mt
NEVER = 10**9  # updates


def train_joeynmt(arguments: argparse.Namespace, shape: Shape, clock: UpdateClock, run_dir: Path) -> None:
    """JoeyNMT's `train`, called as its command line does. It offers batches by tokens, but none of similar lengths.

    Its dropout also falls on attention weights, which it cannot leave out; its special ids are its own.
    """
    import joeynmt.training

    step = joeynmt.training.TrainManager._train_step

    def timed_step(manager, batch):  # noqa: ANN001, ANN202
        real = int((batch.src != manager.model.pad_index).sum()) + int(batch.ntokens)
        clock.begin(real, batch.src.numel() + batch.trg.numel(), batch.nseqs)
        return step(manager, batch)

    joeynmt.training.TrainManager._train_step = timed_step
    corpus = arguments.work / "corpus"
    side = {"level": "word", "voc_file": str(corpus / "vocabulary.txt")}
    stack = {
        "type": "transformer",
        "num_layers": shape.layers,
        "num_heads": shape.heads,
        "embeddings": {"embedding_dim": shape.d_model, "scale": True, "dropout": shape.dropout},
        "hidden_size": shape.d_model,
        "ff_size": shape.d_ff,
        "dropout": shape.dropout,
        "layer_norm": "pre",
    }
    config = {
        "name": "bench",
        "model_dir": str(run_dir),
        "use_cuda": False,
        "random_seed": SEED,
        "data": {
            "train": str(corpus / "train"),
            "dev": str(corpus / "valid"),
            "dataset_type": "plain",
            "src": side | {"lang": "source"},
            "trg": side | {"lang": "target"},
        },
        "model": {"tied_embeddings": True, "tied_softmax": True, "encoder": stack, "decoder": stack},
        "training": {
            "optimizer": "adam",
            "adam_betas": list(BETAS),
            "learning_rate": LEARNING_RATE,
            "learning_rate_min": 0.0,
            "scheduling": "warmupinversesquareroot",
            "normalization": "tokens",
            "label_smoothing": LABEL_SMOOTHING,
            "clip_grad_norm": CLIP_NORM,
            "batch_size": arguments.batch_tokens,
            "batch_type": "token",
            "epochs": NEVER,
            "updates": arguments.updates + 1,
            "validation_freq": NEVER,
        },
        "testing": {},
    }
    joeynmt.training.train(rank=0, world_size=None, cfg=config, skip_test=True)


def train_eole(arguments: argparse.Namespace, shape: Shape, clock: UpdateClock, run_dir: Path) -> None:
    """Eole's `train`, called as its command line does: batches by tokens from a sorted bucket, here the whole corpus.

    Eole ends no source sentence in </s> by itself; its source text is given one, so that all do the same work.
    """
    import eole.trainer
    from eole.bin.run.train import train
    from eole.config.run import TrainConfig

    step = eole.trainer.Trainer._train_step

    def timed_step(trainer, batches, *rest, **named):  # noqa: ANN001, ANN002, ANN003, ANN202
        pad = trainer.train_loss.padding_idx
        sides = [tensor for batch in batches for tensor in (batch["src"], batch["tgt"][:, 1:])]  # without <s>
        real = sum(int((side != pad).sum()) for side in sides)
        clock.begin(real, sum(side.numel() for side in sides), sum(len(batch["tgt"]) for batch in batches))
        return step(trainer, batches, *rest, **named)

    eole.trainer.Trainer._train_step = timed_step
    corpus, source = arguments.work / "corpus", run_dir / "train.source"
    lines = (corpus / "train.source").read_text().splitlines()
    source.write_text("".join(f"{line} </s>\n" for line in lines))
    config = TrainConfig(
        seed=SEED,
        src_vocab=str(corpus / "vocabulary.txt"),
        share_vocab=True,
        pad_token="<pad>",
        vocab_size_multiple=1,
        data={"train": {"path_src": str(source), "path_tgt": str(corpus / "train.target"), "transforms": []}},
        model={
            "architecture": "transformer",
            "layers": shape.layers,
            "heads": shape.heads,
            "hidden_size": shape.d_model,
            "transformer_ff": shape.d_ff,
            "embeddings": {"word_vec_size": shape.d_model, "position_encoding_type": "SinusoidalInterleaved"},
            "share_embeddings": True,
            "share_decoder_embeddings": True,
            "generator_bias": False,
            "add_qkvbias": True,
            "add_final_linear_bias": True,
            "add_ffnbias": True,
        },
        training={
            "model_path": str(run_dir / "model"),
            "batch_type": "tokens",
            "batch_size": arguments.batch_tokens,
            "batch_size_multiple": 1,
            "bucket_size": len(lines),
            "num_workers": 0,  # more would take the cores that the timed threads are on
            "normalization": "tokens",
            "optim": "adam",
            "adam_beta1": BETAS[0],
            "adam_beta2": BETAS[1],
            "learning_rate": LEARNING_RATE,
            "max_grad_norm": CLIP_NORM,
            "label_smoothing": LABEL_SMOOTHING,
            "dropout": [shape.dropout],
            "attention_dropout": [0.0],
            "param_init_method": "xavier_uniform",
            "compute_dtype": "fp32",
            "log_attention_entropy": False,  # a count for the log that costs time
            "train_steps": arguments.updates + 1,
            "valid_steps": NEVER,
            "save_checkpoint_steps": NEVER,
        },
    )
    train(config)


def train_marian(arguments: argparse.Namespace, shape: Shape, clock: UpdateClock, run_dir: Path) -> None:
    """transformers' MarianMTModel in a plain PyTorch loop: what a user could write who knows what is fast.

    Batches of similar lengths, torch's fused attention and AdamW, and logits for real target tokens only.
    """
    import torch

    torch.manual_seed(SEED)
    vocabulary_size = len((arguments.work / "corpus" / "vocabulary.txt").read_text().splitlines())
    sides = []
    for name in ("train.source", "train.target"):
        lines = (arguments.work / "corpus" / name).read_text().splitlines()
        sides.append([[int(word[1:]) for word in line.split(" ")] for line in lines])
    model = marian_model(shape, vocabulary_size, shape.dropout)
    optimizer = torch.optim.AdamW(model.parameters(), LEARNING_RATE, BETAS, weight_decay=0.0, fused=True)
    batches = similar_lengths(list(zip(*sides, strict=True)), arguments.batch_tokens)
    for _ in range(arguments.updates + 1):
        batch = marian_batch(next(batches))
        source, _, target = batch
        real = sum(int((side != PAD_ID).sum()) for side in (source, target))
        clock.begin(real, source.numel() + target.numel(), len(source))
        marian_update(model, optimizer, batch)


def marian_model(shape: Shape, vocabulary_size: int, dropout: float):  # noqa: ANN201
    """Returns a MarianMTModel to train, with one table for source, target and output."""
    from transformers import MarianConfig, MarianMTModel

    config = MarianConfig(
        vocab_size=vocabulary_size, d_model=shape.d_model, max_position_embeddings=512, activation_function="relu",
        encoder_layers=shape.layers, encoder_attention_heads=shape.heads, encoder_ffn_dim=shape.d_ff,
        decoder_layers=shape.layers, decoder_attention_heads=shape.heads, decoder_ffn_dim=shape.d_ff,
        dropout=dropout, attention_dropout=0.0, activation_dropout=0.0, scale_embedding=True,
        share_encoder_decoder_embeddings=True, tie_word_embeddings=True, use_cache=False, attn_implementation="sdpa",
        pad_token_id=PAD_ID, bos_token_id=BOS_ID, eos_token_id=EOS_ID, decoder_start_token_id=BOS_ID,
    )  # fmt: skip
    model = MarianMTModel(config)
    if model.lm_head.weight is not model.model.shared.weight:
        raise ValueError("MarianMTModel: the output table is not tied to the embeddings")
    return model.train()


def marian_batch(pairs: list[tuple[list[int], list[int]]]):  # noqa: ANN201
    """Returns source, decoder input and target, each an int64 tensor [pairs, longest] filled up with padding."""
    source = padded([[*source, EOS_ID] for source, _ in pairs])
    target_input = padded([[BOS_ID, *target] for _, target in pairs])
    return source, target_input, padded([[*target, EOS_ID] for _, target in pairs])


def marian_update(model, optimizer, batch) -> float:  # noqa: ANN001
    """Trains on one batch. Returns its loss in nats per target token, smoothed, as a log would read it."""
    import torch
    from torch.nn.functional import cross_entropy, linear

    source, target_input, target = batch
    real, mask = target != PAD_ID, source != PAD_ID
    # padding lies behind every real target token, so the decoder's causal mask is all it needs
    output = model.model(input_ids=source, attention_mask=mask.long(), decoder_input_ids=target_input)
    logits = linear(output.last_hidden_state[real], model.lm_head.weight)
    loss = cross_entropy(logits, target[real], label_smoothing=LABEL_SMOOTHING)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP_NORM)
    optimizer.step()
    return loss.item()


def similar_lengths(
    pairs: list[tuple[list[int], list[int]]], batch_tokens: int
) -> Iterator[list[tuple[list[int], list[int]]]]:
    """Yields batches of id pairs without end: sorted by length in shuffled pools, the budget includes padding."""
    generator = random.Random(SEED)
    while True:
        generator.shuffle(pairs)
        batches, pool, tokens = [], [], 0
        for number, pair in enumerate(pairs, start=1):
            pool.append(pair)
            tokens += max(map(len, pair)) + 1
            if tokens >= POOL_BATCHES * batch_tokens or number == len(pairs):
                pool.sort(key=lambda pair: (len(pair[1]), len(pair[0])))
                batches += cut(pool, batch_tokens)
                pool, tokens = [], 0
        generator.shuffle(batches)
        yield from batches


def cut(pairs: list[tuple[list[int], list[int]]], budget: int) -> Iterator[list[tuple[list[int], list[int]]]]:
    """Yields runs of pairs of which the number times the longest side is at most the budget."""
    batch, longest = [], 0
    for pair in pairs:
        length = max(map(len, pair)) + 1
        if batch and (len(batch) + 1) * max(longest, length) > budget:
            yield batch
            batch, longest = [], 0
        batch.append(pair)
        longest = max(longest, length)
    yield batch


def padded(rows: list[list[int]]):  # noqa: ANN201
    """Returns an int64 tensor [rows, longest row], filled up with padding."""
    import torch

    width = max(map(len, rows))
    return torch.tensor([row + [PAD_ID] * (width - len(row)) for row in rows])


PEERS = {
    "joeynmt": ("joeynmt", train_joeynmt),
    "eole": ("eole", train_eole),
    "marian": ("transformers", train_marian),
}


def main(arguments: argparse.Namespace) -> dict[str, object]:
    """Returns what is printed. What the peer prints goes to stderr."""
    prepare_process(arguments)
    import torch  # after the number of threads is set

    torch.set_num_threads(arguments.threads)
    package, train = PEERS[arguments.peer]
    clock = UpdateClock(arguments.warmup, arguments.window)
    with contextlib.redirect_stdout(sys.stderr), tempfile.TemporaryDirectory(dir=arguments.work) as run_dir:
        train(arguments, SHAPES[arguments.shape], clock, Path(run_dir))
    versions = {"version": importlib.metadata.version(package), "torch": torch.__version__}
    return {"trainer": arguments.peer} | versions | clock.report()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("peer", choices=sorted(PEERS))
    add_options(parser)
    options = parser.parse_args()
    options.work = options.work.resolve()
    try:
        print(json.dumps(main(options)))
    except ValueError as problem:
        sys.exit(f"bench_peers: {problem}")
