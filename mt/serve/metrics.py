"""What Prometheus reads of a server. No text and no client is named there."""

import time
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_BATCHES = (1, 2, 4, 8, 16, 32, 64, 128)
_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Metrics:
    """Counts of one server."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "mt_requests", "Answers, by path and status.", ["path", "status"], registry=self._registry
        )
        self._seconds = Histogram(
            "mt_request_seconds", "From a request to the end of its answer.", ["path"], buckets=_SECONDS,
            registry=self._registry,
        )  # fmt: skip
        self._at_work = Gauge("mt_requests_at_work", "Requests without an answer yet.", registry=self._registry)
        self._characters = Counter("mt_characters", "Characters given to be translated.", registry=self._registry)
        self._batches = Histogram(
            "mt_batch_sentences", "Sentences that are translated together.", ["model"], buckets=_BATCHES,
            registry=self._registry,
        )  # fmt: skip
        self._waiting = Gauge(
            "mt_waiting_sentences", "Sentences that no batch has taken yet.", ["model"], registry=self._registry
        )

    def watch(self, model: str, waiting: Callable[[], int]) -> None:
        """Reads the queue of a model, by its name, whenever the metrics are read."""
        self._waiting.labels(model).set_function(waiting)

    def batch(self, model: str) -> Callable[[int], None]:
        """Returns what counts the batches of a model."""
        return self._batches.labels(model).observe

    def characters(self, count: int) -> None:
        self._characters.inc(count)

    def text(self) -> bytes:
        """Returns all of it in Prometheus' format."""
        return generate_latest(self._registry)

    def around(self, app: ASGIApp) -> ASGIApp:
        """Returns the application with its requests counted."""

        async def counted(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http":
                await app(scope, receive, send)
                return
            status, begin = 500, time.perf_counter()

            async def watched(message: Message) -> None:
                nonlocal status
                if message["type"] == "http.response.start":
                    status = message["status"]
                await send(message)

            with self._at_work.track_inprogress():
                try:
                    await app(scope, receive, watched)
                finally:  # a path that no route has is no label: there is no end of them
                    path = getattr(scope.get("route"), "path", "other")
                    self._requests.labels(path, str(status)).inc()
                    self._seconds.labels(path).observe(time.perf_counter() - begin)

        return counted
