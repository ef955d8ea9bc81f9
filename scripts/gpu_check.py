"""Checks and times the GPU's path: kernels, graphs, host synchronisations, speed, memory, feeding, BLEU of short runs.

Prints one JSON line per result. Each part is a process of its own with a time limit, the most important ones first; a
part that fails or takes too long costs its own result only. Not tried on a GPU.
"""

import argparse
import json
import subprocess
import sys
import time
import types
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bench_setting import SEED, Shape, peak_memory_mb
from bench_train import products, version
from gpu_updates import Updates, attention_of, batches, wait

if TYPE_CHECKING:
    from mt.config import TrainConfig

TOTAL_SECONDS = 460.0
BASE, BIG, TINY = Shape(6, 512, 2048, 8, 0.1), Shape(6, 1024, 4096, 16, 0.3), Shape(1, 32, 64, 2, 0.1)
PEAK_TFLOPS = {"H200": 989.0, "H100": 989.0, "A100": 312.0}  # bf16 products, dense, of the SXM cards, by their makers
FORMULA = "tokens/s * sum over the model's matrices of 6 * inputs * outputs, per token / peak; attention left out"
CORPORA = {  # where the files may lie, and what to read there
    "multi30k": (
        ("data/multi30k", "shared/data/multi30k-en-de", "../shared/data/multi30k-en-de"),
        {"source": "train.en.gz", "target": "train.de.gz"},
        {"source": "val.en.gz", "target": "val.de.gz"},
        "de",
    ),
    "demo": (("data/tatoeba_en_zh",), {"path": "train.tsv"}, {"path": "valid.tsv"}, "zh"),
}


def device(options: argparse.Namespace) -> Iterator[dict]:
    """The machine, and which attention the trainer takes on it."""
    import torch

    found = {"device": options.device, "torch": torch.__version__, "python": sys.version.split()[0], "mt": version()}
    if options.device != "cpu":
        properties = torch.cuda.get_device_properties(0)
        found |= {"name": properties.name, "memory_gib": round(properties.total_memory / 2**30, 1)}
        found |= {"cuda": torch.version.cuda, "capability": f"{properties.major}.{properties.minor}"}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        attend = attention_of(torch.device(options.device), 64)
    yield found | {"attention": attend.__name__, "warnings": [str(warning.message) for warning in caught]}


def kernels(options: argparse.Namespace) -> Iterator[dict]:
    """Variable-length and padded attention in bf16 against the formula in float32: outputs and gradients."""
    import torch

    from mt.model.attention import attend_explicit, attend_padded, attend_varlen
    from mt.model.dropout import Dropout
    from mt.model.layout import Layout

    at = torch.device(options.device)
    attention_of(at, 64)
    heads, size = (2, 8) if options.dry else (8, 64)
    for causal, q_lengths, k_lengths in (
        (False, [5, 1, 64, 17, 128], [9, 3, 70, 1, 128]),
        (True, [5, 1, 64, 17, 128, 300], [5, 1, 64, 17, 128, 300]),
        (True, [5, 1, 64, 128, 0, 0], [5, 1, 64, 128, 0, 0]),  # with empty sentences, as repeating shapes have
    ):
        layouts = Layout.from_lengths(q_lengths, at), Layout.from_lengths(k_lengths, at)
        sizes = sum(q_lengths), sum(k_lengths), sum(k_lengths), sum(q_lengths)
        generator = torch.Generator(at).manual_seed(SEED)
        q, k, v, upstream = (
            torch.randn(n, heads, size, device=at, generator=generator).bfloat16() for n in sizes
        )  # fmt: skip
        results = {}
        for attend, dtype in (
            (attend_explicit, torch.float32), (attend_padded, torch.bfloat16), (attend_varlen, torch.bfloat16),
        ):  # fmt: skip
            inputs = [x.to(dtype).detach().requires_grad_() for x in (q, k, v)]
            out = attend(*inputs, *layouts, causal, Dropout(0.0))
            grads = torch.autograd.grad(out, inputs, upstream.to(dtype))
            results[attend.__name__] = [x.detach().float() for x in (out, *grads)]
        exact = results.pop("attend_explicit")
        errors = {
            name: [round(float((x - y).abs().max() / y.abs().max()), 5) for x, y in zip(found, exact, strict=True)]
            for name, found in results.items()
        }
        yield {
            "causal": causal,
            "empty_sentences": q_lengths.count(0),
            "relative_errors_of_out_dq_dk_dv": errors,
            "equal": max(errors["attend_varlen"]) < 0.03,  # bf16 has 8 bits: 0.004 a rounding
        }


