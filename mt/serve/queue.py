"""The sentences of all requests in one queue for each model, translated together.

Sentences are taken from the requests in turn, one of each, so that a long text does not hold up a short one. Each
carries its own future: an answer has no other way to go than to who asked.
"""

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

from mt.translation.lines import Translation

Result = TypeVar("Result")


@dataclass(frozen=True)
class Options:
    """What a request asks of the search. Sentences with equal options are searched together."""

    beam_size: int
    n_best: int = 1
    terms: tuple[tuple[str, str], ...] = ()  # of a glossary: source and target


Search = Callable[[list[str], Options], list[list[Translation]]]


@dataclass(frozen=True)
class _Sentence:
    text: str
    options: Options
    future: "Future[list[Translation]]" = field(default_factory=Future)


class BatchQueue:
    """One thread for a model, which does all that the model does; `search` is called there with batches.

    A batch is what arrives within `wait_seconds`, and at most `batch_sentences`. seen: is told the size of each.
    """

    def __init__(
        self, search: Search, batch_sentences: int, wait_seconds: float, seen: Callable[[int], None] = lambda size: None
    ) -> None:
        self._search, self._most, self._wait_seconds, self._seen = search, batch_sentences, wait_seconds, seen
        self._turns: deque[deque[_Sentence]] = deque()  # of each call of `translate` what is left of it
        self._waiting, self._closed = 0, False
        self._changed = threading.Condition()
        self._model = ThreadPoolExecutor(1, "model")
        self._batches = threading.Thread(target=self._run, name="batches", daemon=True)
        self._batches.start()

    @property
    def waiting(self) -> int:
        """The number of sentences that no batch has taken yet."""
        return self._waiting

    def ask(self) -> "Ticket":
        """Returns a ticket, by which one request has its sentences translated."""
        return Ticket(self)

    def add(self, texts: list[str], options: Options) -> "list[Future[list[Translation]]]":
        """Returns the future translations of sentences, best first. Raises RuntimeError after `close`."""
        sentences = deque(_Sentence(text, options) for text in texts)
        futures = [sentence.future for sentence in sentences]
        with self._changed:
            if self._closed:
                raise RuntimeError("the server is stopping")
            if sentences:
                self._turns.append(sentences)
                self._waiting += len(sentences)
                self._changed.notify()
        return futures

    def call(self, work: Callable[[], Result]) -> "Future[Result]":
        """Returns the future result of other work with the model, which is done between two batches."""
        return self._model.submit(work)

    def close(self, seconds: float | None = None) -> bool:
        """Returns whether all that was added is done: at once, or after so many seconds, when what waits is dropped."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._batches.join(seconds)
        done = not self._batches.is_alive()
        self._model.shutdown(wait=done, cancel_futures=not done)
        return done

    def _run(self) -> None:
        while batch := self._next():
            by_options: dict[Options, list[_Sentence]] = {}
            for sentence in batch:
                by_options.setdefault(sentence.options, []).append(sentence)
            for options, sentences in by_options.items():
                self._seen(len(sentences))
                found = self._model.submit(self._search, [sentence.text for sentence in sentences], options)
                error = found.exception()  # an executor hands over errors of every kind: nobody waits for ever
                for index, sentence in enumerate(sentences):
                    if error is None:
                        sentence.future.set_result(found.result()[index])
                    else:
                        sentence.future.set_exception(error)

    def _next(self) -> list[_Sentence]:
        """Returns the next batch; an empty one says that no more will come."""
        batch: list[_Sentence] = []
        with self._changed:
            while not batch:
                self._changed.wait_for(lambda: self._waiting or self._closed)
                if not self._waiting:
                    return []
                self._changed.wait_for(lambda: self._waiting >= self._most or self._closed, self._wait_seconds)
                while self._turns and len(batch) < self._most:
                    turn = self._turns.popleft()
                    sentence = turn.popleft()
                    self._waiting -= 1
                    if turn:
                        self._turns.append(turn)
                    if sentence.future.set_running_or_notify_cancel():  # False: its client has gone
                        batch.append(sentence)
        return batch


class Ticket:
    """One request's way into a queue."""

    def __init__(self, queue: BatchQueue) -> None:
        self._queue, self._cancelled, self._lock = queue, False, threading.Lock()
        self._futures: list[Future[list[Translation]]] = []

    def translate(self, texts: list[str], options: Options) -> list[list[Translation]]:
        """Returns the translations of each sentence, best first. Raises CancelledError after `cancel`."""
        return self._results(lambda: self._queue.add(texts, options))

    def call(self, work: Callable[[], Result]) -> Result:
        """Returns the result of other work with the model. Raises CancelledError after `cancel`."""
        return self._results(lambda: [self._queue.call(work)])[0]

    def cancel(self) -> None:
        """Drops what the request still waits for."""
        with self._lock:
            self._cancelled = True
            for future in self._futures:
                future.cancel()

    def _results(self, begin: Callable[[], "list[Future[Result]]"]) -> list[Result]:
        with self._lock:
            if self._cancelled:
                raise CancelledError
            self._futures = begin()
        return [future.result() for future in self._futures]
