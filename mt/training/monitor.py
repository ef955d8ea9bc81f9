"""What a run tells while it trains: a progress bar or plain lines on stderr, log.jsonl, and TensorBoard.

log.jsonl holds one JSON object a line, in the order of events: {"event": "train", "step": 50, "time": …, "loss": …}.
Numbers that are not finite are null there, since JSON has no NaN.
"""

import datetime
import importlib.util
import json
import math
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

from mt.tokenizer import without_separators

if TYPE_CHECKING:
    import numpy as np
    from torch.utils.tensorboard import SummaryWriter


class Monitor:
    """Reports one run; a context manager. Resuming appends to what is there.

    A monitor that is not `heard` does nothing: of several ranks only the first reports.
    """

    def __init__(self, run_dir: Path, tensorboard: bool, heard: bool = True) -> None:
        self._bar: Progress | None = None
        self._deaf = False  # whether stderr takes nothing more
        self._log: BinaryIO | None = None
        self._writer: SummaryWriter | None = None  # made at the first step, which tells it where a resumed run goes on
        self._draws = importlib.util.find_spec("matplotlib") is not None
        if not heard:
            self._tensorboard_dir = None
            return
        run_dir.mkdir(parents=True, exist_ok=True)
        self._tensorboard_dir = run_dir / "tensorboard" if tensorboard else None
        self._log = _open_log(run_dir / "log.jsonl")
        self._reference: tuple[float, float] | None = None  # progress and seconds at this session's first report
        console = Console(stderr=True)
        if console.is_terminal:
            columns = (BarColumn(), TaskProgressColumn(), TextColumn("{task.description}", markup=False))
            # no refresh thread: it would take time from training; stdout is left alone
            self._bar = Progress(*columns, console=console, auto_refresh=False, redirect_stdout=False)
            self._task = self._bar.add_task("", total=1.0)

    def __enter__(self) -> "Monitor":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def message(self, text: str) -> None:
        """Shows one line of text and logs it."""
        self._show(text)
        self.event("message", {"text": text})

    def train(self, step: int, values: dict[str, float], progress: float) -> None:
        """Reports training values such as loss, lr and tokens_per_second after a step.

        progress: share of the run that is done, 0 to 1; the time left is estimated from it.
        """
        if self._log is None:
            return
        self._record("train", step, values)
        line = f"step {step:,}  {_format(values)}  left {self._time_left(progress)}"
        if self._bar is None:
            self._show(f"{progress:4.0%}  {line}")
        else:
            self._bar.start()
            self._bar.update(self._task, completed=progress, description=line, refresh=True)

    def validation(self, step: int, values: dict[str, float], samples: list[tuple[str, str, str]]) -> None:
        """Reports validation values, and samples of source, translation and reference."""
        named = [dict(zip(("source", "translation", "reference"), sample, strict=True)) for sample in samples]
        self._record("valid", step, values, {"samples": named})
        # what a corpus holds must not control the terminal
        named = [{name: without_separators(text) for name, text in sample.items()} for sample in named]
        self._show(f"step {step:,}  validation: {_format(values)}")
        for sample in named:
            self._show("\n".join(f"    {name:<12} {text}" for name, text in sample.items()))
        if self._writer is not None and named:
            blocks = ["".join(f"    {name:<12} {text}\n" for name, text in sample.items()) for sample in named]
            self._writer.add_text("valid/samples", "\n".join(blocks), step)  # Markdown: indented text stays as it is

    @property
    def shows_images(self) -> bool:
        """Whether images go anywhere; known after the first values of a session."""
        return self._writer is not None and self._draws

    def image(self, step: int, name: str, pixels: "np.ndarray") -> None:
        """Puts an image, [height, width, 4] float32 from 0 to 1, into TensorBoard."""
        if self._writer is not None:
            self._writer.add_image(name, pixels, step, dataformats="HWC")

    def event(self, name: str, values: dict[str, Any]) -> None:
        """Adds one line to log.jsonl; shows nothing."""
        self._write({"event": name, **values})

    def close(self) -> None:
        """Ends the progress bar and closes the files; a second call does nothing."""
        if self._bar is not None:
            self._bar.stop()
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        if self._log is not None:
            self._log.close()

    def _record(self, kind: str, step: int, values: dict[str, float], more: dict[str, Any] | None = None) -> None:
        self._write({"event": kind, "step": step, **values, **(more or {})})
        if self._writer is None and self._tensorboard_dir is not None:
            self._open_tensorboard(self._tensorboard_dir, step)
        if self._writer is not None:
            for name, value in values.items():
                self._writer.add_scalar(f"{kind}/{name}", value, step)

    def _open_tensorboard(self, folder: Path, step: int) -> None:
        self._tensorboard_dir = None  # one try
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            self.message("tensorboard is not installed, so no curves are written: pip install tensorboard")
            return
        if not self._draws:
            self.message("matplotlib is not installed, so TensorBoard gets no attention: pip install matplotlib")
        # what an interrupted session wrote at or after this step was never saved in a checkpoint: hidden
        self._writer = SummaryWriter(str(folder), purge_step=step)

    def _time_left(self, progress: float) -> str:
        """Returns hours, minutes and seconds; unknown until this session has made progress."""
        now = time.monotonic()
        if self._reference is None:
            self._reference = (progress, now)
        first_progress, first_seconds = self._reference
        if progress <= first_progress:
            return "?"
        seconds = (now - first_seconds) / (progress - first_progress) * max(1 - progress, 0)
        return str(datetime.timedelta(seconds=round(seconds)))

    def _show(self, text: str) -> None:
        if self._log is None or self._deaf:
            return
        if self._bar is None:
            try:
                print(text, file=sys.stderr, flush=True)
            except OSError:  # who read it has gone, such as `| head`: the training goes on, and its log
                self._deaf = True
        else:
            self._bar.console.print(text, markup=False, highlight=False, emoji=False, soft_wrap=True)

    def _write(self, record: dict[str, Any]) -> None:
        if self._log is None:
            return
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        finite = {name: None if _is_not_finite(value) else value for name, value in record.items()}
        text = json.dumps({**finite, "time": now}, ensure_ascii=False, allow_nan=False)
        try:
            self._log.write(text.encode("utf-8", errors="backslashreplace") + b"\n")
            self._log.flush()
        except OSError as error:
            raise OSError(error.errno, error.strerror, self._log.name) from error


def _open_log(file: Path) -> BinaryIO:
    """Returns the binary file, opened to append; a last line that a kill cut off is ended first."""
    log = file.open("a+b")
    if log.tell() > 0:
        log.seek(-1, 2)
        if log.read(1) != b"\n":
            log.write(b"\n")
    return log


def _is_not_finite(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def _format(values: dict[str, float]) -> str:
    parts = []
    for name, value in values.items():
        number = f"{value:,.0f}" if math.isfinite(value) and abs(value) >= 1000 else f"{value:.4g}"
        parts.append(f"{name.replace('_per_second', '/s').replace('_', ' ')} {number}")
    return "  ".join(parts)