def graphs(options: argparse.Namespace) -> Iterator[dict]:
    """Graphs of torch.compile, and host synchronisations, over 30 different batches of one size."""
    import torch
    from torch._dynamo.utils import counters

    shape = TINY if options.dry else Shape(2, 512, 2048, 8, 0.1)
    updates = Updates(options, shape, "default")
    made = batches(30, 256 if options.dry else 4096, updates.vocabulary, updates.pair_loss.repeating)
    start = time.monotonic()
    updates.make(made[0])
    wait(options)
    first = time.monotonic() - start
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for number, batch in enumerate(made[1:]):
            if number == 10 and options.device != "cpu":
                torch.cuda.set_sync_debug_mode("warn")
            updates.make(batch)
    if options.device != "cpu":
        torch.cuda.set_sync_debug_mode("default")
    places = [f"{Path(w.filename).name}:{w.lineno}" for w in caught if "synchroniz" in str(w.message)]
    found = counters["stats"]["unique_graphs"]
    yield {
        "batches": len(made),
        "graphs": found,
        "one_graph": found == 1,
        "first_update_seconds": round(first, 1),
        "host_synchronisations": len(places),
        "synchronising_places": sorted(set(places)),
    }


def speed(options: argparse.Namespace, shape: Shape, mode: str | None) -> Iterator[dict]:
    """Real tokens a second of both sides, model FLOP utilisation and peak memory of whole updates."""
    import torch

    if options.dry:
        shape = TINY
    updates = Updates(options, shape, mode)
    batch_tokens = 256 if options.dry else options.batch_tokens
    made = batches(2 if options.dry else 16, batch_tokens, updates.vocabulary, updates.pair_loss.repeating)
    if options.device != "cpu":
        made = [batch.pin() for batch in made]
    start = time.monotonic()
    for batch in made[:5]:
        updates.make(batch)
    wait(options)
    start, tokens, count, first = time.monotonic(), 0, 0, time.monotonic() - start
    while count < len(made) or (time.monotonic() - start < 8 and not options.dry):
        for batch in made:
            updates.make(batch)
        wait(options)
        tokens += sum(batch.source_tokens + batch.target_tokens for batch in made)
        count += len(made)
    rate = tokens / (time.monotonic() - start)
    source_share = sum(batch.source_tokens for batch in made) / (tokens * len(made) / count)
    flop = sum(6 * i * o * n for i, o, n in products(shape, updates.vocabulary, source_share))
    name = torch.cuda.get_device_name() if options.device != "cpu" else ""
    peak = next((value for card, value in PEAK_TFLOPS.items() if card in name), None)
    memory = torch.cuda.max_memory_allocated() / 2**20 if options.device != "cpu" else peak_memory_mb()
    yield {
        "mode": mode or "not compiled",
        "d_model": shape.d_model,
        "vocabulary": updates.vocabulary,
        "batch_tokens": batch_tokens,
        "updates": count,
        "first_updates_seconds": round(first, 1),
        "tokens_per_second": round(rate),
        "mflop_per_token": round(flop / 1e6, 1),
        "model_flop_utilisation": peak and round(rate * flop / 1e12 / peak, 4),
        "peak_tflops": peak,
        "formula": FORMULA,
        "peak_memory_mib": round(memory),
    }


def made_up_corpus(options: argparse.Namespace, place: str) -> dict[str, str]:
    """Returns the settings of a corpus of random words that is written into a folder."""
    import random

    draw, letters = random.Random(SEED), "abcdefghijklmnopqrstuvwxyz"
    words = ["".join(draw.choices(letters, k=draw.randint(2, 9))) for _ in range(300 if options.dry else 5000)]
    lines = []
    for _ in range(60 if options.dry else 20_000):
        lines.append("\t".join(" ".join(draw.choices(words, k=draw.randint(3, 30))) for _ in range(2)) + "\n")
    (Path(place) / "made_up.tsv").write_text("".join(lines), encoding="utf-8")
    return {"path": f"{place}/made_up.tsv"}


