"""Files that are on the disk, whole, before they have their name; for folders that outlive a kill or a power cut."""

import errno
import json
import os
import shutil
from pathlib import Path
from typing import Any

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # numbers of OSErrors; EDQUOT, EFBIG: a limit of the user's own


def write(file: Path, content: bytes) -> None:
    """Writes a file under a temporary name and renames it: readers see the old content or the new, never a part."""
    temporary = file.with_name(f".tmp-{file.name}")
    write_new(temporary, content)
    os.replace(temporary, file)
    sync(file.parent)


def write_new(file: Path, content: bytes) -> None:
    try:
        with file.open("wb") as output:
            output.write(content)
            output.flush()
            os.fsync(output.fileno())
    except OSError as error:  # a full disk does not tell which file
        raise OSError(error.errno, error.strerror, str(file)) from error


def sync_files(folder: Path) -> None:
    for file in folder.iterdir():
        sync(file)
    sync(folder)


def sync(path: Path) -> None:
    """Waits until a file, or the names in a folder, are on the disk."""
    if os.name == "nt":  # Windows cannot open a folder, and flushes on close
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def to_json(value: Any) -> bytes:
    # backslashreplace: a file name that is no UTF-8 reaches us as lone surrogates, and \udc80 is how JSON spells those
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode("utf-8", errors="backslashreplace")


def remove(path: Path) -> None:
    """Removes a file, a link or a folder, as far as that can be done."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    elif os.path.lexists(path):
        path.unlink()
