"""A big file translated in parts by one process or several: a stopped command goes on, and the parts become the output.

A part's name holds its number and a digest of its lines and of all that its translations depend on, so that only parts
of the very same job are ever used again. A second file holds the digest of the part itself, so that a damaged one is
translated again.
"""

import hashlib
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path

from mt.tensors import sha256
from mt.translation.line_output import LineJob, Way, write_translations
from mt.translation.output import check_folder, open_output
from mt.translation.translator import Translator

PART_LINES = 10_000  # a whole number of what is translated at once, so that parts change no batch


@dataclass(frozen=True)
class Share:
    """The parts of this process: of `count` processes every count-th from its number on; the first joins all parts."""

    number: int = 0
    count: int = 1


def write_in_parts(
    job: LineJob,
    output: Path,
    load: Callable[[], Translator],
    way: Way,
    identity: str,
    share: Share,
    wait: Callable[[], None],
) -> None:
    """Writes the translations of a job to a file, by way of OUTPUT.parts, which is removed then.

    identity: what the translations depend on besides the lines. load: called where a part of the share is missing.
    wait: returns when all processes called it.
    """
    check_folder(output)
    folder, load, names = parts_folder(output), cache(load), []
    if folder.exists() and not folder.is_dir():
        raise ValueError(
            f"{folder}: is in the way, where the parts of {output} are kept: move it, or name another output"
        )
    folder.mkdir(exist_ok=True)
    for number, lines in enumerate(_parts(job.lines)):
        own = number % share.count == share.number
        if not own and share.number != 0:
            continue
        names.append(f"{number:08d}-{_digest(identity, lines)}")
        part = folder / names[-1]
        if own and not _is_whole(part):
            with open_output(part) as file:
                write_translations(job, iter(lines), number * PART_LINES + 1, load, way, file)
            with open_output(_digest_file(part)) as file:
                file.write(sha256(part).encode())
    wait()
    if share.number == 0:
        for name in names:
            if not _is_whole(folder / name):
                raise ValueError(f"{folder / name}: is damaged: give the same command again, which makes it anew")
        with open_output(output) as file:
            for name in names:
                with (folder / name).open("rb") as part:
                    shutil.copyfileobj(part, file)
        shutil.rmtree(folder)


def _is_whole(part: Path) -> bool:
    try:
        return _digest_file(part).read_text(encoding="ascii") == sha256(part)
    except (OSError, ValueError):  # not there yet, or damaged itself
        return False


def _digest_file(part: Path) -> Path:
    return part.with_name(f"{part.name}.sha256")


def parts_folder(output: Path) -> Path:
    """Returns where the parts of an output are kept while it is not complete."""
    return output.with_name(f"{output.name}.parts")


def _parts(lines: Iterator[str]) -> Iterator[list[str]]:
    while part := list(islice(lines, PART_LINES)):
        yield part


def _digest(identity: str, lines: list[str]) -> str:
    digest = hashlib.blake2b(identity.encode(), digest_size=16)
    for line in lines:  # no line holds the LF that ends it
        digest.update(b"\n" + line.encode())
    return digest.hexdigest()