def feeding(options: argparse.Namespace) -> Iterator[dict]:
    """Tokens a second that the stream makes batches of, in one thread, with subwords as they are and drawn anew."""
    import tempfile

    from mt.data.corpus import read_corpora
    from mt.data.encoded import encode_corpus
    from mt.tokenizer import train_tokenizers
    from mt.training.stream import BatchStream

    with tempfile.TemporaryDirectory() as place:
        corpus = made_up_corpus(options, place)
        for alpha in (None, 0.1):
            config = run_config(options, place, corpus, corpus, "de")
            config.tokenizer.unigram_alpha = alpha
            pairs = read_corpora(config.data.train, config.data, "train")
            tokenizers = train_tokenizers(pairs, config.tokenizer, SEED)
            encoded = encode_corpus(config.data.train, config.data, tokenizers)
            stream = BatchStream(encoded, tokenizers, config, 1, on_gpu=options.device != "cpu", repeating_shapes=True)
            start, tokens = time.monotonic(), 0
            while time.monotonic() - start < (0.2 if options.dry else 4):
                (batch,) = stream.next_window().batches
                tokens += batch.source_tokens + batch.target_tokens
            seconds = time.monotonic() - start
            stream.close()
            yield {"unigram_alpha": alpha, "tokens_per_second": round(tokens / seconds)}


def fit_batch(options: argparse.Namespace) -> Iterator[dict]:
    """The batch that trainer.fit_batch finds for the big model, and two updates with it."""
    import tempfile

    from mt import checkpoint as folder
    from mt.config import ModelConfig
    from mt.training.run import train

    if options.device == "cpu":
        yield {"skipped": "needs a GPU"}
        return
    with tempfile.TemporaryDirectory() as place:
        corpus = made_up_corpus(options, place)
        config = run_config(options, place, corpus, corpus, "de")
        config.model = ModelConfig(BIG.d_model, BIG.d_ff, BIG.heads, BIG.layers, BIG.layers, dropout=BIG.dropout)
        config.trainer.fit_batch, config.trainer.max_steps, config.trainer.validate_max_sentences = True, 2, 10
        start = time.monotonic()
        updates = train(config, []).steps
        found = folder.load_config(Path(config.run_dir)).trainer.batch_tokens
        yield {"batch_tokens": found, "updates": updates, "seconds": round(time.monotonic() - start, 1)}


def run_config(options: argparse.Namespace, work: str, train: dict, valid: dict, target_language: str) -> "TrainConfig":
    """Returns settings of a run of less than a minute."""
    from mt.config import TrainConfig
    from mt.mapping import from_mapping

    small, model = {"d_model": 32, "d_ff": 64}, {"d_model": 256, "d_ff": 1024, "dropout": 0.3}
    limits = {"max_steps": 2, "batch_tokens": 200, "validate_max_sentences": 2}
    if not options.dry:
        limits = {"max_steps": None, "max_minutes": 0.5, "batch_tokens": 8000}
    return from_mapping(
        TrainConfig,
        {
            "name": "gpu_check",
            "run_dir": f"{work}/run",
            "device": options.device,
            "data": {
                "target_language": target_language,
                "train": {"main": train},
                "valid": {"main": valid},
                "cache_dir": f"{work}/cache",
                "cleaning": {"drop_held_out": "none"},  # what is made up here is both
            },
            "tokenizer": {"vocabulary_size": 1500 if options.dry else 8000, "training_sentences": 100_000},
            "model": small if options.dry else model,
            "optim": {"optimizer": "muon", "lr": 2e-3, "schedule": "linear", "warmup_steps": 100},
            "trainer": {**limits, "validate_every_steps": 10**6, "tensorboard": False},
        },
    )


