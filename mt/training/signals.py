"""Ctrl-C, SIGTERM, SIGHUP and the time limit of a session: a run is asked to save and stop after the present update."""

import signal
import time
from types import FrameType

# SIGHUP: the terminal is gone; where it is ignored (nohup), it stays so
SIGNALS = [signal.SIGINT, signal.SIGTERM] + ([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])
SESSION_LIMIT = 1000  # stands among the numbers of signals for the limit of the session
SESSION_LIMIT_NAME = "max_session_minutes"


class StopRequest:
    """A context in which SIGINT, SIGTERM and SIGHUP set `received` instead of ending the program.

    A second one ends it at once.
    session_end: time.monotonic() at which the session is over, or None.
    """

    def __init__(self, session_end: float | None = None) -> None:
        self.received: signal.Signals | None = None
        self.session_end = session_end
        self._before: dict[signal.Signals, object] = {}

    def number(self) -> int:
        """Returns why to stop: a signal's number, SESSION_LIMIT, or 0 to go on."""
        if self.received is not None:
            return int(self.received)
        over = self.session_end is not None and time.monotonic() >= self.session_end
        return SESSION_LIMIT if over else 0

    @staticmethod
    def name_of(number: int) -> str | None:
        """Returns "SIGTERM", "SIGINT" or "max_session_minutes" for what `number` returned, None for 0."""
        if number == SESSION_LIMIT:
            return SESSION_LIMIT_NAME
        return signal.Signals(number).name if number else None

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.received = signal.Signals(number)
        self._restore()

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def __enter__(self) -> "StopRequest":
        try:
            for number in SIGNALS:
                if signal.getsignal(number) != signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._handle)
        except ValueError:  # not in the main thread, where Python allows no handlers
            self._before = {}
        return self

    def __exit__(self, *exception: object) -> None:
        self._restore()
