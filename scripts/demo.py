"""The program behind `make demo`: gets a real English-Chinese corpus, trains on it, scores the model, translates.

Started again it goes on where it was stopped, and repeats nothing that is done.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import get_tatoeba_en_zh

from mt import checkpoint

ROOT = Path(__file__).parents[1]
RUN = Path("runs/demo")  # below ROOT, where the commands run
SENTENCES = [
    "I love china",
    "Where is the train station?",
    "she doesn't like coffee",
    "We are learning Chinese together.",
    "What time is it?",
]


def main() -> None:
    """Runs every step that is not done yet. Raises ValueError or OSError in one line where one fails."""
    get_tatoeba_en_zh.main([])
    train(ROOT / RUN)
    print(evaluate(ROOT / RUN))
    translations = run_mt(["translate", str(RUN)], "\n".join(SENTENCES) + "\n").rstrip("\n").split("\n")
    width = max(map(len, SENTENCES))
    for sentence, translation in zip(SENTENCES, translations, strict=True):
        print(f"{sentence:<{width}}  {translation}")
    print(how_to_go_on())


def train(run_dir: Path) -> None:
    """Trains, or goes on training, until the run is finished."""
    if is_finished(run_dir):
        print(f"{RUN}: trained already", file=sys.stderr)
        return
    # Ctrl-C reaches the training too, which then saves: wait for that. (Ignoring the signal would be inherited.)
    before = signal.signal(signal.SIGINT, lambda number, frame: None)
    try:
        command = [sys.executable, "-m", "mt", "train", "experiment=demo", f"run_dir={RUN}"]
        code = subprocess.Popen(command, cwd=ROOT).wait()
    finally:
        signal.signal(signal.SIGINT, before)
    if not is_finished(run_dir):
        remedy = "start the demo again to go on" if checkpoint.list_checkpoints(run_dir) else "see the message above"
        raise ValueError(f"training stopped before its end (exit code {code}); {remedy}")


def is_finished(run_dir: Path) -> bool:
    """Returns whether the run was trained to its end."""
    if not checkpoint.is_run(run_dir) or not checkpoint.is_pointed(run_dir, "last"):
        return False
    return checkpoint.read_state(checkpoint.pointed(run_dir, "last"))["finished"]


def evaluate(run_dir: Path) -> str:
    """Returns what `mt evaluate` prints for the best checkpoint; kept in results/, so that it is computed once."""
    best = checkpoint.pointed(run_dir, "best")
    kept = run_dir / "results" / f"demo_{best.name}.txt"
    if not kept.is_file():
        result = run_mt(["evaluate", str(RUN)])
        kept.parent.mkdir(exist_ok=True)
        temporary = kept.with_suffix(".tmp")
        temporary.write_bytes(result.encode())
        os.replace(temporary, kept)
    return kept.read_bytes().decode().rstrip("\n")


def run_mt(arguments: Sequence[str], standard_input: str = "") -> str:
    """Returns the standard output of an mt command; its messages go to our stderr."""
    command = [sys.executable, "-m", "mt", *arguments]
    result = subprocess.run(command, cwd=ROOT, input=standard_input.encode(), stdout=subprocess.PIPE, check=False)
    if result.returncode != 0:
        raise ValueError(f"mt {arguments[0]} failed (exit code {result.returncode}); see the message above")
    return result.stdout.decode()


def how_to_go_on() -> str:
    """Returns commands to try next, which work from the project's folder without activating the environment."""
    folder = Path(sys.executable).parent
    programs = folder.relative_to(ROOT) if folder.is_relative_to(ROOT) else folder
    return f"""
To go on, from {ROOT}:
  {programs / "mt"} translate {RUN} "Your own sentence."
  {programs / "mt"} translate {RUN} < in.txt > out.txt
  {programs / "mt"} evaluate {RUN} --source FILE --reference FILE
  {programs / "tensorboard"} --logdir {RUN / "tensorboard"}"""


if __name__ == "__main__":
    try:
        main()
    except (OSError, ValueError) as problem:
        sys.exit(f"demo: {problem}")
