"""Corpus scores through sacreBLEU, never one without its signature: BLEU, chrF, chrF++ and TER.

The tokenizer follows the target language: 13a cuts no words in Chinese, so that even identical text would score 0.
"""

import os
import re
import warnings
from dataclasses import dataclass
from typing import Any

from sacrebleu.metrics import BLEU, CHRF, TER
from sacrebleu.metrics.base import Metric
from sacrebleu.significance import estimate_ci

from mt.evaluation.resampling import RESAMPLES, Sample, sample
from mt.languages import CHINESE, JAPANESE, WITHOUT_SPACES, primary_language

CJK = "[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]"  # kana and Han characters: written without spaces
_SPACED_CJK = re.compile(f"{CJK} +(?={CJK})")
_PIECE_MARKS = re.compile("\u2581|@@( |$)")  # of SentencePiece and of subword-nmt
_SPACED_STOP = re.compile(r" [.。]$")
_SOUTH_EAST_ASIAN = "[\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff]"  # Thai, Lao, Tibetan, Burmese, Khmer


@dataclass(frozen=True)
class Interval:
    """A 95% interval: the middle 95% of the scores of resampled test sets, written as their mean ± half its width."""

    mean: float
    half_width: float


@dataclass(frozen=True)
class Score:
    """One corpus-level score, the signature that says how it was computed, and its interval where one was asked for.

    BLEU and chrF go from 0 to 100; TER is edits for 100 reference words, lower being better, and may exceed 100.
    """

    name: str  # BLEU, chrF2, chrF2++, TER, COMET
    value: float
    signature: str
    interval: Interval | None = None
    decimals: int = 2

    def __str__(self) -> str:
        return f"{self.name}|{self.signature} = {self.number()}"

    def number(self) -> str:
        """Returns the value, and the interval in parentheses, in the form of sacreBLEU's command line."""
        shown = f"{self.value:.{self.decimals}f}"
        if self.interval is None:
            return shown
        return f"{shown} (μ = {self.interval.mean:.{self.decimals}f} ± {self.interval.half_width:.{self.decimals}f})"

    def record(self) -> dict[str, Any]:
        """Returns JSON values: value, signature, and mean and half_width of the interval."""
        interval = {} if self.interval is None else vars(self.interval)
        return {"value": self.value, "signature": self.signature, **interval}


def score_corpus(
    hypotheses: list[str], references: list[str], target_language: str, tokenizer: str | None = None
) -> dict[str, Score]:
    """Returns {"bleu": Score, "chrf": Score} over the whole corpus, equal to sacreBLEU's command line.

    Both sides are plain, detokenised text, one sentence an item; text that does not look so gives a warning.
    `tokenizer` (a sacreBLEU name such as "flores200") overrides the one that follows from `target_language`.
    Raises ValueError if the two sides differ in length or are empty, or if the tokenizer is unknown or not installed.
    """
    check_text(hypotheses, [references])
    metrics = make_metrics([references], target_language, tokenizer, ("bleu", "chrf"))
    return {key: score_metric(metric, hypotheses) for key, metric in metrics.items()}


def score_with_intervals(
    hypotheses: list[str], references: list[list[str]], target_language: str, tokenizer: str | None = None
) -> dict[str, Score]:
    """Returns Scores with intervals by "bleu", "chrf", "chrf++" and "ter", equal to `sacrebleu --confidence`.

    `references` holds one list a reference translation, each as long as `hypotheses`. Raises ValueError as score_corpus
    and check_seed.
    """
    seed = check_seed()
    check_text(hypotheses, references)
    metrics = make_metrics(references, target_language, tokenizer)
    return {key: resampled_score(sample(metric, hypotheses, seed), seed) for key, metric in metrics.items()}


def resampled_score(found: Sample, seed: int, exchanges: int | None = None) -> Score:
    """Returns the score with its interval; the signature tells of the resamples, of `exchanges` and of their seed."""
    signature = found.metric.get_signature()
    for key, value in {"bs": RESAMPLES, "ar": exchanges, "seed": seed}.items():
        signature.update(key, value)
    interval = Interval(*map(float, estimate_ci(found.resampled)))
    return Score(found.score.name, float(found.score.score), str(signature), interval)


def sentence_chrf(hypotheses: list[str], references: list[list[str]]) -> tuple[list[float], str]:
    """Returns chrF of each sentence by itself, 0 to 100, and the signature. Lengths as score_with_intervals."""
    metric = CHRF()
    rows = zip(hypotheses, *references, strict=True)
    return [metric.sentence_score(row[0], list(row[1:])).score for row in rows], str(metric.get_signature())


def check_seed() -> int:
    """Returns the seed of all resampling: sacreBLEU's 12345, or the variable SACREBLEU_SEED.

    Raises ValueError where that is not a whole number from 1 on: with 0 or None, results could not be repeated.
    """
    seed = os.environ.get("SACREBLEU_SEED", "12345")
    if not (seed.isascii() and seed.isdigit() and int(seed) > 0):
        raise ValueError(f"SACREBLEU_SEED={seed}: must be a whole number from 1 on, or be unset")
    return int(seed)


