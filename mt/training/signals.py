"""Ctrl-C, SIGTERM: the first asks the run to save and stop after the present update, a second ends it at once."""

import signal
from types import FrameType


class StopRequest:
    """A context in which SIGINT and SIGTERM set `received` instead of ending the program."""

    def __init__(self) -> None:
        self.received: str | None = None  # the signal's name
        self._before: dict[signal.Signals, object] = {}

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.received = signal.Signals(number).name
        self._restore()

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def __enter__(self) -> "StopRequest":
        try:
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._handle)
        except ValueError:  # not in the main thread, where Python allows no handlers
            self._before = {}
        return self

    def __exit__(self, *exception: object) -> None:
        self._restore()
