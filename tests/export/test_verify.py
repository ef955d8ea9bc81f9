"""Verification passes what is equal or a tie, and nothing else."""

from dataclasses import replace

import pytest

from mt.config import CorpusConfig, DecodeConfig, TrainConfig
from mt.export.verify import Sentences, sentences_to_verify, verify
from mt.translation.translator import Translator
from tests.export.small_runs import MODEL, make_tokenizers, random_model, sentences

pytestmark = pytest.mark.filterwarnings("ignore:.*are unfinished.*")


@pytest.fixture(scope="module")
def translator():
    tokenizers = make_tokenizers(False)
    return Translator(random_model(MODEL, tokenizers), tokenizers, DecodeConfig(beam_size=3, max_length_ratio=1.0))


def verified(translator, change):
    """Returns the verification of an export whose translations are ours, changed."""
    texts = sentences(6, seed=3)
    ours = [best for best, *_ in translator.translate_n_best(texts, 1)]
    return verify(translator, lambda _: [change(t) for t in ours], Sentences(texts, None, "a list"), "de")


def test_equal_translations_pass(translator):
    found = verified(translator, lambda t: t)
    assert not found.differences
    assert found.lines() == ["verified on 6 sentences (a list): 6 identical (100.00%), 0 differ by a tie, 0 otherwise"]


def test_spaces_at_the_ends_and_broken_characters_are_no_difference(translator):
    assert not verified(translator, lambda t: replace(t, text=f" {t.text}\ufffd ")).differences


def test_other_text_of_the_same_tokens_is_no_tie(translator):
    found = verified(translator, lambda t: replace(t, text=f"{t.text}x"))
    assert len(found.unexplained) == 6


def test_other_tokens_of_the_same_score_are_a_tie(translator, monkeypatch):
    monkeypatch.setattr("mt.export.verify.score", lambda *_: -1.5)
    found = verified(translator, lambda t: replace(t, text=f"{t.text}x", tokens=[*t.tokens, 9]))
    assert len(found.differences) == 6 and not found.unexplained


def test_worse_translations_do_not_pass(translator):
    found = verified(translator, lambda t: replace(t, text="x", tokens=translator.tokenizers.target.encode(["x"])[0]))
    assert len(found.unexplained) == 6


def test_empty_lines_verify_nothing(tmp_path):
    file = tmp_path / "given.txt"
    file.write_text("\n \ntea\n\nrice\nmilk\n")
    assert sentences_to_verify(TrainConfig(), tmp_path, 2, file).sources == ["tea", "rice"]
    file.write_text("\n \n\u200b\n")
    with pytest.raises(ValueError, match="^--verify .*given.txt: holds no sentences"):
        sentences_to_verify(TrainConfig(), tmp_path, 2, file)
    config = TrainConfig()
    (tmp_path / "valid.tsv").write_text("\trien\n")
    config.data.valid = {"main": CorpusConfig(path=str(tmp_path / "valid.tsv"))}
    with pytest.raises(ValueError, match="data.valid holds no sentences; give sentences .* with --verify FILE"):
        sentences_to_verify(config, tmp_path, 2, None)
