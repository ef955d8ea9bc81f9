"""Servers of small models with random weights: as an application, and behind a socket."""

import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import uvicorn

from mt.serve.app import create_app
from mt.serve.limits import Limits
from mt.serve.metrics import Metrics
from mt.serve.models import Models, load_served
from mt.serve.server import listen
from tests.export.small_runs import MODEL, make_tokenizers, random_model, save_run

LANGUAGES = {"source": "en", "target": "de"}


def make_run(folder: Path) -> Path:
    """Returns a run from en to de whose outputs depend on their input."""
    tokenizers = make_tokenizers(joint=False)
    return save_run(folder, random_model(replace(MODEL, output_bias=True), tokenizers), tokenizers)


def load(run: Path, engine: str | None = None, batch_sentences: int = 16) -> Models:
    return Models([load_served(run, engine, "cpu", "best", lambda decode: decode, batch_sentences, 0.002)])


def make_app(run: Path, limits: Limits = Limits(), models: Models | None = None, **options):  # noqa: B008
    return create_app(models or load(run), limits, Metrics(), **options)


@contextmanager
def served(app) -> Iterator[str]:
    """Yields the address of a server that ends with the block."""
    with listen("127.0.0.1", 0) as listener:
        server = uvicorn.Server(uvicorn.Config(app, log_config=None, log_level="error", access_log=False))
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(30)
            assert not thread.is_alive()


def at_work(url: str) -> float:
    """Returns how many requests wait for their answers, beside the one that asks for this number."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    return float(next(line.split()[1] for line in lines if line.startswith("mt_requests_at_work "))) - 1


def until(holds: Callable[[], bool]) -> None:
    """Waits for a minute at most."""
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end, "waited for a minute"
        time.sleep(0.02)
