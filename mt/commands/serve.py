"""mt serve: trained models behind HTTP, with a page for people and the LibreTranslate API for programs."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from mt.config import DecodeConfig

_LONGEST_TOKENS = 256  # of a sentence; longer ones are translated in parts, so that nonsense holds nobody up for long


def serve(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Trained folders or exports, each of its own languages.")
    ],
    host: Annotated[str, typer.Option(help="Where it listens; 0.0.0.0: anyone may come.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any free one.")] = 5000,
    engine: Annotated[
        str | None, typer.Option(help="mt, or ctranslate2, which runs are exported to. [default: what RUN is for]")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:N or mps.")] = "auto",
    checkpoint: Annotated[str, typer.Option(help="best, last or a name such as step_00001000.")] = "best",
    beam_size: Annotated[int | None, typer.Option(help="1 is greedy search. [default: the run's]")] = None,
    decode: Annotated[
        list[str] | None, typer.Option(help="Any other search setting: NAME=VALUE of decode; may be repeated.")
    ] = None,
    batch_sentences: Annotated[
        int, typer.Option(min=1, help="Sentences of all requests that are translated together, at most.")
    ] = 64,
    batch_milliseconds: Annotated[
        float, typer.Option(min=0, max=1000, help="How long a sentence waits for others to come.")
    ] = 5,
    api_keys: Annotated[
        Path | None, typer.Option(help="A file with a key a line; a request must have one of them.")
    ] = None,
    allow_origin: Annotated[
        list[str] | None, typer.Option(help="Other web pages that may ask, such as https://a.org, or *.")
    ] = None,
    max_body_bytes: Annotated[int, typer.Option(help="Of a request; more: 413.")] = 1_000_000,
    max_characters: Annotated[int, typer.Option(help="Of a request's texts together; more: 400.")] = 10_000,
    max_texts: Annotated[int, typer.Option(help="Of a request's list; more: 400.")] = 500,
    max_beam_size: Annotated[int, typer.Option(help="That a request may ask for; more: 400.")] = 10,
    max_alternatives: Annotated[int, typer.Option(help="That a request may ask for; more: 400.")] = 9,
    max_phrases: Annotated[int, typer.Option(help="Of a glossary in one sentence; more: 400.")] = 4,
    max_requests: Annotated[int, typer.Option(help="At work or waiting; more: 503.")] = 256,
    requests_per_minute: Annotated[int | None, typer.Option(help="Of one client; more: 429. [default: any]")] = None,
    body_seconds: Annotated[float, typer.Option(help="Until a request has arrived; longer: 408.")] = 30,
) -> None:
    """Serve models to browsers and programs until SIGTERM or Ctrl-C; docs/serve.md lists the paths."""
    if engine not in (None, "mt", "ctranslate2"):
        raise ValueError(f"--engine={engine}: must be mt or ctranslate2")
    try:
        from mt.serve.app import create_app
    except ModuleNotFoundError as error:
        raise ValueError(f"the package {error.name} is missing: pip install 'mt[serve]'") from error
    from mt.serve import server
    from mt.serve.limits import Limits
    from mt.serve.metrics import Metrics
    from mt.serve.models import Models, load_served
    from mt.translation.evaluate import changed

    limits = Limits(
        max_body_bytes, max_characters, max_texts, max_beam_size, max_alternatives, max_phrases, max_requests,
        requests_per_minute, body_seconds,
    )  # fmt: skip
    keys = server.read_keys(api_keys) if api_keys else []
    metrics = Metrics()

    def change(settings: "DecodeConfig") -> "DecodeConfig":
        short = replace(settings, max_source_tokens=min(settings.max_source_tokens, _LONGEST_TOKENS))
        return changed(short, beam_size, None, None, decode or [])

    def load() -> Models:
        seconds = batch_milliseconds / 1000
        choices = engine, device, checkpoint, change, batch_sentences, seconds
        return Models([load_served(run, *choices, metrics.batch(run.resolve().name)) for run in runs])

    listener = server.listen(host, port)
    if not server.is_loopback(host) and not keys:
        print(f"anyone who can reach {host} may translate: --api-keys FILE lets in only who has a key", file=sys.stderr)
    server.serve(lambda: create_app(load(), limits, metrics, keys, allow_origin or []), listener)
