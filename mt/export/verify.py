"""Whether an exported model translates as our own does: the same sentences through both, compared."""

import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from mt.config import TrainConfig
from mt.data.corpus import check_corpus, read_corpora
from mt.data.files import read_lines
from mt.data.filters import is_empty
from mt.evaluation.metrics import Score, score_corpus
from mt.tokenizer import without_separators
from mt.translation.lines import Translation
from mt.translation.translator import Translator

TIE = 1e-5  # scores that differ by less are equal, and which text wins is chance
LARGEST_LOSS = 0.3  # BLEU that an export in fewer bits may lose without a warning

Consume = Callable[[list[str]], list[Translation]]  # the exported model, through the library that will run it


@dataclass(frozen=True)
class Sentences:
    """What an export is verified on."""

    sources: list[str]
    references: list[str] | None
    origin: str  # for people


@dataclass(frozen=True)
class Difference:
    """A sentence that the exported model translates otherwise; both scores are our model's."""

    source: str
    ours: str
    theirs: str
    our_score: float
    their_score: float
    same_tokens: bool  # which the export spells otherwise

    @property
    def is_tie(self) -> bool:
        return not self.same_tokens and abs(self.our_score - self.their_score) < TIE


@dataclass(frozen=True)
class Verification:
    sentences: int
    origin: str
    differences: list[Difference]
    our_bleu: Score | None  # None: there were no references
    their_bleu: Score | None

    @property
    def unexplained(self) -> list[Difference]:
        return [difference for difference in self.differences if not difference.is_tie]

    @property
    def bleu_loss(self) -> float | None:
        return None if self.our_bleu is None else self.our_bleu.value - self.their_bleu.value

    def lines(self) -> list[str]:
        """Returns what was found, for people."""
        same = self.sentences - len(self.differences)
        ties = len(self.differences) - len(self.unexplained)
        found = [
            f"verified on {self.sentences} sentences ({self.origin}): {same} identical "
            f"({100 * same / self.sentences:.2f}%), {ties} differ by a tie, {len(self.unexplained)} otherwise"
        ]
        if self.our_bleu is not None:
            found.append(
                f"BLEU {self.our_bleu.value:.2f} by mt, {self.their_bleu.value:.2f} exported: "
                f"{-self.bleu_loss:+.2f} ({self.our_bleu.signature})"
            )
        return found


def sentences_to_verify(config: TrainConfig, run_dir: Path, count: int, file: Path | None) -> Sentences:
    """Returns the first `count` sentences of a file, or else of the run's validation corpora with their references.

    Raises ValueError where there are none, naming --verify.
    """
    if file is not None:
        sources = list(islice((line for line in read_lines(file) if not is_empty(line)), count))
        if not sources:
            raise ValueError(f"--verify {file}: holds no sentences")
        return Sentences(sources, None, str(file))
    remedy = "give sentences to compare translations of with --verify FILE"
    if not config.data.valid:
        raise ValueError(f"{run_dir}: the run has no data.valid; {remedy}")
    try:
        for name, corpus in config.data.valid.items():
            check_corpus(corpus, config.data, f"data.valid.{name}")
        pairs = list(islice(read_corpora(config.data.valid, config.data, "valid"), count))
    except (ValueError, OSError) as error:
        raise ValueError(f"the run's validation sentences cannot be read ({error}); {remedy}") from error
    if all(is_empty(source) for source, _ in pairs):
        raise ValueError(f"{run_dir}: the run's data.valid holds no sentences; {remedy}")
    return Sentences([s for s, _ in pairs], [t for _, t in pairs], "the run's data.valid")


def verify(translator: Translator, consume: Consume, sentences: Sentences, target_language: str) -> Verification:
    """Returns how the exported model's translations compare with our own, which are made on the CPU in float32."""
    exact = Translator(translator.model, translator.tokenizers, replace(translator.decode, lookahead=1.0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of long and unfinished sentences, twice
        ours = exact.translate_best(sentences.sources)
        theirs = consume(sentences.sources)
        our_bleu = their_bleu = None
        if sentences.references is not None:
            our_bleu, their_bleu = (
                score_corpus([t.text for t in made], sentences.references, target_language)["bleu"]
                for made in (ours, theirs)
            )
    pairs = zip(sentences.sources, ours, theirs, strict=True)
    differences = list(_differences(translator, pairs))
    return Verification(len(ours), sentences.origin, differences, our_bleu, their_bleu)


def _differences(
    translator: Translator, pairs: "Iterator[tuple[str, Translation, Translation]]"
) -> Iterator[Difference]:
    for source, ours, theirs in pairs:
        # other libraries strip the ends, and show bytes that are no character
        if ours.text.strip() != without_separators(theirs.text).replace("\ufffd", "").strip():
            scores = [score(translator, source, made) for made in (ours, theirs)]
            yield Difference(source, ours.text, theirs.text, *scores, ours.tokens == theirs.tokens)


def score(translator: Translator, source: str, made: Translation) -> float:
    """Returns the score that our model gives to a translation's tokens, as its search would: in nats / length^alpha."""
    (view,) = translator.force([source], [made.tokens])
    log_probs = [] if view is None else view.log_probs[: len(view.log_probs) - made.unfinished]
    return math.fsum(log_probs) / max(len(log_probs), 1) ** translator.decode.length_penalty
