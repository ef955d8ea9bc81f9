"""What a client may ask for, and what is refused: with a status, a reason and, where it may try again, when."""

import asyncio
import time
from collections import OrderedDict
from dataclasses import dataclass, fields

from starlette.types import ASGIApp, Message, Receive, Scope, Send

_CLIENTS_KNOWN = 10_000  # whose requests are counted; the longest silent one is forgotten


class Refused(Exception):
    """An answer that is no translation: its HTTP status, one line for the client, seconds until a new try."""

    def __init__(self, status: int, reason: str, retry_after_seconds: int | None = None) -> None:
        super().__init__(reason)
        self.status, self.reason, self.retry_after_seconds = status, reason, retry_after_seconds


@dataclass(frozen=True)
class Limits:
    """Of a server. Raises ValueError for one out of range."""

    max_body_bytes: int = 1_000_000  # more: 413
    max_characters: int = 10_000  # of all texts of a request; more: 400
    max_texts: int = 500  # of a request's list; more: 400
    max_beam_size: int = 10  # that a request may ask for; more: 400
    max_alternatives: int = 9  # more: 400
    max_phrases: int = 4  # target terms of a glossary in one sentence, each of which widens the beam; more: 400
    max_requests: int = 256  # at work or waiting; more: 503
    requests_per_minute: int | None = None  # of one client; more: 429
    body_seconds: float = 30  # until a request's body has arrived; later: 408

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None and not 1 <= value <= 10**9:
                raise ValueError(f"--{field.name.replace('_', '-')}={value}: must be between 1 and {10**9}")


class Rates:
    """Counts the requests of each client; a client's allowance comes back evenly (a leaky bucket)."""

    def __init__(self, requests_per_minute: int | None) -> None:
        self._most = requests_per_minute
        self._clients: OrderedDict[str, tuple[float, float]] = OrderedDict()  # requests counted, at this time

    def count(self, client: str, now: float | None = None) -> None:
        """Raises Refused (429) where a client's request comes too early; now: in seconds."""
        if self._most is None:
            return
        now = time.monotonic() if now is None else now
        counted, last = self._clients.pop(client, (0.0, now))
        counted = max(0.0, counted - (now - last) * self._most / 60)
        refused = counted + 1 > self._most
        self._clients[client] = (counted if refused else counted + 1, now)
        if len(self._clients) > _CLIENTS_KNOWN:
            self._clients.popitem(last=False)
        if refused:
            seconds = int((counted + 1 - self._most) * 60 / self._most) + 1
            raise Refused(429, f"Slowdown: {self._most} per 1 minute", seconds)


class BodyLimit:
    """Ends the reading of a body that is too large (413) or too slow (408), at the first byte or second too much."""

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self.app, self.limits = app, limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        most, complete, seen = self.limits.max_body_bytes, False, 0
        end = time.monotonic() + self.limits.body_seconds

        async def limited() -> Message:
            nonlocal complete, seen
            if complete:  # what comes now is a disconnect
                return await receive()
            try:
                message = await asyncio.wait_for(receive(), max(0.0, end - time.monotonic()))
            except TimeoutError:
                raise Refused(408, f"the body took more than {self.limits.body_seconds:g} seconds") from None
            seen += len(message.get("body", b""))
            complete = message["type"] != "http.request" or not message.get("more_body")
            if seen > most:
                raise Refused(413, f"the body has more than {most} bytes, the most that this server takes")
            return message

        await self.app(scope, limited, send)
