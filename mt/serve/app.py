"""The server's paths: those of the LibreTranslate API, and what its page, Prometheus and a start script ask for."""

import asyncio
import hmac
import json
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import Annotated, Any, TypeVar

from fastapi import Depends, FastAPI
from fastapi.responses import JSONResponse, Response, StreamingResponse
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Receive, Scope, Send

from mt.serve.bodies import AlternativesBody, Body, DetailsBody, DetectBody, Failed, Read, TranslateBody, Translated
from mt.serve.languages import detect, language_name
from mt.serve.limits import BodyLimit, Limits, Rates, Refused
from mt.serve.metrics import CONTENT_TYPE, Metrics
from mt.serve.models import Models, ServedModel, Work
from mt.serve.queue import Options, Ticket

CLIENT_GONE = 499  # as nginx has it; nobody sees it but the metrics
STOPPING = "the server is stopping"
CLOSE_SECONDS = 2.0  # for a search that nobody waits for any more
RETRY_SECONDS = 1  # when the queue is full
_PAGE_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
_PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
_Result = TypeVar("_Result")


class Desk:
    """Takes requests to the models: checks who asks and for how much, and watches for clients that go away."""

    def __init__(self, models: Models, limits: Limits, keys: Sequence[str], metrics: Metrics) -> None:
        self.models, self.limits, self.keys, self.metrics = models, limits, list(keys), metrics
        self._rates, self._at_work = Rates(limits.requests_per_minute), 0
        self._threads = ThreadPoolExecutor(limits.max_requests, "request")
        self.stopping = asyncio.Event()  # whoever waits for the model then waits no longer

    def check(self, request: Request, body: Body) -> None:
        """Raises Refused where the client has no key (403) or comes too often (429)."""
        scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
        bearer = bearer.strip().encode("latin-1").decode("utf-8", "replace") if scheme.lower() == "bearer" else ""
        given = body.api_key or request.query_params.get("api_key") or bearer
        client = request.client.host if request.client else ""
        if self.keys and not any([hmac.compare_digest(given.encode(), key.encode()) for key in self.keys]):
            self._rates.count(f"without a key {client}")  # so that keys are not guessed one after the other
            raise Refused(403, "Invalid API key" if given else "this server asks for an API key: parameter api_key")
        self._rates.count(given if self.keys else client)

    def check_size(self, texts: Sequence[str]) -> None:
        """Raises Refused (400) for more texts or characters than a request may have."""
        characters, limits = sum(map(len, texts)), self.limits
        if characters > limits.max_characters:
            reason = f"request ({characters}) exceeds text limit ({limits.max_characters})"
            raise Refused(400, f"Invalid request: {reason}")
        if len(texts) > limits.max_texts:
            raise Refused(400, f"Invalid request: request ({len(texts)}) exceeds batch limit ({limits.max_texts})")
        self.metrics.characters(characters)

    def options(self, body: TranslateBody, model: ServedModel) -> Options:
        """Returns what the body asks of the search. Raises Refused (400) for more than a request may ask."""
        limits = self.limits
        for name, value, most in (
            ("beam_size", body.beam_size or 1, limits.max_beam_size),
            ("alternatives", body.alternatives, limits.max_alternatives),
        ):
            if value > most:
                raise Refused(400, f"Invalid request: '{name}' parameter must be <= {most}")
        beam_size = max(body.beam_size or model.translator.decode.beam_size, body.alternatives + 1)
        terms = tuple(sorted((source.strip(), target.strip()) for source, target in body.glossary.items()))
        if not all(source and target for source, target in terms):
            raise Refused(400, "glossary: a term is empty")
        return Options(beam_size, body.alternatives + 1, terms)

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """Raises Refused (503) where all places are taken."""
        if self._at_work >= self.limits.max_requests:
            raise Refused(503, "the server is busy: try again", RETRY_SECONDS)
        self._at_work += 1
        try:
            yield
        finally:
            self._at_work -= 1

    async def work(self, request: Request, ticket: Ticket, work: Callable[[], _Result]) -> _Result:
        """Returns what the work of a ticket returns. Raises ClientDisconnect, and drops it, when the client goes."""
        async with self.place():
            result = self.in_thread(work)
            gone = asyncio.ensure_future(_disconnected(request))
            stopped = asyncio.ensure_future(self.stopping.wait())
            try:
                await asyncio.wait({result, gone, stopped}, return_when=asyncio.FIRST_COMPLETED)
                if result.done():
                    return result.result()
                raise Refused(503, STOPPING) if stopped.done() else ClientDisconnect
            finally:
                gone.cancel()
                stopped.cancel()
                ticket.cancel()

    def in_thread(self, work: Callable[[], _Result]) -> "asyncio.Future[_Result]":
        result = asyncio.get_running_loop().run_in_executor(self._threads, work)
        result.add_done_callback(lambda done: done.cancelled() or done.exception())  # somebody has seen it
        return result

    def close(self) -> None:
        done = self.models.close(CLOSE_SECONDS)
        self._threads.shutdown(wait=done, cancel_futures=not done)


