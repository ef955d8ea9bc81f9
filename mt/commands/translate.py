"""mt translate: text in, text out, one line for one line; a document in, the same document out."""

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

if TYPE_CHECKING:
    from mt.translation.translator import Translation, Translator

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
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:N or mps.")] = "auto",
    checkpoint: Annotated[str, typer.Option(help="best, last or a name such as step_00001000.")] = "best",
) -> None:
    """Translate text, a file or standard input with a trained model."""
    if text and input:
        raise ValueError("give either TEXT or --input, not both")
    if n_best < 1:
        raise ValueError(f"--n-best={n_best}: must be at least 1")
    if as_json and scores:
        raise ValueError("--json writes the scores anyway: leave --scores out")
    from mt.checkpoint import load_config
    from mt.documents.formats import document_format
    from mt.translation.evaluate import changed
    from mt.translation.translator import load_translator

    kind = document_format(input, format)
    decode = changed(load_config(run).decode, beam_size, length_penalty, no_repeat_ngram_size)
    if kind == "text" and not (split_sentences or protect or field or new_field):
        at_once = 1 if not text and not input and sys.stdin.isatty() else LINES_AT_ONCE
        lines = _Lines(_lines(text, input), at_once, n_best, scores, as_json)
        _write_lines(lines, output, lambda: load_translator(run, device, checkpoint, decode))
        return
    _check_document(kind, text, field or new_field, n_best > 1 or scores or as_json)
    from mt.translation.documents import translate_file

    name = "TEXT" if text else "standard input" if input is None else str(input)
    whole = kind != "text"
    choices = split_sentences or whole, protect or whole, field, new_field
    with _binary(text, input) as file:
        translate_file(run, kind, file, name, output, device, checkpoint, decode, *choices)


@dataclass(frozen=True)
class _Lines:
    """Text lines, how many are translated at once, and what is written of each."""

    lines: Iterator[str]
    at_once: int
    n_best: int
    scores: bool
    as_json: bool


def _check_document(kind: str, text: list[str] | None, field: str | None, columns: bool) -> None:
    """Raises ValueError for options that mean nothing with a document, or with text cut into sentences."""
    if kind != "text" and text:
        raise ValueError(f"--format={kind}: is of a file: give --input or standard input, not TEXT")
    if field and kind not in ("jsonl", "tsv", "csv"):
        raise ValueError(f"--field and --new-field are of jsonl, tsv and csv; the format is {kind}: leave them out")
    if columns:
        kind = f"format {kind}" if kind != "text" else "--split-sentences and --protect"
        raise ValueError(f"--n-best, --scores and --json have no meaning with {kind}: leave them out")


def _write_lines(job: _Lines, output: Path | None, load: Callable[[], "Translator"]) -> None:
    from mt.translation.output import open_output

    done = cut = unfinished = 0
    with open_output(output) as file:
        chunk = list(islice(job.lines, job.at_once))  # what is wrong shows before the model is loaded
        translator = load()
        while chunk:
            results = translator.translate_n_best(chunk, job.n_best, first_line=done + 1)
            for number, found in enumerate(results, done + 1):
                number_shown = number if job.n_best > 1 else None
                line = _json(number, found) if job.as_json else _format(number_shown, found, job.scores)
                file.write(line.encode())
                cut += found[0].source_truncated
                unfinished += found[0].unfinished
            file.flush()
            done += len(chunk)
            chunk = list(islice(job.lines, job.at_once))
    if done > job.at_once and cut + unfinished:  # after more than one warning
        print(f"of {done} lines {cut} were cut and {unfinished} have an unfinished translation", file=sys.stderr)


def _lines(text: list[str] | None, input: Path | None) -> Iterator[str]:
    import os

    from mt.data.corpus import decode_lines, read_lines

    if input is not None:
        return read_lines(input)
    if text:  # the bytes as they were typed, whatever the locale
        return decode_lines((line for sentence in text for line in os.fsencode(sentence).split(b"\n")), "TEXT")
    return decode_lines(sys.stdin.buffer, "standard input")


def _binary(text: list[str] | None, input: Path | None) -> AbstractContextManager[BinaryIO]:
    import gzip
    import io

    if text:
        return io.BytesIO("\n".join(text).encode("utf-8", "surrogateescape"))
    if input is None:
        return nullcontext(sys.stdin.buffer)
    return gzip.open(input, "rb") if input.suffix.lower() == ".gz" else input.open("rb")


def _format(number: int | None, found: list["Translation"], scores: bool) -> str:
    """Returns the output lines of one input line."""
    lines = []
    for translation in found:
        score = f"{translation.score:.4f}" if scores else None
        columns = (None if number is None else str(number), score, translation.text)
        lines.append("\t".join(column for column in columns if column is not None) + "\n")
    return "".join(lines)


def _json(number: int, found: list["Translation"]) -> str:
    """Returns one line of JSON for one input line."""
    import json

    translations = [{"text": t.text, "score": t.score, "unfinished": t.unfinished} for t in found]
    row = {"line": number, "source_truncated": found[0].source_truncated, "translations": translations}
    return json.dumps(row, ensure_ascii=False) + "\n"
