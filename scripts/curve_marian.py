"""Trains a peer for some minutes on a CPU and prints its test BLEU by minutes of training, one JSON line each.

    .bench/marian/bin/python scripts/curve_marian.py --source train.en.gz --target train.de.gz --test-source ...

The environment is made by bench_peers.sh. The peer is bench_peers.py's loop around transformers' MarianMTModel, the
tiny shape, from raw text: joint unigram pieces, AdamW with warm-up and inverse square root, one checkpoint, beam 5,
sacreBLEU 13a. The clock stands while a checkpoint is written; checkpoints are scored when training is over.
"""

import argparse
import gzip
import io
import json
import sys
import tempfile
import time
from itertools import chain
from pathlib import Path

from bench_peers import marian_batch, marian_model, marian_update, padded, similar_lengths
from bench_setting import BETAS, BOS_ID, EOS_ID, PAD_ID, SEED, SHAPES, UNK_ID

Pairs = list[tuple[list[int], list[int]]]


def read_lines(file: Path) -> list[str]:
    """Returns the lines of a text file, packed by gzip or not."""
    opened = gzip.open(file, "rb") if file.suffix == ".gz" else file.open("rb")
    with opened as stream:
        return [line.decode().rstrip("\r\n") for line in stream]


def train_pieces(texts: list[str], pieces: int):  # noqa: ANN201
    """Returns a SentencePiece unigram model of both sides together."""
    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts), model_writer=model, vocab_size=pieces, model_type="unigram",
        character_coverage=1.0, pad_id=PAD_ID, unk_id=UNK_ID, bos_id=BOS_ID, eos_id=EOS_ID, minloglevel=2,
    )  # fmt: skip
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


def train(model, pairs: Pairs, arguments: argparse.Namespace, folder: Path) -> list[tuple[float, int, Path]]:  # noqa: ANN001
    """Returns minutes of training, updates and file of each checkpoint."""
    import torch

    optimizer = torch.optim.AdamW(model.parameters(), arguments.learning_rate, BETAS, weight_decay=0.0, fused=True)
    warmup, saved, due = arguments.warmup, [], sorted(arguments.minutes)
    started, stood = time.monotonic(), 0.0
    for update, batch in enumerate(similar_lengths(pairs, arguments.batch_tokens), start=1):
        optimizer.param_groups[0]["lr"] = arguments.learning_rate * min(update / warmup, (warmup / update) ** 0.5)
        loss = marian_update(model, optimizer, marian_batch(batch))
        minutes = (time.monotonic() - started - stood) / 60
        if update % 100 == 0:
            print(f"update {update}, minute {minutes:.1f}, loss {loss:.3f}", file=sys.stderr, flush=True)
        if minutes >= due[0]:
            pause = time.monotonic()
            file = folder / f"{update}.pt"
            torch.save(model.state_dict(), file)
            saved.append((minutes, update, file))
            stood += time.monotonic() - pause
            del due[0]
            if not due:
                return saved
    raise AssertionError("batches are without end")


def translate(model, sources: list[list[int]], beam_size: int) -> list[list[int]]:  # noqa: ANN001
    """Returns the ids of each translation: transformers' beam search, batches of 50 of similar length."""
    import torch

    model.eval()
    model.generation_config.forced_eos_token_id = None  # Marian's own ends what is too long in its </s>
    order, found = sorted(range(len(sources)), key=lambda i: len(sources[i])), {}
    for first in range(0, len(order), 50):
        numbers = order[first : first + 50]
        ids = padded([[*sources[number], EOS_ID] for number in numbers])
        with torch.inference_mode():
            output = model.generate(
                input_ids=ids, attention_mask=(ids != PAD_ID).long(), num_beams=beam_size, do_sample=False,
                use_cache=True, max_length=2 * ids.shape[1] + 10, bad_words_ids=[[PAD_ID], [BOS_ID], [UNK_ID]],
            )  # fmt: skip
        for number, row in zip(numbers, output.tolist(), strict=True):
            words = row[1:]
            found[number] = words[: words.index(EOS_ID)] if EOS_ID in words else [i for i in words if i != PAD_ID]
    return [found[number] for number in range(len(sources))]


def main(arguments: argparse.Namespace) -> None:
    """Prints a line of JSON for each minute that was asked for."""
    import sacrebleu
    import torch

    torch.set_num_threads(arguments.threads)
    torch.manual_seed(SEED)
    sides = [read_lines(file) for file in (arguments.source, arguments.target)]
    pieces = train_pieces(list(chain(*sides)), arguments.pieces)
    pairs = list(zip(*(pieces.encode(side) for side in sides), strict=True))
    tests, references = read_lines(arguments.test_source), read_lines(arguments.test_target)
    model = marian_model(SHAPES["tiny"], arguments.pieces, arguments.dropout)
    with tempfile.TemporaryDirectory() as folder:
        for minutes, update, file in train(model, pairs, arguments, Path(folder)):
            model.load_state_dict(torch.load(file, weights_only=True))
            texts = pieces.decode(translate(model, pieces.encode(tests), beam_size=5))
            metric = sacrebleu.BLEU()
            score = metric.corpus_score(texts, [references]).score
            line = {"minutes": round(minutes, 2), "updates": update, "bleu": round(score, 2)}
            print(json.dumps(line | {"signature": str(metric.get_signature())}), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("--source", "--target", "--test-source", "--test-target"):
        parser.add_argument(name, type=Path, required=True)
    parser.add_argument("--minutes", type=float, nargs="+", default=[2, 4, 7, 10, 14, 20, 25, 30])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--pieces", type=int, default=8000)
    parser.add_argument("--batch-tokens", type=int, default=2048, help="tokens of the longer side, padding counted")
    parser.add_argument("--learning-rate", type=float, default=3e-3)
    parser.add_argument("--warmup", type=int, default=400, help="updates")
    parser.add_argument("--dropout", type=float, default=0.1)
    main(parser.parse_args())
