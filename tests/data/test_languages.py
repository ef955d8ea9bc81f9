import sys

import pytest

from mt.config import CleaningConfig, DataConfig
from mt.data.languages import wrong_language

ENGLISH, GERMAN = "The weather is very nice today, is it not?", "Das Wetter ist heute sehr schön, nicht wahr?"


def data_config(target: str = "de") -> DataConfig:
    return DataConfig(target_language=target, cleaning=CleaningConfig(min_language_confidence=0.5))


def test_wrong_languages() -> None:
    pytest.importorskip("lingua")
    reasons = wrong_language(data_config())
    french = "Le temps est très beau aujourd'hui, n'est-ce pas?"
    pairs = [(ENGLISH, GERMAN), (ENGLISH, ENGLISH), (french, french), ("Bonjour", "Adieu"), (french, GERMAN)]
    assert reasons(pairs) == [None, "wrong target language", "wrong source language", None, "wrong source language"]
    assert reasons([]) == []


def test_a_language_that_lingua_does_not_know() -> None:
    pytest.importorskip("lingua")
    with pytest.raises(ValueError, match="^data.target_language=xx: .*min_language_confidence .*zh.*: set it to 0$"):
        wrong_language(data_config("xx"))


def test_without_lingua(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "lingua", None)
    with pytest.raises(ValueError, match=r"min_language_confidence: .*pip install 'mt\[cleaning\]'"):
        wrong_language(data_config())
