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
    from mt.translation.lines import LineTranslator, Translation
    from mt.translation.sampling import Sampling

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
    prefix: Annotated[str | None, typer.Option(help="Every translation begins with this text.")] = None,
    phrase: Annotated[list[str] | None, typer.Option(help="Every translation holds this; may be repeated.")] = None,
    glossary: Annotated[
        Path | None,
        typer.Option(help="TSV of source and target terms: a line with the one is translated with the other."),
    ] = None,
    forbid: Annotated[
        list[str] | None, typer.Option(help="No translation holds this word or text; may be repeated.")
    ] = None,
    alternatives: Annotated[
        int | None, typer.Option(help="Instead: up to so many words that can follow --prefix, with their probability.")
    ] = None,
    sample: Annotated[
        int | None,
        typer.Option(help="Draw so many translations of each line instead of searching."),
    ] = None,
    consensus: Annotated[
        int | None, typer.Option(help="Draw so many, take the one most like all of them (minimum Bayes risk, chrF).")
    ] = None,
    temperature: Annotated[float, typer.Option(help="Of what is drawn: below 1 likelier, above 1 freer.")] = 1,
    top_k: Annotated[int, typer.Option(help="Draw each token among so many likeliest; 0: all.")] = 0,
    top_p: Annotated[float, typer.Option(help="Draw among the likeliest tokens that make up this share.")] = 1,
    epsilon: Annotated[float, typer.Option(help="Draw among tokens of at least this probability.")] = 0,
    seed: Annotated[int, typer.Option(help="Of --sample and --consensus.")] = 1,
    together_with: Annotated[
        list[Path] | None, typer.Option("--with", help="One more run for an ensemble; may be repeated.")
    ] = None,
    details: Annotated[
        bool, typer.Option("--details", help="With --json: pieces, their log probabilities, and the alignment.")
    ] = False,
    decode: Annotated[
        list[str] | None, typer.Option(help="Any other search setting: NAME=VALUE of decode; may be repeated.")
    ] = None,
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
    if details and not as_json:
        raise ValueError("--details needs --json")
    if engine not in (None, "mt", "ctranslate2"):
        raise ValueError(f"--engine={engine}: must be mt or ctranslate2")
    from mt.documents.formats import document_format
    from mt.export.engine import is_export, load_decode, load_engine, load_languages
    from mt.translation.evaluate import changed
    from mt.translation.glossary import Glossary
    from mt.translation.sampling import Sampling
    from mt.translation.translator import Guidance, load_translator

    kind = document_format(input, format)
    settings = changed(load_decode(run), beam_size, length_penalty, no_repeat_ngram_size, decode or [])
    terms = Glossary.read(glossary) if glossary else None

    def guide(source: str) -> Guidance:
        return Guidance(prefix or "", (*(phrase or ()), *(terms.targets_in(source) if terms else ())))

    ours = {
        "--prefix": prefix, "--phrase": phrase, "--glossary": glossary, "--forbid": forbid, "--with": together_with,
        "--alternatives": alternatives, "--sample": sample, "--consensus": consensus, "--details": details,
    }  # fmt: skip
    drawn = Sampling(temperature, top_k, top_p, epsilon)
    if drawn != Sampling() and not (sample or consensus):
        raise ValueError("--temperature, --top-k, --top-p and --epsilon need --sample or --consensus")
    exported = is_export(run)
    if engine == "mt" and exported:
        raise ValueError(f"--engine=mt: {run} is an export; leave --engine out, or give the run that it was made from")
    if engine == "ctranslate2" or exported:
        if given := [name for name, value in ours.items() if value]:
            raise ValueError(f"{given[0]}: is of mt's own search: leave out it or --engine=ctranslate2")

    def load() -> "LineTranslator":
        if engine == "ctranslate2" or exported:
            return load_engine(run, device, checkpoint, settings)
        return load_translator(run, device, checkpoint, settings, together_with or (), forbid or (), guide)

    instead = [name for name in ("--alternatives", "--sample", "--consensus") if ours[name]]
    if len(instead) > 1:
        raise ValueError(f"{' and '.join(instead)}: give one of them")
    if instead and n_best > 1:
        raise ValueError(f"--n-best={n_best}: has no meaning with {instead[0]}: leave it out")
    if kind == "text" and not (split_sentences or protect or field or new_field):
        at_once = 1 if not text and not input and sys.stdin.isatty() else LINES_AT_ONCE
        numbered = n_best > 1 or bool(sample)
        job = _Lines(_lines(text, input), at_once, numbered, scores, as_json, details)
        way = _Way(n_best, sample, consensus, drawn, seed)
        if alternatives:
            _write_alternatives(job, output, load, prefix or "", alternatives)
        else:
            _write_lines(job, output, load, way)
        return
    _check_document(kind, text, field or new_field, n_best > 1 or scores or as_json or bool(instead))
    from mt.translation.documents import translate_file

    name = "TEXT" if text else "standard input" if input is None else str(input)
    whole = kind != "text"
    choices = split_sentences or whole, protect or whole, field, new_field
    with _binary(text, input) as file:
        translate_file(kind, file, name, output, load_languages(run), load, *choices)


