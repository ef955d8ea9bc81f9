"""Which language a text is in, by one of fastText's models of language identification, such as lid.176.ftz."""

import hashlib
from collections.abc import Callable
from typing import Protocol

from mt.config import DataConfig
from mt.data.filters import Filter

_LETTERS = 20  # of shorter texts nobody can tell the language
_PREFIX = "__label__"


def model_digest(path: str) -> str:
    """Returns the SHA-256 hex digest of a model. Raises ValueError, naming the setting, where it cannot be read."""
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ValueError(f"data.cleaning.language_model={path}: {error.strerror}") from error


class _Model(Protocol):
    def predict(self, text: str, k: int) -> tuple[tuple[str, ...], tuple[float, ...]]: ...


def wrong_language(data: DataConfig) -> Filter:
    """Returns the filter of sides of 20 or more letters that are hardly in their language.

    That is where the model gives their language a smaller probability than data.cleaning.min_language_confidence.
    Raises ValueError where fastText or its model is missing or the model does not know a language.
    """
    model = _load(data.cleaning.language_model)
    least = data.cleaning.min_language_confidence
    source, target = (_confidence(model, data, side) for side in ("source", "target"))

    def reason(source_text: str, target_text: str) -> str | None:
        if _has_letters(source_text) and source(source_text) < least:
            return "wrong source language"
        return "wrong target language" if _has_letters(target_text) and target(target_text) < least else None

    return reason


def _has_letters(text: str) -> bool:
    return sum(map(str.isalpha, text)) >= _LETTERS


def _load(path: str) -> _Model:
    try:
        import fasttext
    except ImportError as error:
        raise ValueError(
            "data.cleaning.min_language_confidence: the package fasttext-predict is missing: pip install 'mt[cleaning]'"
        ) from error
    try:
        return fasttext.load_model(path)
    except ValueError as error:
        raise ValueError(f"data.cleaning.language_model={path}: is no model of fastText ({error})") from error


def _confidence(model: _Model, data: DataConfig, side: str) -> Callable[[str], float]:
    """Returns the function that gives the probability of a text's being in the language of a side."""
    code = getattr(data, f"{side}_language")
    label = _PREFIX + code.replace("_", "-").split("-")[0].lower()
    known, _ = model.predict("a", k=-1)
    if label not in known:
        names = " ".join(sorted(name.removeprefix(_PREFIX) for name in known))
        raise ValueError(
            f"data.{side}_language={code}: data.cleaning.language_model does not know it; it knows {names}: set "
            "data.cleaning.min_language_confidence=0"
        )

    def confidence(text: str) -> float:
        text = text.replace("\n", " ")  # which fastText refuses
        labels, probabilities = model.predict(text, k=1)
        if labels != (label,):  # all are listed only where the likeliest is another
            labels, probabilities = model.predict(text, k=-1)
        return dict(zip(labels, probabilities, strict=True)).get(label, 0.0)

    return confidence
