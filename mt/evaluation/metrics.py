"""Corpus BLEU and chrF through sacreBLEU, never a score without its signature.

The BLEU tokenizer follows the target language: 13a cuts no words in Chinese, so that even identical text would score 0.
"""

import re
import warnings
from dataclasses import dataclass

from sacrebleu.metrics import BLEU, CHRF

_CJK = "[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]"  # kana and Han characters: written without spaces
_SPACED_CJK = re.compile(f"{_CJK} +(?={_CJK})")
_PIECE_MARKS = re.compile("\u2581|@@( |$)")  # of SentencePiece and of subword-nmt
_SPACED_STOP = re.compile(r" [.。]$")


@dataclass(frozen=True)
class Score:
    """One corpus-level score, 0 to 100, with the sacreBLEU signature that says how it was computed."""

    name: str  # BLEU, chrF2
    value: float
    signature: str

    def __str__(self) -> str:
        return f"{self.name}|{self.signature} = {self.value:.2f}"


def score_corpus(
    hypotheses: list[str], references: list[str], target_language: str, tokenizer: str | None = None
) -> dict[str, Score]:
    """Returns {"bleu": Score, "chrf": Score} over the whole corpus, equal to sacreBLEU's command line.

    Both sides are plain, detokenised text, one sentence an item; text that does not look so gives a warning.
    `tokenizer` (a sacreBLEU name such as "flores200") overrides the one that follows from `target_language`.
    Raises ValueError if the two sides differ in length or are empty, or if the tokenizer is unknown or not installed.
    """
    if len(hypotheses) != len(references):
        raise ValueError(
            f"{len(hypotheses)} hypotheses but {len(references)} references: scoring needs one reference a hypothesis"
        )
    if not hypotheses:
        raise ValueError("0 hypotheses and 0 references: there is nothing to score")
    _warn_if_tokenised(hypotheses, references)
    bleu = tokenizer or bleu_tokenizer(target_language)
    if (
        tokenizer is None
        and bleu == "13a"
        and sum(bool(re.search(_CJK, line)) for line in references) * 2 > len(references)
    ):
        warnings.warn(
            f"most references are Chinese or Japanese, but {target_language!r} is scored with tok:13a, which cuts no "
            "words there: set data.target_language=zh or ja, or choose the tokenizer with --bleu-tokenizer",
            stacklevel=2,
        )
    metrics = {"bleu": make_bleu(bleu), "chrf": CHRF()}
    scores = {}
    for key, metric in metrics.items():
        result = metric.corpus_score(hypotheses, [references])
        scores[key] = Score(result.name, result.score, str(metric.get_signature()))
    return scores


def bleu_tokenizer(language: str) -> str:
    """Returns the name of the sacreBLEU tokenizer for a language code such as zh, zh-CN, zh_Hans, ja or de.

    Japanese and Korean fall back to characters, with a warning, where their MeCab is not installed.
    """
    language = re.split("[-_]", language.strip().lower())[0]
    if language in ("zh", "zho", "chi", "cmn", "yue"):
        return "zh"
    for code, names in {"ja": ("ja", "jpn"), "ko": ("ko", "kor")}.items():
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


def make_bleu(tokenizer: str) -> BLEU:
    """Returns sacreBLEU's metric. Raises ValueError for a tokenizer that is unknown or not installed."""
    if tokenizer not in BLEU.TOKENIZERS:
        raise ValueError(f"BLEU tokenizer {tokenizer!r}: must be one of {', '.join(BLEU.TOKENIZERS)}")
    try:
        return BLEU(tokenize=tokenizer, force=True)  # force: our own warning about tokenised text replaces sacreBLEU's
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