class _Stream(StreamingResponse):
    """Sends lines of JSON as they come; whatever ends it, the ticket is given back."""

    def __init__(self, desk: Desk, ticket: Ticket, place: Any, pairs: Iterator[tuple[str, str]]) -> None:
        super().__init__(self._lines(), media_type="application/x-ndjson")
        self._desk, self._ticket, self._place, self._pairs = desk, ticket, place, pairs

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._ticket.cancel()
            await self._place.__aexit__(None, None, None)

    async def _lines(self) -> AsyncIterator[bytes]:
        try:
            while (pair := await self._next()) is not None:
                yield _line({"source": pair[0], "translation": pair[1]})
        except Refused as error:
            yield _line({"error": error.reason})

    async def _next(self) -> tuple[str, str] | None:
        result = self._desk.in_thread(lambda: next(self._pairs, None))
        stopped = asyncio.ensure_future(self._desk.stopping.wait())
        try:
            await asyncio.wait({result, stopped}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()
        if not result.done():
            raise Refused(503, STOPPING)
        return result.result()


def create_app(
    models: Models, limits: Limits, metrics: Metrics, keys: Sequence[str] = (), origins: Sequence[str] = ()
) -> FastAPI:
    """Returns the application; it closes the models when the server stops.

    keys: of which a request must have one; none: anyone may ask. origins: of other web pages that may ask, or *.
    """
    desk = Desk(models, limits, keys, metrics)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(desk.close)

    app = FastAPI(title="mt", lifespan=lifespan, docs_url=None, redoc_url=None, responses={400: {"model": Failed}})
    app.router.redirect_slashes = False
    app.state.stop = desk.stopping.set
    for model in models.all:
        metrics.watch(model.name, lambda model=model: model.queue.waiting)
    _add_translation(app, desk)
    _add_details(app, desk)
    _add_settings(app, desk)
    _add_page(app)
    _add_errors(app)
    app.add_middleware(BodyLimit, limits=limits)
    app.add_middleware(_Counted, metrics=metrics)
    if origins:
        app.add_middleware(CORSMiddleware, allow_origins=list(origins), allow_methods=["*"], allow_headers=["*"])
    return app


class _Counted:
    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = metrics.around(app)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)


def _add_translation(app: FastAPI, desk: Desk) -> None:
    read_translate, read_detect = Read(TranslateBody), Read(DetectBody)

    @app.post(
        "/translate",
        response_model=Translated,
        response_model_exclude_none=True,
        openapi_extra=read_translate.described(),
    )
    async def translate(request: Request, body: Annotated[TranslateBody, Depends(read_translate)]) -> Any:
        """Translates a text, or each of a list of texts."""
        desk.check(request, body)
        texts = [body.q] if isinstance(body.q, str) else body.q
        desk.check_size(texts)
        detected = None
        if body.source == "auto":  # one language for all: the more text, the surer
            codes = desk.models.sources(body.target)
            detected = (await desk.in_thread(lambda: detect("\n".join(texts), codes)))[0]
        model = desk.models.find(detected["language"] if detected else body.source, body.target)
        ticket = model.queue.ask()
        work = model.work(ticket, desk.options(body, model), desk.limits.max_phrases)
        if body.stream:
            return await _stream(desk, ticket, work, body)
        found = await desk.work(request, ticket, lambda: work.translate(texts, body.format == "html"))
        return _answer(body, found, detected)

    @app.post("/detect", openapi_extra=read_detect.described())
    async def detect_language(
        request: Request, body: Annotated[DetectBody, Depends(read_detect)]
    ) -> list[dict[str, Any]]:
        """Which of the source languages a text can be in, the likeliest first; confidence in per cent."""
        desk.check(request, body)
        desk.check_size([body.q])
        codes = list(dict.fromkeys(model.languages[0] for model in desk.models.all))
        return await desk.in_thread(lambda: detect(body.q, codes))


async def _stream(desk: Desk, ticket: Ticket, work: Work, body: TranslateBody) -> Response:
    if not isinstance(body.q, str) or body.format != "text" or body.alternatives:
        raise Refused(400, "stream: is for one text, not for a list, format=html or alternatives")
    place = desk.place()
    await place.__aenter__()
    return _Stream(desk, ticket, place, work.pairs(body.q))


def _answer(body: TranslateBody, found: list[list[str]], detected: dict[str, Any] | None) -> dict[str, Any]:
    """Returns what /translate answers; of a list of texts each value is a list."""
    answer: dict[str, list[Any]] = {"translatedText": [each[0] for each in found]}
    if body.alternatives:
        answer["alternatives"] = [each[1:] for each in found]
    if detected:
        answer["detectedLanguage"] = [detected] * len(found)
    return {name: value[0] for name, value in answer.items()} if isinstance(body.q, str) else dict(answer)


