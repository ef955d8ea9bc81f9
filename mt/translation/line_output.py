"""Lines in, lines out: translated by search or by drawing, written as text or JSON."""

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from mt.translation.lines import Translation
from mt.translation.output import open_output
from mt.translation.sampling import Sampling
from mt.translation.translator import Translator


@dataclass(frozen=True)
class Way:
    """How lines are translated: by search, or by drawing."""

    n_best: int
    sample: int | None
    consensus: int | None
    sampling: Sampling
    seed: int

    def translate(self, translator: Translator, texts: list[str], first_line: int) -> list[list[Translation]]:
        if self.sample:
            return translator.sample(texts, self.sample, self.sampling, self.seed, first_line=first_line)
        if self.consensus:
            return translator.translate_by_consensus(
                texts, self.consensus, self.sampling, self.seed, first_line=first_line
            )
        return translator.translate_n_best(texts, self.n_best, first_line=first_line)


@dataclass(frozen=True)
class LineJob:
    """Text lines, how many are translated at once, and what is written of each."""

    lines: Iterator[str]
    at_once: int
    numbered: bool
    scores: bool
    as_json: bool
    details: bool


def write_lines(job: LineJob, output: Path | None, load: Callable[[], Translator], way: Way) -> None:
    """Writes the translations of a job to a file, or to standard output; `load` comes after the first input is read."""
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


def write_alternatives(
    job: LineJob, output: Path | None, load: Callable[[], Translator], prefix: str, count: int
) -> None:
    """Writes a line for each word: input line, probability, word, translation; or JSON, one object an input line."""
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


def _views(translator: Translator, texts: list[str], results: list[list[Translation]]) -> list[list[dict[str, object]]]:
    """Returns for each translation of each text what --details adds to its JSON."""
    flat = [(text, translation.tokens) for text, found in zip(texts, results, strict=True) for translation in found]
    views = iter(translator.force([text for text, _ in flat], [tokens for _, tokens in flat]))
    sources = translator.sources(texts)
    return [
        [translator.details(source, translation.tokens, next(views)) for translation in found]
        for source, found in zip(sources, results, strict=True)
    ]


def _format(number: int | None, found: list[Translation], scores: bool) -> str:
    """Returns the output lines of one input line."""
    lines = []
    for translation in found:
        score = f"{translation.score:.4f}" if scores else None
        columns = (None if number is None else str(number), score, translation.text)
        lines.append("\t".join(column for column in columns if column is not None) + "\n")
    return "".join(lines)


def _json(number: int, found: list[Translation], details: list[dict[str, object]] | None) -> str:
    """Returns one line of JSON for one input line."""
    translations = [{"text": t.text, "score": t.score, "unfinished": t.unfinished} for t in found]
    for own, more in zip(translations, details or [], strict=False):
        own.update(more)
    row = {"line": number, "source_truncated": found[0].source_truncated, "translations": translations}
    return json.dumps(row, ensure_ascii=False) + "\n"