@dataclass(frozen=True)
class _Way:
    """How lines are translated: by search, or by drawing."""

    n_best: int
    sample: int | None
    consensus: int | None
    sampling: "Sampling"
    seed: int

    def translate(self, translator: "LineTranslator", texts: list[str], first_line: int) -> list[list["Translation"]]:
        if self.sample:
            return translator.sample(texts, self.sample, self.sampling, self.seed, first_line=first_line)
        if self.consensus:
            return translator.translate_by_consensus(
                texts, self.consensus, self.sampling, self.seed, first_line=first_line
            )
        return translator.translate_n_best(texts, self.n_best, first_line=first_line)


@dataclass(frozen=True)
class _Lines:
    """Text lines, how many are translated at once, and what is written of each."""

    lines: Iterator[str]
    at_once: int
    numbered: bool
    scores: bool
    as_json: bool
    details: bool


def _check_document(kind: str, text: list[str] | None, field: str | None, columns: bool) -> None:
    """Raises ValueError for options that mean nothing with a document, or with text cut into sentences."""
    if kind != "text" and text:
        raise ValueError(f"--format={kind}: is of a file: give --input or standard input, not TEXT")
    if field and kind not in ("jsonl", "tsv", "csv"):
        raise ValueError(f"--field and --new-field are of jsonl, tsv and csv; the format is {kind}: leave them out")
    if columns:
        kind = f"format {kind}" if kind != "text" else "--split-sentences and --protect"
        raise ValueError(f"--n-best, --scores and --json have no meaning with {kind}: leave them out")


def _write_lines(job: _Lines, output: Path | None, load: Callable[[], "LineTranslator"], way: _Way) -> None:
    from mt.translation.output import open_output

    done = cut = unfinished = 0
    with open_output(output) as file:
        chunk = list(islice(job.lines, job.at_once))  # what is wrong shows before the model is loaded
        translator = load()
        while chunk:
            results = way.translate(translator, chunk, done + 1)
            views = _views(translator, chunk, results) if job.details else [None] * len(chunk)
            for number, (found, of_line) in enumerate(zip(results, views, strict=True), done + 1):
                number_shown = number if job.numbered else None
                line = _json(number, found, of_line) if job.as_json else _format(number_shown, found, job.scores)
                file.write(line.encode())
                cut += found[0].source_truncated
                unfinished += found[0].unfinished
            file.flush()
            done += len(chunk)
            chunk = list(islice(job.lines, job.at_once))
    if done > job.at_once and cut + unfinished:  # after more than one warning
        print(f"of {done} lines {cut} were cut and {unfinished} have an unfinished translation", file=sys.stderr)


def _write_alternatives(
    job: _Lines, output: Path | None, load: Callable[[], "LineTranslator"], prefix: str, count: int
) -> None:
    """Writes a line for each word: input line, probability, word, translation; or JSON, one object an input line."""
    import json

    from mt.translation.output import open_output

    with open_output(output) as file:
        translator = load()
        for number, line in enumerate(job.lines, start=1):
            found = translator.alternatives(line, prefix, count)
            if job.as_json:
                rows = [{"word": a.word, "probability": a.probability, "translation": a.translation} for a in found]
                text = json.dumps({"line": number, "alternatives": rows}, ensure_ascii=False) + "\n"
            else:
                text = "".join(f"{number}\t{a.probability:.4f}\t{a.word}\t{a.translation}\n" for a in found)
            file.write(text.encode())
            file.flush()


def _views(
    translator: "LineTranslator", texts: list[str], results: list[list["Translation"]]
) -> list[list[dict[str, object]]]:
    """Returns for each translation of each text what --details adds to its JSON."""
    flat = [(text, translation) for text, found in zip(texts, results, strict=True) for translation in found]
    views = iter(translator.force([text for text, _ in flat], [translation.tokens for _, translation in flat]))
    sides = translator.tokenizers
    details = []
    for text, found in zip(texts, results, strict=True):
        own = []
        for translation in found:
            view = next(views)
            source = sides.source.pieces(sides.source.encode([text])[0][: translator.decode.max_source_tokens])
            own.append(
                {
                    "source_pieces": source if view else [],
                    "pieces": sides.target.pieces(translation.tokens),
                    "log_probabilities": view.log_probs if view else [],
                    "alignment": " ".join(f"{s}-{t}" for s, t in view.alignment()) if view else "",
                }
            )
        details.append(own)
    return details


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


def _json(number: int, found: list["Translation"], details: list[dict[str, object]] | None) -> str:
    """Returns one line of JSON for one input line."""
    import json

    translations = [{"text": t.text, "score": t.score, "unfinished": t.unfinished} for t in found]
    for own, more in zip(translations, details or [], strict=False):
        own.update(more)
    row = {"line": number, "source_truncated": found[0].source_truncated, "translations": translations}
    return json.dumps(row, ensure_ascii=False) + "\n"
