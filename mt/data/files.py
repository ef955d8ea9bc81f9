"""Files of corpora: found by path, folder or pattern, unpacked while they are read, hashed; and the lines of text ones.

Text is bytes split at LF and nowhere else: what other tools take for a line break (CR, U+2028, vertical tab, ...) stays
inside its sentence, so that the two sides of a corpus cannot slip apart. One CR at the end of a line is dropped.
"""

import glob
import gzip
import hashlib
import io
import lzma
import os
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from mt.data.xz import XzFile

COMPRESSIONS = (".gz", ".xz", ".zst")
# What a file that is damaged, or cannot be read, raises while it is unpacked.
READ_ERRORS = (OSError, EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile)
_BOM = b"\xef\xbb\xbf"
_BLOCK_BYTES = 1 << 20
_LINES_BYTES = 1 << 16  # lines decoded at once


def suffixes(name: str) -> tuple[str, str]:
    """Returns the suffix that names a file's format, and the one of its compression (""): ".tsv", ".gz"."""
    compression = next((suffix for suffix in COMPRESSIONS if name.lower().endswith(suffix)), "")
    return Path(name.lower().removesuffix(compression)).suffix, compression


def open_file(path: Path) -> BinaryIO:
    """Returns the file, unpacked while it is read if it ends in .gz, .xz or .zst. Raises OSError."""
    compression = suffixes(path.name)[1]
    if compression == ".gz":
        return io.BufferedReader(gzip.open(path, "rb"))  # whose own lines come far more slowly
    if compression == ".xz":
        return io.BufferedReader(XzFile(path), _BLOCK_BYTES)
    if compression == ".zst":
        import pyarrow  # which tells of a file that is cut off, and goes on where a second frame follows

        return io.BufferedReader(pyarrow.CompressedInputStream(pyarrow.OSFile(str(path)), "zstd"))
    return open(path, "rb")


def read_lines(path: Path) -> Iterator[str]:
    """Yields the lines of a UTF-8 text file (.gz, .xz and .zst too), split at LF only.

    A byte order mark at the start and one CR at the end of a line are dropped. Raises ValueError with file and line for
    bytes that are not UTF-8 text, and for a file that cannot be read.
    """
    try:
        with open_file(path) as file:
            yield from text_lines(file, str(path))
    except READ_ERRORS as error:
        raise ValueError(f"{path}: {reason(error)}") from error


def text_lines(file: BinaryIO, name: str) -> Iterator[str]:
    """Yields the lines of a binary file as `read_lines` does; `name` stands in messages."""
    number = 1  # of a block's first line
    while block := file.readlines(_LINES_BYTES):
        if number == 1 and block[0].removesuffix(b"\n").count(b"\r") > 1 and len(block) == 1:
            raise ValueError(
                f"{name}: is one line, with carriage returns (CR) in it: lines must end in LF or CR LF: convert the "
                "file, as tr '\\r' '\\n' does"
            )
        yield from _decode_block(block, name, number)
        number += len(block)


def _decode_block(block: list[bytes], name: str, number: int) -> Iterable[str]:
    """Returns the lines of a file from line `number` on: all at once where nothing about them is special."""
    try:
        text = b"".join(block).decode("utf-8")
    except UnicodeDecodeError:
        return decode_lines(block, name, number)
    if number == 1 or "\0" in text or "\r" in text:
        return decode_lines(block, name, number)
    return text.removesuffix("\n").split("\n")


def decode_lines(file: Iterable[bytes], name: str, first_number: int = 1, encoding: str = "utf-8") -> Iterator[str]:
    """Yields the lines of a binary stream, such as standard input, as `read_lines` does.

    `name` and the number of a line, of which the first is first_number, stand in messages.
    """
    for number, line in enumerate(file, first_number):
        if number == 1:
            line = line.removeprefix(_BOM)
        line = line.removesuffix(b"\n").removesuffix(b"\r")
        if b"\0" in line:
            raise ValueError(f"{name}, line {number}: has a NUL byte: must be UTF-8 text: convert the file")
        try:
            yield line.decode(encoding)
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{name}, line {number}: byte {error.start + 1} (0x{line[error.start]:02x}) is not valid "
                f"{encoding.upper()}: convert the file"
            ) from error


def reason(error: Exception) -> str:
    """Returns why a file could not be read, in one line of bounded length."""
    return " ".join((getattr(error, "strerror", None) or str(error) or type(error).__name__).split())[:300]


def files_of(path: str, setting: str, formats: Iterable[str]) -> list[Path]:
    """Returns the files that a path means: itself, those of a folder and its folders, or those that fit a pattern.

    Of a folder, files that end in one of `formats` count (compressed too), hidden ones do not. The order is that of
    their paths, by code points. Raises ValueError, naming the setting, where there is none.
    """
    found, formats = Path(path), tuple(formats)
    try:
        if found.is_dir():
            files = [file for file in _all_in(found) if suffixes(file.name)[0] in formats]
            kinds = ", ".join(formats)
            missing = f"{setting}={path}: the folder holds no file of a known format ({kinds})"
        elif not found.exists() and glob.has_magic(path):
            files = [Path(file) for file in set(glob.iglob(path, recursive=True)) if Path(file).is_file()]
            missing = f"{setting}={path}: no file fits the pattern"
        else:
            return [found]
    except (OSError, ValueError) as error:  # ValueError: the path has a NUL character
        raise ValueError(f"{setting}={path}: {reason(error)}") from error
    if not files:
        raise ValueError(missing)
    return sorted(files, key=lambda file: file.as_posix())


def _all_in(folder: Path) -> Iterator[Path]:
    """Yields the files of a folder and its folders, linked ones too, each once; hidden ones are left out."""
    seen = set[str]()
    for place, folders, names in os.walk(folder, followlinks=True):
        if (real := os.path.realpath(place)) in seen:  # a link back
            folders.clear()
            continue
        seen.add(real)
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (file for name in names if not name.startswith(".") and (file := Path(place, name)).is_file())


def check_file(setting: str, path: str, count_lines: bool = True) -> int:
    """Returns the number of lines. Raises ValueError, naming the setting, for a missing, unreadable or empty file.

    Where lines do not count, only compressed files are read to their end.
    """
    if Path(path).exists() and not Path(path).is_file() and not Path(path).is_dir():
        raise ValueError(f"{setting}={path}: is a pipe or device, but corpora are read more than once: give a file")
    lines, last, whole = 0, b"", count_lines or suffixes(path)[1]
    try:
        with open_file(Path(path)) as file:
            while block := file.read(_BLOCK_BYTES):
                lines += block.count(b"\n")
                last = block
                if not whole:
                    break
    except (*READ_ERRORS, ValueError) as error:  # ValueError: the path has a NUL character
        raise ValueError(f"{setting}={path}: {reason(error)}") from error
    if not last:
        raise ValueError(f"{setting}={path}: the file is empty")
    return lines + (not last.endswith(b"\n"))  # a last line without newline counts


def file_digest(setting: str, path: str | Path) -> str:
    """Returns the SHA-256 hex digest of a file as it is stored. Raises ValueError, naming the setting."""
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ValueError(f"{setting}={path}: {reason(error)}") from error
