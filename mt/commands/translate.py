"""mt translate: text in, text out, one line for one line."""

import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from mt.translation.translator import Translation

LINES_AT_ONCE = 2000  # enough for full batches of similar lengths; little enough to see results on the way


def translate(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A trained folder, such as runs/demo.")],
    text: Annotated[
        list[str] | None, typer.Argument(metavar="TEXT", help="Sentences; without any, standard input is read.")
    ] = None,
    input: Annotated[Path | None, typer.Option(help="Read this file (UTF-8, .gz too), one sentence a line.")] = None,
    output: Annotated[Path | None, typer.Option(help="Write this file, complete or not at all.")] = None,
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
    engine: Annotated[
        str | None, typer.Option(help="mt, or ctranslate2, which RUN may be exported to. [default: what RUN is for]")
    ] = None,
) -> None:
    """Translate text, a file or standard input with a trained model."""
    if text and input:
        raise ValueError("give either TEXT or --input, not both")
    if n_best < 1:
        raise ValueError(f"--n-best={n_best}: must be at least 1")
    if as_json and scores:
        raise ValueError("--json writes the scores anyway: leave --scores out")
    if engine not in (None, "mt", "ctranslate2"):
        raise ValueError(f"--engine={engine}: must be mt or ctranslate2")
    from mt.export.engine import is_export, load_decode, load_engine
    from mt.translation.evaluate import changed
    from mt.translation.output import open_output
    from mt.translation.translator import load_translator

    exported = is_export(run)
    if engine == "mt" and exported:
        raise ValueError(f"--engine=mt: {run} is an export; leave --engine out, or give the run that it was made from")
    load = load_engine if engine == "ctranslate2" or exported else load_translator
    decode = changed(load_decode(run), beam_size, length_penalty, no_repeat_ngram_size)
    lines = _lines(text, input)
    at_once = 1 if not text and not input and sys.stdin.isatty() else LINES_AT_ONCE
    done = cut = unfinished = 0
    with open_output(output) as file:
        chunk = list(islice(lines, at_once))  # what is wrong with input or output shows before the model is loaded
        translator = load(run, device, checkpoint, decode)
        while chunk:
            for number, found in enumerate(translator.translate_n_best(chunk, n_best, first_line=done + 1), done + 1):
                line = _json(number, found) if as_json else _format(number if n_best > 1 else None, found, scores)
                file.write(line.encode())
                cut += found[0].source_truncated
                unfinished += found[0].unfinished
            file.flush()
            done += len(chunk)
            chunk = list(islice(lines, at_once))
    if done > at_once and cut + unfinished:  # after more than one warning
        print(f"of {done} lines {cut} were cut and {unfinished} have an unfinished translation", file=sys.stderr)


def _lines(text: list[str] | None, input: Path | None) -> Iterator[str]:
    import os

    from mt.data.corpus import decode_lines, read_lines

    if input is not None:
        return read_lines(input)
    if text:  # the bytes as they were typed, whatever the locale
        return decode_lines((line for sentence in text for line in os.fsencode(sentence).split(b"\n")), "TEXT")
    return decode_lines(sys.stdin.buffer, "standard input")


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