def check_text(hypotheses: list[str], references: list[list[str]]) -> None:
    """Raises ValueError for sides that differ in length or are empty; warns of hypotheses that look tokenised."""
    for lines in references:
        if len(hypotheses) != len(lines):
            raise ValueError(
                f"{len(hypotheses)} hypotheses but {len(lines)} references: scoring needs one reference a hypothesis"
            )
    if not hypotheses or not references:
        raise ValueError(f"{len(hypotheses)} hypotheses and 0 references: there is nothing to score")
    _warn_if_tokenised(hypotheses, references[0])


def make_metrics(
    references: list[list[str]],
    target_language: str,
    tokenizer: str | None = None,
    keys: tuple[str, ...] = ("bleu", "chrf", "chrf++", "ter"),
) -> dict[str, Metric]:
    """Returns sacreBLEU's metrics by the keys of our results; they hold the references ready.

    TER counts words between spaces, in Chinese and Japanese characters (norm:yes|asian:yes). Warns of references in a
    script without spaces that BLEU would not cut.
    """
    chosen = tokenizer or bleu_tokenizer(target_language)
    if tokenizer is None and chosen == "13a":
        _warn_if_uncut(references[0], target_language)
    by_character = chosen in ("zh", "ja-mecab") or primary_language(target_language) in WITHOUT_SPACES
    makers = {
        "bleu": lambda: make_bleu(chosen, references),
        "chrf": lambda: CHRF(references=references),
        "chrf++": lambda: CHRF(word_order=2, references=references),
        "ter": lambda: TER(normalized=by_character, asian_support=by_character, references=references),
    }
    return {key: makers[key]() for key in keys}


def score_metric(metric: Metric, hypotheses: list[str]) -> Score:
    """Returns the score against the references that the metric holds, without an interval."""
    result = metric.corpus_score(hypotheses, None)
    return Score(result.name, result.score, str(metric.get_signature()))


def _warn_if_uncut(references: list[str], language: str) -> None:
    """Warns if most references are written without spaces between words, for which tok:13a knows no other end."""
    remedies = {
        CJK: f"Chinese or Japanese, but {language!r} is scored with tok:13a, which cuts no words there: set "
        "data.target_language=zh or ja (for a file --target-language), or choose --bleu-tokenizer",
        _SOUTH_EAST_ASIAN: "in a script without spaces between words, and tok:13a cuts none there: BLEU counts whole "
        "phrases; choose --bleu-tokenizer char, or look at chrF2",
    }
    for script, remedy in remedies.items():
        if sum(re.search(script, line) is not None for line in references) * 2 > len(references):
            warnings.warn(f"most references are {remedy}", stacklevel=4)


def bleu_tokenizer(language: str) -> str:
    """Returns the name of the sacreBLEU tokenizer for a language code such as zh, zh-CN, zh_Hans, ja or de.

    Japanese and Korean fall back to characters, with a warning, where their MeCab is not installed.
    """
    language = primary_language(language)
    if language in CHINESE:
        return "zh"
    for code, names in {"ja": JAPANESE, "ko": ("ko", "kor")}.items():
        if language in names:
            try:
                BLEU(tokenize=f"{code}-mecab")
            except RuntimeError:  # what sacreBLEU raises without MeCab
                warnings.warn(
                    f"BLEU for {code} uses single characters (tok:char): the usual {code}-mecab needs "
                    f"`pip install sacrebleu[{code}]`",
                    stacklevel=3,
                )
                return "char"
            return f"{code}-mecab"
    return "13a"


def make_bleu(tokenizer: str, references: list[list[str]] | None = None) -> BLEU:
    """Returns sacreBLEU's metric. Raises ValueError for a tokenizer that is unknown or not installed."""
    if tokenizer not in BLEU.TOKENIZERS:
        raise ValueError(f"BLEU tokenizer {tokenizer!r}: must be one of {', '.join(BLEU.TOKENIZERS)}")
    try:  # force: our own warning about tokenised text replaces sacreBLEU's
        return BLEU(tokenize=tokenizer, force=True, references=references)
    except RuntimeError as error:
        raise ValueError(f"BLEU tokenizer {tokenizer!r} is not installed: {' '.join(str(error).split())}") from error


def _warn_if_tokenised(hypotheses: list[str], references: list[str]) -> None:
    """Warns if hypotheses hold subword marks, or if a tenth or more of them end in " ." or have spaces inside Chinese.

    References with about as many such lines excuse spaces inside Chinese, which some corpora use as punctuation.
    """
    marked = sum(bool(_PIECE_MARKS.search(line)) for line in hypotheses)
    stops = sum(bool(_SPACED_STOP.search(line)) for line in hypotheses)
    spaced = sum(bool(_SPACED_CJK.search(line)) for line in hypotheses)
    spaced_references = sum(bool(_SPACED_CJK.search(line)) for line in references)
    signs = []
    if marked:
        signs.append(f"{marked} hold subword marks (\u2581 or @@)")
    if stops * 10 >= len(hypotheses):
        signs.append(f"{stops} end in a space and a full stop")
    if spaced * 10 >= len(hypotheses) and spaced > 2 * spaced_references:
        signs.append(f"{spaced} have spaces between Chinese or Japanese characters ({spaced_references} references do)")
    if signs:
        warnings.warn(
            f"of {len(hypotheses)} hypotheses {', '.join(signs)}: they look tokenised, and scores of tokenised text "
            "compare with nothing; score plain text",
            stacklevel=3,
        )