def short_run(options: argparse.Namespace, name: str) -> Iterator[dict]:
    """BLEU on the validation corpus after half a minute of training, and what the trainer says of its speed."""
    import shutil
    import tempfile

    from mt.training.run import train

    places, train_files, valid_files, target_language = CORPORA[name]
    found = [place for place in map(Path, places) if all((place / file).exists() for file in train_files.values())]
    if not found:
        yield {"skipped": f"no corpus in {' or '.join(places)}"}
        return
    with tempfile.TemporaryDirectory() as work:
        sides = []
        for files in (train_files, valid_files):
            sides.append({key: str(found[0] / file) for key, file in files.items()})
            if options.dry:
                sides[-1] = {key: beginning(Path(path), Path(work)) for key, path in sides[-1].items()}
        config = run_config(options, work, *sides, target_language)
        start = time.monotonic()
        result = train(config, [])
        events = [json.loads(line) for line in (Path(work) / "run" / "log.jsonl").read_text("utf-8").splitlines()]
        rates = [event["tokens_per_second"] for event in events if event["event"] == "train"]
        yield {
            "valid": {key: round(value, 3) for key, value in result.metrics.items()},
            "updates": result.steps,
            "skipped_updates": result.skipped_steps,
            "tokens_per_second": round(sorted(rates)[len(rates) // 2]),
            "seconds": round(time.monotonic() - start, 1),
        }
        shutil.rmtree(config.data.cache_dir)


def beginning(file: Path, work: Path) -> str:
    """Returns the path of a copy of a file's first 200 lines."""
    import gzip

    copy = work / file.name.removesuffix(".gz")
    with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as lines:
        copy.write_bytes(b"".join(line for line, _ in zip(lines, range(200), strict=False)))
    return str(copy)


PARTS: dict[str, tuple[float, Callable[[argparse.Namespace], Iterator[dict]]]] = {  # seconds at most, what is done
    "device": (40, device),
    "kernels": (40, kernels),
    "graphs": (90, graphs),
    "speed base": (40, partial(speed, shape=BASE, mode=None)),
    "speed base compiled": (110, partial(speed, shape=BASE, mode="default")),
    "speed big": (45, partial(speed, shape=BIG, mode=None)),
    "speed big compiled": (110, partial(speed, shape=BIG, mode="default")),
    "multi30k": (75, partial(short_run, name="multi30k")),
    "demo": (75, partial(short_run, name="demo")),
    "feeding": (40, feeding),
    "fit_batch": (60, fit_batch),
    "speed base reduce-overhead": (110, partial(speed, shape=BASE, mode="reduce-overhead")),
    "speed base max-autotune": (200, partial(speed, shape=BASE, mode="max-autotune-no-cudagraphs")),
}


def run_part(name: str, options: argparse.Namespace) -> Iterator[dict]:
    """Yields the results of a part; one that says what is missing where a package is."""
    try:
        import sentencepiece  # noqa: F401
    except ImportError:  # batches need the ids of its special pieces only, so let them be imported without it
        if name in ("feeding", "fit_batch", *CORPORA):
            yield {"part": name, "skipped": "needs the package sentencepiece"}
            return
        sys.modules["sentencepiece"] = types.ModuleType("sentencepiece")
    try:
        for result in PARTS[name][1](options):
            yield {"part": name} | result
    except ImportError as problem:
        yield {"part": name, "skipped": f"needs the package {problem.name}"}


def main(options: argparse.Namespace) -> None:
    """Runs each part as a process of its own, as long as there is time."""
    end = time.monotonic() + TOTAL_SECONDS
    for name in options.parts or PARTS:
        seconds = min(PARTS[name][0], end - time.monotonic())
        if seconds < 10:
            print(json.dumps({"part": name, "skipped": "no time left"}), flush=True)
            continue
        command = [sys.executable, __file__, "--device", options.device, "--batch-tokens", str(options.batch_tokens)]
        start = time.monotonic()
        try:
            status = subprocess.run([*command, "--only", name], timeout=seconds, check=False).returncode
            problem = {"failed": f"exit code {status}, see its message"} if status else None
        except subprocess.TimeoutExpired:
            problem = {"failed": f"not done in {seconds:.0f} s"}
        if problem is not None:
            print(json.dumps({"part": name} | problem | {"seconds": round(time.monotonic() - start)}), flush=True)


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: a dry run at tiny sizes")
    parser.add_argument("--batch-tokens", type=int, default=25_000, help="tokens of the longer side, in speed parts")
    parser.add_argument("--parts", nargs="+", choices=PARTS, help="these only")
    parser.add_argument("--only", choices=PARTS, help="this part, in this process")
    options = parser.parse_args(arguments)
    options.dry = options.device == "cpu"
    return options


if __name__ == "__main__":
    settings = parse()
    if settings.only:
        for line in run_part(settings.only, settings):
            print(json.dumps(line), flush=True)
    else:
        main(settings)
