"""Results on disk: complete or not at all."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import BinaryIO

from mt.durable import NO_ROOM


@contextmanager
def open_output(path: Path | None) -> Iterator[BinaryIO]:
    """Yields a binary file that gets its name only when the block ends without an error; None is standard output.

    Devices and pipes such as /dev/null are written directly. SIGTERM and SIGHUP end the block, and the program with
    128 + the signal's number, so that no unfinished file stays. Raises OSError where the folder is missing or closed,
    and, naming the file, where there is no room.
    """
    try:
        with _open(path) as file:
            yield file
    except OSError as error:
        if error.errno in NO_ROOM and error.filename is None:  # writing, unlike opening, does not tell
            error.filename = "standard output" if path is None else str(path)
        raise


def check_folder(path: Path) -> None:
    """Raises OSError where a file to write is a folder or its own folder is missing: for asking before long work."""
    if path.is_dir():
        raise IsADirectoryError(f"{path}: is a folder, not a file to write")
    path = path.resolve()
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{path}: there is no folder {path.parent} to write to")


@contextmanager
def _open(path: Path | None) -> Iterator[BinaryIO]:
    if path is None:
        if sys.stdout is None:
            raise OSError("standard output is closed: nothing can be written to it")
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    if path.is_relative_to("/dev") or (path.exists() and not path.is_file() and not path.is_dir()):
        with path.open("ab") as file:  # appending: /dev/stdout may be a file that holds something already
            yield file
        return
    path = path.resolve()  # through a link to the file that it names
    check_folder(path)
    temporary = path.with_name(f".tmp-{os.getpid()}-{path.name}")  # two programs may write to one name
    with exit_on_signals():
        try:
            with temporary.open("wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)


@contextmanager
def exit_on_signals() -> Iterator[None]:
    """Lets SIGTERM and SIGHUP raise SystemExit (SIGINT raises KeyboardInterrupt), where they would end the program."""

    def leave(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    replaced = [number for number in numbers if signal.getsignal(number) == signal.SIG_DFL]
    try:
        for number in replaced:
            signal.signal(number, leave)
    except ValueError:  # not in the main thread, where Python allows no handlers
        replaced = []
    try:
        yield
    finally:
        for number in replaced:
            signal.signal(number, signal.SIG_DFL)
