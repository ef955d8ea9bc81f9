import sys
import types
from pathlib import Path

import pytest

from mt.config import CleaningConfig, DataConfig
from mt.data.languages import wrong_language

ENGLISH, GERMAN = "The weather is very nice today, is it not?", "Das Wetter ist heute sehr schön, nicht wahr?"


class Model:
    """Knows English by "the" and German by "das"; newlines it refuses, as fastText's do."""

    def predict(self, text: str, k: int) -> tuple[tuple[str, ...], tuple[float, ...]]:
        assert "\n" not in text and k in (1, -1)
        words = text.lower().split()
        weights = {"en": 1 + 9 * words.count("the"), "de": 1 + 9 * words.count("das"), "fr": 1}
        order = sorted(weights, key=weights.get, reverse=True)[: None if k == -1 else k]
        total = sum(weights.values())
        return tuple(f"__label__{name}" for name in order), tuple(weights[name] / total for name in order)


def load_model(path: str) -> Model:
    if not Path(path).exists():
        raise ValueError(f"{path} cannot be opened for loading!")
    return Model()


@pytest.fixture
def model(monkeypatch, tmp_path: Path) -> str:
    monkeypatch.setitem(sys.modules, "fasttext", types.SimpleNamespace(load_model=load_model))
    (tmp_path / "lid.ftz").write_bytes(b"x")
    return str(tmp_path / "lid.ftz")


def data_config(model: str, target: str = "de", least: float = 0.5) -> DataConfig:
    cleaning = CleaningConfig(min_language_confidence=least, language_model=model)
    return DataConfig(target_language=target, cleaning=cleaning)


def test_wrong_languages(model: str) -> None:
    check = wrong_language(data_config(model))
    assert check(ENGLISH, GERMAN) is None
    assert check(ENGLISH, ENGLISH) == "wrong target language"
    assert check(GERMAN, GERMAN) == "wrong source language"
    assert check("Das Wetter", "The weather 1234567890123") is None  # fewer than 20 letters tell nothing
    assert check(ENGLISH, GERMAN.replace(" ", "\n")) is None
    mixed = "The weather, das Wetter, the one and das andere"  # 0.49 each
    assert check(mixed, mixed) == "wrong source language"
    assert wrong_language(data_config(model, least=0.4))(mixed, mixed) is None
    assert wrong_language(data_config(model, "de_AT"))(ENGLISH, GERMAN) is None


@pytest.mark.parametrize(
    ("target", "path", "message"),
    [
        ("xx", None, r"^data.target_language=xx: .*it knows de en fr: set data.cleaning.min_language_confidence=0$"),
        ("de", "none.ftz", r"^data.cleaning.language_model=none.ftz: is no model of fastText \(none.ftz cannot be"),
    ],
)
def test_what_the_model_does_not_know(model: str, target: str, path: str | None, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        wrong_language(data_config(path or model, target))


def test_without_fasttext(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "fasttext", None)
    with pytest.raises(ValueError, match=r"min_language_confidence: .*pip install 'mt\[cleaning\]'"):
        wrong_language(data_config("x"))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"min_language_confidence": 0.5}, "needs data.cleaning.language_model"),
        ({"language_model": "x"}, "has no effect without data.cleaning.min_language_confidence"),
    ],
)
def test_model_and_threshold_go_together(settings: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CleaningConfig(**settings)
