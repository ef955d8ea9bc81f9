"""Folders that appear under their name whole, and replace what had it before."""

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mt.translation.output import exit_on_signals


@contextmanager
def new_folder(out: Path, file: bool = False) -> Iterator[Path]:
    """Yields a new folder beside `out`, which takes its name where the block ends without an error.

    file: the block leaves a file of `out`'s name in the folder, and that is what takes the name. What had the name
    before goes when the new one has it, and stays wherever anything fails.
    """
    out = out.resolve()
    temporary, replaced = (out.with_name(f".{word}-{os.getpid()}-{out.name}") for word in ("tmp", "old"))
    shutil.rmtree(temporary, ignore_errors=True)
    _remove_those_of_killed(out)
    with exit_on_signals():
        temporary.mkdir()
        try:
            yield temporary
            if file:
                os.replace(temporary / out.name, out)
                return
            if out.exists():
                os.replace(out, replaced)
            os.replace(temporary, out)
        finally:
            if replaced.exists() and not out.exists():  # stopped between the two
                os.replace(replaced, out)
            shutil.rmtree(temporary, ignore_errors=True)
            shutil.rmtree(replaced, ignore_errors=True)


def _remove_those_of_killed(out: Path) -> None:
    """Removes what processes that are gone were writing under this name."""
    for path in out.parent.iterdir() if out.parent.is_dir() else ():
        found = re.fullmatch(rf"\.tmp-(\d+)-{re.escape(out.name)}", path.name)
        if found is None:
            continue
        try:
            os.kill(int(found[1]), 0)
        except ProcessLookupError:
            shutil.rmtree(path, ignore_errors=True)
        except OSError:  # another user's, who works
            pass
