"""The server as a process: its address, its signals, its end."""

import asyncio
import ipaddress
import os
import signal
import socket
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import uvicorn
from fastapi import FastAPI

_STOP_SECONDS = 30  # for requests to be answered after SIGTERM
_TELL_SECONDS = 5  # before that, those who wait are told
_IDLE_SECONDS = 30  # a connection without a request is closed


def listen(host: str, port: int) -> socket.socket:
    """Returns a socket that listens; port 0 is any free one. Raises ValueError where it cannot."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=1024)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ValueError(f"--host={host} --port={port}: cannot be served: {reason}") from error
    # Its connections have this too. Without it the body of an answer waits until the client has acknowledged the
    # head, which takes 40 milliseconds on a connection that stays open; asyncio sets it on sockets of its own alone.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def is_loopback(host: str) -> bool:
    """Returns whether only this machine can reach a host."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def read_keys(path: Path) -> list[str]:
    """Returns the API keys of a file, one a line. Raises ValueError where there is none."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"--api-keys={path}: {getattr(error, 'strerror', None) or 'must be UTF-8 text'}") from error
    keys = [line.strip() for line in text.splitlines() if line.strip()]
    if not keys:
        raise ValueError(f"--api-keys={path}: has no key; each line is one")
    return keys


def serve(make_app: Callable[[], FastAPI], listener: socket.socket) -> None:
    """Answers requests until SIGTERM or Ctrl-C; those that it has are answered first. Prints its address on stderr.

    Exits with 0 after SIGTERM; raises KeyboardInterrupt after Ctrl-C.
    """
    known = set(threading.enumerate())
    before = signal.signal(signal.SIGTERM, _end)  # while models are loaded, and when uvicorn has stopped
    try:
        with listener, warnings.catch_warnings():
            app = make_app()
            warnings.simplefilter("ignore")  # on sentences, whose text belongs in no log
            host, port = listener.getsockname()[:2]
            print(f"serving http://{f'[{host}]' if ':' in host else host}:{port}/", file=sys.stderr, flush=True)
            config = uvicorn.Config(
                app,
                log_config=None,
                log_level="warning",
                access_log=False,
                server_header=False,
                timeout_keep_alive=_IDLE_SECONDS,
                timeout_graceful_shutdown=_STOP_SECONDS,
            )
            _Server(config).run(sockets=[listener])
    finally:
        signal.signal(signal.SIGTERM, before)
        ended = isinstance(sys.exception(), SystemExit | KeyboardInterrupt)
        if ended and any(not thread.daemon for thread in set(threading.enumerate()) - known):
            sys.stderr.flush()  # a search goes on that nobody waits for, but Python would
            os._exit(0 if isinstance(sys.exception(), SystemExit) else 130)


class _Server(uvicorn.Server):
    """Tells those who wait, shortly before uvicorn would break off."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        asyncio.get_running_loop().call_later(_STOP_SECONDS - _TELL_SECONDS, self.config.app.state.stop)
        await super().shutdown(sockets)


def _end(number: int, frame: FrameType | None) -> None:
    sys.exit(0)
