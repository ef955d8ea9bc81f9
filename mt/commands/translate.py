"""mt translate: text in, text out, one line for one line; a document in, the same document out."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

if TYPE_CHECKING:
    from mt.translation.line_output import LineJob, Way
    from mt.translation.lines import LineTranslator

SECONDS_TO_CONNECT = 600.0
LINES_AT_ONCE = 2000  # enough for full batches of similar lengths; little enough to see results on the way


def translate(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A trained folder, such as runs/demo.")],
    text: Annotated[
        list[str] | None, typer.Argument(metavar="TEXT", help="Sentences; without any, standard input is read.")
    ] = None,
    input: Annotated[
        Path | None,
        typer.Option(help="Read this file: one sentence a line (UTF-8, .gz too), or a document (see --format)."),
    ] = None,
    output: Annotated[Path | None, typer.Option(help="Write this file, complete or not at all.")] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Keep what is done in OUTPUT.parts until all is, so that the same command goes on after a stop; with "
            "torchrun, whose processes share the lines, always.",
        ),
    ] = False,
    format: Annotated[
        str | None,
        typer.Option(
            help="text, jsonl, tsv, csv, po, srt, vtt, tmx, xliff, html, md or docx: what is read and written. "
            "[default: by the extension of --input, else text]"
        ),
    ] = None,
    field: Annotated[
        str | None,
        typer.Option(help="The field of jsonl, tsv or csv to translate: a name, or a column from 0 if there are none."),
    ] = None,
    new_field: Annotated[
        str | None, typer.Option(help="The field that its translation is put into. [default: the target language]")
    ] = None,
    split_sentences: Annotated[
        bool,
        typer.Option("--split-sentences", help="Translate a text line sentence by sentence; documents always are."),
    ] = False,
    protect: Annotated[
        bool,
        typer.Option(
            "--protect", help="Keep tags, addresses and {variables} in text lines; in documents they always are."
        ),
    ] = False,
    beam_size: Annotated[int | None, typer.Option(help="1 is greedy search. [default: the run's]")] = None,
    length_penalty: Annotated[float | None, typer.Option(help="0 favours short output. [default: the run's]")] = None,
    no_repeat_ngram_size: Annotated[
        int | None, typer.Option(help="No run of so many tokens twice; 0: off. [default: the run's]")
    ] = None,
    n_best: Annotated[
        int,
        typer.Option(
            help="Up to this many different translations of each line, fewer where no more differ; above 1, each "
            "begins with the input line's number and a tab."
        ),
    ] = 1,
    scores: Annotated[
        bool, typer.Option("--scores", help="Put the score (log probability / length^penalty) and a tab in front.")
    ] = False,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Write a JSON object for each line: translations with scores, and what was cut."),
    ] = False,
    prefix: Annotated[str | None, typer.Option(help="Every translation begins with this text.")] = None,
    phrase: Annotated[list[str] | None, typer.Option(help="Every translation holds this; may be repeated.")] = None,
    glossary: Annotated[
        Path | None,
        typer.Option(help="TSV of source and target terms: a line with the one is translated with the other."),
    ] = None,
    forbid: Annotated[
        list[str] | None,
        typer.Option(help="No translation holds this text, or a word that begins so; may be repeated."),
    ] = None,
    alternatives: Annotated[
        int | None, typer.Option(help="Instead: up to so many words that can follow --prefix, with their probability.")
    ] = None,
    sample: Annotated[
        int | None,
        typer.Option(
            help="Draw so many translations of each line instead of searching; above 1, each begins with the input "
            "line's number and a tab."
        ),
    ] = None,
    consensus: Annotated[
        int | None, typer.Option(help="Draw so many, take the one most like all of them (minimum Bayes risk, chrF).")
    ] = None,
    temperature: Annotated[float, typer.Option(help="Of what is drawn: below 1 likelier, above 1 freer.")] = 1,
    top_k: Annotated[int, typer.Option(help="Draw each token among so many likeliest; 0: all.")] = 0,
    top_p: Annotated[float, typer.Option(help="Draw among the likeliest tokens that make up this share.")] = 1,
    epsilon: Annotated[float, typer.Option(help="Draw among tokens of at least this probability.")] = 0,
    seed: Annotated[int, typer.Option(help="Of what is drawn.")] = 1,
    together_with: Annotated[
        list[Path] | None, typer.Option("--with", help="One more run for an ensemble; may be repeated.")
    ] = None,
    details: Annotated[
        bool, typer.Option("--details", help="With --json: pieces, their log probabilities, and the alignment.")
    ] = False,
    tags: Annotated[
        str | None,
        typer.Option(
            help="Tags that the model was trained with, such as '<2de>', before each text. [default: the run's]"
        ),
    ] = None,
    decode: Annotated[
        list[str] | None, typer.Option(help="Any other search setting: NAME=VALUE of decode; may be repeated.")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:N or mps.")] = "auto",
    checkpoint: Annotated[str, typer.Option(help="best, last or a name such as step_00001000.")] = "best",
    precision: Annotated[
        str | None,
        typer.Option(help="Of mt's search: float32, bf16 (for GPUs that have it) or int8 (CPU). [default: float32]"),
    ] = None,
    engine: Annotated[
        str | None, typer.Option(help="mt, or ctranslate2, which RUN may be exported to. [default: what RUN is for]")
    ] = None,
) -> None:
    """Translate text, a file or standard input with a trained model."""
    from mt.commands.translate_checks import (
        check_document,
        check_engine,
        check_options,
        check_output,
        check_parts,
        check_ways,
    )

    in_parts = resume or os.environ.get("WORLD_SIZE", "1") != "1"
    # by torchrun's one process too, where there may be parts to go on from
    may_be_in_parts = "TORCHELASTIC_RUN_ID" in os.environ and bool(input and output and not alternatives)
    options = {
        "TEXT": text, "--input": input, "--output": output, "--field": field, "--new-field": new_field,
        "--n-best": n_best, "--scores": scores, "--json": as_json, "--details": details, "--prefix": prefix,
        "--phrase": phrase, "--glossary": glossary, "--forbid": forbid, "--with": together_with,
        "--alternatives": alternatives, "--sample": sample, "--consensus": consensus, "--seed": seed,
        "--engine": engine, "--precision": precision,
        "--split-sentences": split_sentences, "--protect": protect, "--format": format,
    }  # fmt: skip
    check_options(options)
    from mt.checkpoint import load_config, pointed
    from mt.data.tags import missing_tags
    from mt.documents.formats import document_format
    from mt.export.engine import is_export, load_decode, load_engine, load_languages
    from mt.translation.documents import translate_file
    from mt.translation.evaluate import changed
    from mt.translation.glossary import Glossary
    from mt.translation.line_output import LineJob, Way, write_alternatives, write_lines
    from mt.translation.sampling import Sampling
    from mt.translation.translator import Guidance, load_translator

    kind = document_format(input, format)
    settings = changed(load_decode(run), beam_size, length_penalty, no_repeat_ngram_size, decode or [], tags)
    if not is_export(run) and (warning := missing_tags(load_config(run).data, settings.tags)):
        print(f"warning: {warning}", file=sys.stderr)
    for given in text or ():
        if _is_file(given):
            print(f"warning: {given} is translated as text; --input {given} translates the file", file=sys.stderr)
    terms = Glossary.read(glossary) if glossary else None

    def guide(source: str) -> Guidance:
        return Guidance(prefix or "", (*(phrase or ()), *(terms.targets_in(source) if terms else ())))

    drawn = Sampling(temperature, top_k, top_p, epsilon)
    check_engine(options, run, is_export(run))
    check_ways(options, drawn != Sampling() or seed != 1)

    def load(device: str = device) -> "LineTranslator":
        if engine == "ctranslate2" or is_export(run):
            return load_engine(run, device, checkpoint, settings)
        others = together_with or (), forbid or (), guide
        return load_translator(run, device, checkpoint, settings, *others, precision or "float32")

    as_lines = kind == "text" and not (split_sentences or protect or field or new_field)
    in_parts = in_parts or (may_be_in_parts and as_lines)
    check_output(options, kind)
    if in_parts:
        check_parts(options, as_lines)
    if as_lines:
        way = Way(n_best, sample, consensus, drawn, seed)
        at_once = 1 if not text and not input and sys.stdin.isatty() else LINES_AT_ONCE
        job = LineJob(_lines(text, input), at_once, n_best > 1 or (sample or 1) > 1, scores, as_json, details)
        if in_parts:
            depends_on = [settings, prefix, phrase, glossary and glossary.read_bytes(), forbid, engine, precision]
            models = [run] if is_export(run) else [pointed(path, checkpoint) for path in (run, *(together_with or ()))]
            _write_in_parts(job, output, load, device, way, depends_on, models)
        elif alternatives:
            write_alternatives(job, output, load, prefix or "", alternatives)
        else:
            write_lines(job, output, load, way)
        return
    check_document(options, kind)
    name = "TEXT" if text else "standard input" if input is None else str(input)
    whole = kind != "text"
    choices = split_sentences or whole, protect or whole, field, new_field
    with _binary(text, input) as file:
        translate_file(kind, file, name, output, load_languages(run), load, *choices)


def _write_in_parts(
    job: "LineJob",
    output: Path,
    load: Callable[[str], "LineTranslator"],
    device: str,
    way: "Way",
    settings: list[object],
    models: list[Path],
) -> None:
    """Translates as one rank of those that torchrun started, or alone; each rank has its own GPU.

    settings, models: all that the translations depend on besides the lines.
    """
    import torch

    from mt.model.device import resolve_device
    from mt.training.distributed import joined, local_rank
    from mt.translation.parts import Share, write_in_parts

    with joined() as group:
        group.connect(torch.device("cpu"), SECONDS_TO_CONNECT)
        if group.world_size > 1 and device in ("auto", "cuda") and resolve_device(device).type == "cuda":
            device = f"cuda:{local_rank()}"
        files = [(str(file), file.stat()) for model in models for file in sorted(model.rglob("*")) if file.is_file()]
        identity = repr([*settings, way, job.numbered, job.scores, job.as_json, job.details])
        identity += repr([(name, found.st_size, found.st_mtime_ns) for name, found in files])
        share = Share(group.rank, group.world_size)
        write_in_parts(job, output, lambda: load(device), way, identity, share, group.wait)


def _is_file(text: str) -> bool:
    try:
        return Path(text).is_file()
    except (OSError, ValueError):  # longer than a name may be; a NUL character
        return False


def _lines(text: list[str] | None, input: Path | None) -> Iterator[str]:
    from mt.data.files import decode_lines, read_lines

    if input is not None:
        return read_lines(input)
    if text:  # the bytes as they were typed, whatever the locale
        return decode_lines((line for sentence in text for line in os.fsencode(sentence).split(b"\n")), "TEXT")
    return decode_lines(sys.stdin.buffer, "standard input")


@contextmanager
def _binary(text: list[str] | None, input: Path | None) -> Iterator[BinaryIO]:
    import gzip
    import io
    import zlib

    if text:
        yield io.BytesIO("\n".join(text).encode("utf-8", "surrogateescape"))
    elif input is None:
        yield sys.stdin.buffer
    else:
        try:
            with gzip.open(input, "rb") if input.suffix.lower() == ".gz" else input.open("rb") as file:
                yield file
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise ValueError(f"{input}: {error}") from error
