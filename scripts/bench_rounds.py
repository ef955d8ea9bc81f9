"""Times ours and the peers in turn, round after round, and prints a Markdown table; bench_peers.sh calls it.

Within a round all run one after the other on the same machine in the same minutes, so ratios are made within rounds.
Every result is also appended to WORK/results.jsonl.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from bench_setting import BOS_ID, EOS_ID, PAD_ID, UNK_ID, add_options
from bench_train import SHAPES, make_config, prepare_corpus

HERE = Path(__file__).parent
ENTRIES = ["mt", "joeynmt", "eole", "marian", "marian+malloc"]
# what mt sets for itself, as any user can for any program: glibc then keeps freed memory instead of giving it back
MALLOC = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "2147483647", "MALLOC_TOP_PAD_": "67108864"}
VALID_PAIRS = 10  # JoeyNMT wants some, though nothing is validated


def main(arguments: argparse.Namespace) -> None:
    write_corpus(arguments)
    results: dict[str, list[dict | None]] = {entry: [] for entry in arguments.entries}
    reasons: dict[str, str] = {}
    for number in range(1, arguments.rounds + 1):
        for entry in arguments.entries:
            start = time.monotonic()
            result, reason = run(entry, arguments)
            results[entry].append(result)
            if result is None:
                reasons[entry] = reason
            else:
                record = {"round": number, "entry": entry, "load_before": os.getloadavg()[0], **result}
                with (arguments.work / "results.jsonl").open("a") as file:
                    file.write(json.dumps(record) + "\n")
            told = reason if result is None else f"{result['tokens_per_second']:,.0f} tokens/s"
            print(f"round {number}: {entry}: {told} ({time.monotonic() - start:.0f} s)", file=sys.stderr, flush=True)
    print(table(results, reasons))


def write_corpus(arguments: argparse.Namespace) -> None:
    """Writes what the peers read: pairs as words t4, t5, ..., one for each piece id, and the vocabulary in that order.

    Pieces themselves would not do: some hold characters that one or the other peer takes for white space.
    """
    folder = arguments.work / "corpus"
    tokenizers, corpus = prepare_corpus(make_config(arguments, SHAPES[arguments.shape]))
    folder.mkdir(exist_ok=True)
    for side, ids in (("source", corpus.source_ids), ("target", corpus.target_ids)):
        lines = [" ".join(f"t{index}" for index in ids(pair)) + "\n" for pair in range(len(corpus))]
        (folder / f"train.{side}").write_text("".join(lines))
        (folder / f"valid.{side}").write_text("".join(lines[:VALID_PAIRS]))
    words = [f"t{index}" for index in range(tokenizers.target.size)]
    words[PAD_ID], words[UNK_ID], words[BOS_ID], words[EOS_ID] = "<pad>", "<unk>", "<s>", "</s>"
    (folder / "vocabulary.txt").write_text("".join(f"{word}\n" for word in words))


def run(entry: str, arguments: argparse.Namespace) -> tuple[dict | None, str]:
    """Returns the result of one program, or None and the reason why there is none."""
    name, _, malloc = entry.partition("+")
    options = ["--work", str(arguments.work), "--shape", arguments.shape, "--batch-tokens", str(arguments.batch_tokens)]
    for option in ("threads", "updates", "warmup", "window"):
        options += [f"--{option}", str(getattr(arguments, option))]
    if name == "mt":
        files = ["--source", str(arguments.source), "--target", str(arguments.target)]
        command = [sys.executable, str(HERE / "bench_train.py"), *files, *options]
    else:
        python = arguments.work / name / "bin" / "python"
        if not (arguments.work / name / "installed").exists():
            return None, f"not installed: {last_line(arguments.work / f'{name}.install.log')}"
        command = [str(python), str(HERE / "bench_peers.py"), name, *options]
    environment = os.environ | {"OMP_NUM_THREADS": str(arguments.threads)} | (MALLOC if malloc else {})
    log = arguments.work / f"{entry}.log"
    try:
        with log.open("w") as errors:
            limit = arguments.limit_minutes * 60
            done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=errors, timeout=limit)
    except subprocess.TimeoutExpired:
        return None, f"not done after {arguments.limit_minutes} minutes"
    if done.returncode != 0:
        return None, f"failed (exit code {done.returncode}): {last_line(log)}"
    return json.loads(done.stdout.decode().splitlines()[-1]), ""


def last_line(log: Path) -> str:
    """Returns the last line of a log that names an error, else its last line, short enough for a table."""
    lines = (
        [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()] if log.exists() else []
    )
    errors = [line for line in lines if "error" in line.lower()]
    return (errors or lines or ["no log"])[-1][:160].replace("|", "/")


HEAD = [
    "trainer", "version", "tokens/s", "ratio to mt", "tokens/update", "padding", "tokens and padding/s", "memory, MB",
    "start, s",
]  # fmt: skip


def table(results: dict[str, list[dict | None]], reasons: dict[str, str]) -> str:
    """Returns medians over the rounds; a ratio is a peer's rate divided by ours of the same round (range behind it)."""
    lines = [f"| {' | '.join(HEAD)} |", "|" + " --- |" * len(HEAD)]
    ours = results.get("mt", [])
    for entry, rounds in results.items():
        done = [result for result in rounds if result is not None]
        if not done:
            lines.append(f"| {entry} | {reasons[entry]} |" + " |" * (len(HEAD) - 2))
            continue
        pairs = [(a, b) for a, b in zip(rounds, ours, strict=False) if a is not None and b is not None]
        ratios = [a["tokens_per_second"] / b["tokens_per_second"] for a, b in pairs]
        cells = [
            entry,
            f"{done[0]['version']}, torch {done[0]['torch']}",
            f"{_median(done, 'tokens_per_second'):,.0f}",
            f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})" if ratios else "-",
            f"{_median(done, 'tokens_per_update'):,.0f}",
            f"{_median(done, 'padding_share'):.1%}",
            f"{_median(done, 'tokens_per_second') / (1 - _median(done, 'padding_share')):,.0f}",
            f"{_median(done, 'peak_memory_mb'):,.0f}",
            f"{_median(done, 'seconds_to_first_update'):.1f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    done = [result for result in ours if result is not None]
    if done:
        share, gflops = _median(done, "roofline_share"), _median(done, "matmul_gflops")
        lines.append(f"\nmt: {done[0]['mflop_per_token']} MFLOP a token, {share:.0%} of the {gflops:.0f} GFLOP/s of")
        lines.append("matrix products alone.")
    return "\n".join(lines)


def _median(results: list[dict], key: str) -> float:
    return statistics.median(result[key] for result in results)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", type=Path, required=True, help="source sentences, one a line (.gz too)")
    parser.add_argument("--target", type=Path, required=True, help="target sentences, one a line (.gz too)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--entries", nargs="+", default=ENTRIES, help="a name with +malloc: with glibc's settings")
    parser.add_argument("--limit-minutes", type=float, default=30, help="for one run of one trainer")
    add_options(parser)
    options = parser.parse_args()
    options.work = options.work.resolve()
    options.work.mkdir(parents=True, exist_ok=True)
    try:
        main(options)
    except ValueError as problem:
        sys.exit(f"bench_rounds: {problem}")
