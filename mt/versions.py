"""What made a run, for the record: versions of mt and of what it stands on, the git commit, the machine."""

import functools
import hashlib
import importlib.metadata
import platform
import subprocess
from pathlib import Path

import torch


def versions() -> dict[str, str | None]:
    """Returns JSON values by name; None where a thing is not there."""
    return {
        "mt": mt_version(),
        "git_commit": _git_commit(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }


def mt_version() -> str:
    """Returns the version of the installed distribution; 'not installed' where mt runs from a bare checkout."""
    try:
        return importlib.metadata.version("mt")
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


@functools.cache
def program_sha256() -> str:
    """Returns the SHA-256 of mt's own Python files, which tells programs of one version and no commit apart."""
    folder, digest = Path(__file__).parent, hashlib.sha256()
    for file in sorted(folder.rglob("*.py")):
        digest.update(file.relative_to(folder).as_posix().encode() + b"\0" + hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()


@functools.cache  # the code that runs is that of the first call, and every checkpoint asks
def _git_commit() -> str | None:
    """Returns the commit that this file belongs to, with -dirty after it where files were changed, or None."""
    here = Path(__file__)
    git = ["git", "-C", str(here.parent)]
    try:  # an installed copy may lie inside the checkout of something else, which does not track this file
        subprocess.run([*git, "ls-files", "--error-unmatch", here.name], check=True, capture_output=True)
        describe = [*git, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
        return subprocess.run(describe, check=True, capture_output=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
