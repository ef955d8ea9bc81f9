"""Times translating with one trained run on a CPU by several engines, each in a process of its own, in turn.

    .venv/bin/python scripts/bench_translate.py RUN --source test.en --reference test.de --threads 2 --rounds 3

mt: our own search. mt+ctranslate2 and mt+ctranslate2 int8: through mt's engine. ctranslate2, ctranslate2 int8: called
directly, with its own defaults but the run's beam and length penalty. transformers: generate of an export, where the
architecture has a class there. All of one export; loading is not timed. Sentences a second, by the clock and by CPU
time, in batches and one by one, as medians over rounds; BLEU shows that all do the same work.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

Translate = Callable[[list[str]], list[str]]
ENTRIES = ["mt", "mt+ctranslate2", "mt+ctranslate2 int8", "ctranslate2", "ctranslate2 int8", "transformers"]
SINGLES = 100  # sentences that are translated one by one


def load_mt(run: Path, exports: Path, arguments: argparse.Namespace) -> Translate:
    import torch

    from mt.translation.translator import load_translator

    torch.set_num_threads(arguments.threads)
    return load_translator(run, "cpu").translate


def load_mt_engine(kind: str) -> Callable[[Path, Path, argparse.Namespace], Translate]:
    def load(run: Path, exports: Path, arguments: argparse.Namespace) -> Translate:
        from mt.translation.ctranslate2_engine import load_ctranslate2_translator

        return load_ctranslate2_translator(exports / kind, "cpu").translate

    return load


def load_ctranslate2(kind: str) -> Callable[[Path, Path, argparse.Namespace], Translate]:
    def load(run: Path, exports: Path, arguments: argparse.Namespace) -> Translate:
        import ctranslate2

        from mt.checkpoint import load_config, load_tokenizers

        decode, sides = load_config(run).decode, load_tokenizers(run)
        engine = ctranslate2.Translator(
            str(exports / kind), "cpu", inter_threads=arguments.threads, intra_threads=1, max_queued_batches=-1
        )
        numbers = {piece: i for i, piece in enumerate(sides.target.pieces(list(range(sides.target.size))))}

        def translate(texts: list[str]) -> list[str]:
            pieces = [sides.source.pieces(ids) for ids in sides.source.encode(texts)]
            results = engine.translate_batch(
                pieces, max_batch_size=64, beam_size=decode.beam_size, length_penalty=decode.length_penalty
            )
            return [sides.target.decode([numbers[piece] for piece in r.hypotheses[0]]) for r in results]

        return translate

    return load


def load_transformers(run: Path, exports: Path, arguments: argparse.Namespace) -> Translate:
    import torch
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    torch.set_num_threads(arguments.threads)
    folder = exports / "transformers"
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForSeq2SeqLM.from_pretrained(folder).eval()

    def translate(texts: list[str]) -> list[str]:
        order, found = sorted(range(len(texts)), key=lambda i: -len(texts[i])), {}
        for start in range(0, len(order), 64):
            numbers = order[start : start + 64]
            batch = tokenizer([texts[number] for number in numbers], return_tensors="pt", padding=True)
            with torch.inference_mode():
                output = model.generate(**batch)
            found.update(zip(numbers, tokenizer.batch_decode(output, skip_special_tokens=True), strict=True))
        return [found[number] for number in range(len(texts))]

    return translate


LOADERS = {
    "mt": load_mt,
    "mt+ctranslate2": load_mt_engine("float32"),
    "mt+ctranslate2 int8": load_mt_engine("int8"),
    "ctranslate2": load_ctranslate2("float32"),
    "ctranslate2 int8": load_ctranslate2("int8"),
    "transformers": load_transformers,
}


def measure(arguments: argparse.Namespace, exports: Path) -> dict[str, float]:
    """Returns rates of the engine named in arguments.entry, and its BLEU."""
    import warnings

    from mt.checkpoint import load_config
    from mt.data.files import read_lines
    from mt.evaluation.metrics import score_corpus

    warnings.simplefilter("ignore")  # of unfinished sentences, each time
    texts = list(read_lines(arguments.source))[: arguments.sentences]
    references = list(read_lines(arguments.reference))[: arguments.sentences]
    translate = LOADERS[arguments.entry](arguments.run, exports, arguments)
    translate(texts[:30])  # what is made once
    times, started = os.times(), time.perf_counter()
    found = translate(texts)
    seconds = time.perf_counter() - started
    after = os.times()
    cpu_seconds = after.user + after.system - times.user - times.system
    step = max(len(texts) // SINGLES, 1)
    singles, started = texts[::step][:SINGLES], time.perf_counter()
    for text in singles:
        translate([text])
    single_seconds = time.perf_counter() - started
    language = load_config(arguments.run).data.target_language
    return {
        "sentences_per_second": len(texts) / seconds,
        "sentences_per_cpu_second": len(texts) / cpu_seconds,
        "single_sentences_per_second": len(singles) / single_seconds,
        "bleu": score_corpus(found, references, language)["bleu"].value,
    }


def make_exports(arguments: argparse.Namespace, exports: Path) -> None:
    from mt.checkpoint import load_config
    from mt.export.export import Request, export
    from mt.export.transformers_model import check_fits_transformers

    wanted = {
        "float32": ("ctranslate2", "float32"),
        "int8": ("ctranslate2", "int8"),
        "transformers": ("transformers", None),
    }
    if "transformers" in arguments.entries:
        try:
            check_fits_transformers(load_config(arguments.run).model)
        except ValueError as problem:
            print(f"left out: {problem}", file=sys.stderr)
            arguments.entries.remove("transformers")
    for name, (to, quantization) in wanted.items():
        if to != "transformers" or "transformers" in arguments.entries:
            export(
                Request(
                    arguments.run, exports / name, to, quantization, verify_file=arguments.source, verify_sentences=50
                )
            )


def main(arguments: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as folder:
        make_exports(arguments, Path(folder))
        results: dict[str, list[dict[str, float]]] = {entry: [] for entry in arguments.entries}
        environment = os.environ | {"OMP_NUM_THREADS": str(arguments.threads)}
        for _ in range(arguments.rounds):
            for entry in arguments.entries:
                command = [sys.executable, __file__, *sys.argv[1:], "--entry", entry, "--exports", folder]
                done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
                results[entry].append(json.loads(done.stdout.splitlines()[-1]))
                print(entry, results[entry][-1], file=sys.stderr, flush=True)
    print("| engine | sentences/s | per CPU second | one by one, sentences/s | BLEU |\n| --- | --- | --- | --- | --- |")
    for entry, rounds in results.items():
        cells = [f"{statistics.median(result[key] for result in rounds):.1f}" for key in list(rounds[0])[:3]]
        print(f"| {entry} | {' | '.join(cells)} | {rounds[0]['bleu']:.2f} |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--reference", type=Path, required=True)
    parser.add_argument("--sentences", type=int, default=1000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--entries", nargs="+", choices=ENTRIES, default=[*ENTRIES])
    parser.add_argument("--entry", help=argparse.SUPPRESS)
    parser.add_argument("--exports", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    try:
        if options.entry:
            print(json.dumps(measure(options, options.exports)))
        else:
            main(options)
    except ValueError as problem:
        sys.exit(f"bench_translate: {problem}")
