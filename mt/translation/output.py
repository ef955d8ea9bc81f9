"""Results on disk: complete or not at all."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def open_output(path: Path | None) -> Iterator[BinaryIO]:
    """Yields a binary file that gets its name only when the block ends without an error; None is standard output.

    Devices and pipes such as /dev/null are written directly. Raises OSError where the folder is missing or closed.
    """
    if path is None:
        if sys.stdout is None:
            raise OSError("standard output is closed: nothing can be written to it")
        yield sys.stdout.buffer
        return
    if path.is_dir():
        raise IsADirectoryError(f"{path}: is a folder, not a file to write")
    if path.is_relative_to("/dev") or (path.exists() and not path.is_file()):
        with path.open("ab") as file:  # appending: /dev/stdout may be a file that holds something already
            yield file
        return
    path = path.resolve()  # through a link to the file that it names
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{path}: there is no folder {path.parent} to write to")
    temporary = path.with_name(f".tmp-{path.name}")
    try:
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
