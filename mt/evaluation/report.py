"""Reports as one HTML file each, without anything from outside; every text is escaped by the template engine."""

from dataclasses import dataclass, field
from pathlib import Path

import jinja2

from mt.evaluation import curves
from mt.evaluation.curves import Chart
from mt.evaluation.details import FrequencyBucket, LengthBucket
from mt.evaluation.differences import marked
from mt.evaluation.metrics import Score, sentence_chrf
from mt.evaluation.significance import Comparison

_SHOWN = 20  # sentences at either end


@dataclass(frozen=True)
class Output:
    """A translation in spans, each with whether it differs from the reference, and its chrF, 0 to 100."""

    system: str
    spans: list[tuple[str, bool]]
    chrf: float


@dataclass(frozen=True)
class Sentence:
    """One line of the test set: its number from 1, and the first reference in spans that differ from the outputs."""

    number: int
    source: str | None
    reference: list[tuple[str, bool]]
    other_references: list[str]
    outputs: list[Output]


@dataclass(frozen=True)
class SentenceList:
    """Sentences under a heading."""

    title: str
    note: str
    sentences: list[Sentence]


@dataclass(frozen=True)
class Section:
    """What a report says about one test set: a table of scores, of comparisons, or both, and what is below them."""

    name: str
    facts: dict[str, str]
    scores: list[Score] = field(default_factory=list)
    comparisons: list[Comparison] = field(default_factory=list)
    lengths: list[LengthBucket] = field(default_factory=list)
    frequencies: list[FrequencyBucket] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    chrf_signature: str = ""
    lists: list[SentenceList] = field(default_factory=list)

    @property
    def signatures(self) -> list[tuple[str, str]]:
        """Name and signature of each metric in the tables of whole test sets."""
        scores = [*self.scores, *(one.score for one in self.comparisons if one.difference is None)]
        return [(score.name, score.signature) for score in scores]


def render(title: str, language: str, charts: list[Chart], sections: list[Section]) -> bytes:
    """Returns the page. `language` is the target's code, by which a browser chooses the forms of Chinese characters."""
    folder = jinja2.FileSystemLoader(Path(__file__).parent, encoding="utf-8")
    environment = jinja2.Environment(
        loader=folder, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    page = environment.get_template("report.html")
    text = page.render(title=title, language=language, charts=charts, sections=sections, box=curves)
    return text.encode(errors="backslashreplace")  # a file's name need not be UTF-8


def best_and_worst(
    sources: list[str] | None, hypotheses: list[str], references: list[list[str]]
) -> tuple[list[SentenceList], str]:
    """Returns the sentences of lowest and of highest chrF, and the signature of that chrF."""
    scores, signature = sentence_chrf(hypotheses, references)
    order = sorted(range(len(scores)), key=lambda index: (scores[index], index))
    worst = order[:_SHOWN]
    best = [index for index in reversed(order) if index not in worst][:_SHOWN]
    systems, values = {"output": hypotheses}, {"output": scores}
    note = "By chrF of the sentence alone. Marked is what output and reference do not share in that order."
    return [
        SentenceList("Worst sentences", note, [_sentence(i, sources, references, systems, values) for i in worst]),
        SentenceList("Best sentences", note, [_sentence(i, sources, references, systems, values) for i in best]),
    ], signature


def most_different(
    sources: list[str] | None, systems: dict[str, list[str]], references: list[list[str]]
) -> tuple[list[SentenceList], str]:
    """Returns, for each system but the first, where it beats the first by most chrF and where it loses by most."""
    scored = {name: sentence_chrf(hypotheses, references) for name, hypotheses in systems.items()}
    values = {name: scores for name, (scores, _) in scored.items()}
    first, *others = systems
    lists = []
    for other in others:
        gains = [b - a for a, b in zip(values[first], values[other], strict=True)]
        pair = {name: systems[name] for name in (first, other)}
        for sign, better, worse in ((1, other, first), (-1, first, other)):
            order = sorted((i for i, gain in enumerate(gains) if sign * gain > 0), key=lambda i: (-sign * gains[i], i))
            chosen = [_sentence(i, sources, references, pair, values) for i in order[:_SHOWN]]
            note = f"{len(order)} of {len(gains)} sentences have a higher chrF with {better}; the widest differences:"
            lists.append(SentenceList(f"{better} better than {worse}", note, chosen))
    return lists, scored[first][1]


def _sentence(
    index: int,
    sources: list[str] | None,
    references: list[list[str]],
    systems: dict[str, list[str]],
    chrf: dict[str, list[float]],
) -> Sentence:
    reference = references[0][index]
    outputs = [
        Output(name, marked(hypotheses[index], reference), chrf[name][index]) for name, hypotheses in systems.items()
    ]
    only = next(iter(systems.values()))[index]
    spans = marked(reference, only) if len(systems) == 1 else [(reference, False)]
    others = [lines[index] for lines in references[1:]]
    return Sentence(index + 1, None if sources is None else sources[index], spans, others, outputs)
