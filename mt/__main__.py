"""The command line: `mt` and `python -m mt`. The one place where an error becomes a line on stderr and an exit code."""

import os
import re
import sys
import time
import warnings

import typer

from mt.commands.app import app
from mt.durable import NO_ROOM

USER_ERROR = 2
SECONDS_FOR_THE_FIRST_RANK = 10.0  # to say what all ranks met
INTERRUPTED = 130  # 128 + SIGINT
_UsageError = typer.BadParameter.__base__  # of the command line as such; typer gives it no name of its own


def main() -> None:
    """Runs a command. Exits with 2 for an error that the user can mend, 130 after Ctrl-C."""
    warnings.showwarning = _show_warning
    if sys.stderr is None:  # closed by who started us; print would fall back on stdout, among the results
        sys.stderr = open(os.devnull, "w")
    try:
        code = app(standalone_mode=False)  # an exit code where a command ended early, such as --help's 0
        sys.exit(code if isinstance(code, int) else 0)
    except _UsageError as error:
        print(f"error: {_describe_usage(error)}", file=sys.stderr)
        sys.exit(USER_ERROR)
    except (ValueError, OSError) as error:  # OSError: a file that is missing or closed to us, a full disk
        _report(_describe(error))
        sys.exit(USER_ERROR)
    except (RuntimeError, MemoryError) as error:  # torch reports memory that is not there as a RuntimeError
        if not isinstance(error, MemoryError) and not re.search("allocate memory|out of memory", str(error)):
            raise
        reason = " ".join(str(error).split())[:200]
        remedy = "make the model, the vocabulary, trainer.batch_tokens or decode.batch_tokens smaller"
        print(f"error: out of memory ({reason}): {remedy}", file=sys.stderr)
        sys.exit(USER_ERROR)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def _report(text: str) -> None:
    """Shows an error; of several ranks that meet it before they are connected, and so all alike, the first does.

    The others wait: torchrun ends all when one has ended, and the first may be late. Where it does not end them, the
    error is theirs alone.
    """
    rank = os.environ.get("RANK", "0")
    distributed = sys.modules.get("torch.distributed")
    if rank == "0":
        print(f"error: {text}", file=sys.stderr)
        return
    if distributed is None or not distributed.is_initialized():
        time.sleep(SECONDS_FOR_THE_FIRST_RANK)
    print(f"rank {rank}: error: {text}", file=sys.stderr)


def _describe(error: ValueError | OSError) -> str:
    text = str(error)
    if isinstance(error, OSError) and error.strerror:
        text = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
        if error.errno in NO_ROOM:
            where = " (run_dir, data.cache_dir)" if sys.argv[1:2] == ["train"] else ""
            text += f"; make room on that disk{where}, and give the same command again"
    return " ".join(text.split())


def _describe_usage(error: typer.BadParameter) -> str:
    text = " ".join(error.format_message().split())
    return f"{text.rstrip('.')}; {error.ctx.command_path} --help shows the usage" if error.ctx else text


def _show_warning(message: Warning | str, category: type[Warning], *place: object) -> None:
    print(f"warning: {message}", file=sys.stderr)


if __name__ == "__main__":
    main()