def _add_details(app: FastAPI, desk: Desk) -> None:
    read_alternatives, read_details = Read(AlternativesBody), Read(DetailsBody)

    def begin(request: Request, body: AlternativesBody | DetailsBody) -> tuple[Ticket, Work]:
        model = desk.models.find(body.source, body.target)
        ticket = model.queue.ask()
        return ticket, model.work(ticket, Options(model.translator.decode.beam_size), desk.limits.max_phrases)

    @app.post("/alternatives", openapi_extra=read_alternatives.described())
    async def alternatives(
        request: Request, body: Annotated[AlternativesBody, Depends(read_alternatives)]
    ) -> list[dict[str, Any]]:
        """Words that can follow the beginning of a translation, with their probability and the whole translation."""
        desk.check(request, body)
        desk.check_size([body.q + body.prefix])
        if body.count > desk.limits.max_alternatives:
            raise Refused(400, f"Invalid request: 'count' parameter must be <= {desk.limits.max_alternatives}")
        ticket, work = begin(request, body)
        return await desk.work(request, ticket, lambda: work.alternatives(body.q, body.prefix, body.count))

    @app.post("/details", openapi_extra=read_details.described())
    async def details(request: Request, body: Annotated[DetailsBody, Depends(read_details)]) -> list[dict[str, Any]]:
        """The words of sentences and of their translations: how probable each is, and what it looked at."""
        desk.check(request, body)
        desk.check_size([*body.q, *body.translations])
        if len(body.q) != len(body.translations):
            raise Refused(400, f"translations: must be as many as q, {len(body.q)}; got {len(body.translations)}")
        ticket, work = begin(request, body)
        return await desk.work(request, ticket, lambda: work.explain(body.q, body.translations))


def _add_settings(app: FastAPI, desk: Desk) -> None:
    @app.get("/languages")
    async def languages() -> list[dict[str, Any]]:
        """The source languages, and what each can be translated into."""
        targets: dict[str, list[str]] = {}
        for model in desk.models.all:
            targets.setdefault(model.languages[0], []).append(model.languages[1])
        for code in [code for codes in targets.values() for code in codes]:
            targets.setdefault(code, [])
        return [{"code": c, "name": language_name(c), "targets": own} for c, own in targets.items()]

    @app.get("/frontend/settings")
    async def settings() -> dict[str, Any]:
        """What a page needs to know; `models` is our own, all else is LibreTranslate's."""
        source, target = ({"code": c, "name": language_name(c)} for c in desk.models.all[0].languages)
        return {
            "apiKeys": bool(desk.keys),
            "charLimit": desk.limits.max_characters,
            "filesTranslation": False,
            "frontendTimeout": 500,
            "keyRequired": bool(desk.keys),
            "language": {"source": source, "target": target},
            "suggestions": False,
            "supportedFilesFormat": [],
            "models": [
                {"name": m.name, "source": m.languages[0], "target": m.languages[1], "details": m.own is not None}
                for m in desk.models.all
            ],
        }

    @app.get("/health")
    async def health() -> dict[str, str]:
        """Whether the server answers."""
        return {"status": "ok"}

    @app.get("/metrics")
    async def metrics() -> Response:
        """Counts and times in Prometheus' format."""
        return Response(desk.metrics.text(), media_type=CONTENT_TYPE)


def _add_page(app: FastAPI) -> None:
    page = files("mt.serve") / "page"
    contents = {file.name: file.read_bytes() for file in page.iterdir() if file.is_file()}

    def add(path: str, name: str) -> None:
        @app.get(path, include_in_schema=False)
        async def file() -> Response:
            media_type = _PAGE_TYPES[name.rpartition(".")[2]]
            return Response(contents[name], media_type=media_type, headers=_PAGE_HEADERS)

    add("/", "index.html")
    add("/docs", "docs.html")
    for name in contents:
        add(f"/page/{name}", name)


def _add_errors(app: FastAPI) -> None:
    """Makes every error one line of JSON."""

    @app.exception_handler(Refused)
    async def refused(request: Request, error: Refused) -> Response:
        headers = {"Retry-After": str(error.retry_after_seconds)} if error.retry_after_seconds else {}
        if error.status in (408, 413):  # the rest of the body is not read
            headers["Connection"] = "close"
        return JSONResponse({"error": error.reason}, error.status, headers)

    @app.exception_handler(HTTPException)
    async def no_such_path(request: Request, error: HTTPException) -> Response:
        return JSONResponse({"error": error.detail}, error.status_code, error.headers)

    @app.exception_handler(ClientDisconnect)
    @app.exception_handler(CancelledError)
    async def gone(request: Request, error: Exception) -> Response:
        return Response(status_code=CLIENT_GONE)

    @app.exception_handler(Exception)  # its traceback goes to stderr
    async def failed(request: Request, error: Exception) -> Response:
        return JSONResponse({"error": "Internal error"}, 500)


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _line(value: dict[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode() + b"\n"
