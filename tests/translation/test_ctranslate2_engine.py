"""The engine keeps the promises of Translator: lines, limits, flags, n-best, what is never written."""

import json
from dataclasses import replace

import pytest
import torch

from mt.config import DecodeConfig
from mt.export.ctranslate2_model import save_ctranslate2_model
from mt.tokenizer import EOS_ID, UNK_ID
from mt.translation import ctranslate2_engine as engine_module
from mt.translation.ctranslate2_engine import (
    EXHAUSTIVE,
    PATIENCE,
    CTranslate2Translator,
    exported_decode,
    load_ctranslate2_translator,
)
from mt.translation.translator import Translator
from tests.export.small_runs import MODEL, make_tokenizers, random_model, sentences

pytest.importorskip("ctranslate2", reason="needs mt's extra export")
pytestmark = pytest.mark.filterwarnings("ignore:.*are unfinished.*")
RICH = replace(MODEL, output_bias=True)


@pytest.fixture(scope="module")
def tokenizers():
    return make_tokenizers(False)


@pytest.fixture
def make(tokenizers, tmp_path):
    def make(model=None, **decode):
        model = model or random_model(RICH, tokenizers)
        save_ctranslate2_model(tmp_path, model.config, model.state_dict(), tokenizers, 1100, "float32")
        settings = DecodeConfig(**{"lookahead": 1.0, "margin": 0.0, **decode})  # as CTranslate2 searches here
        return Translator(model, tokenizers, settings), CTranslate2Translator(
            tmp_path, tokenizers, settings, "cpu", EXHAUSTIVE
        )

    return make


def same(found, expected):
    for a, b in zip(found, expected, strict=True):
        assert [(t.text, t.tokens, t.unfinished, t.source_truncated) for t in a] == [
            (t.text, t.tokens, t.unfinished, t.source_truncated) for t in b
        ]
        assert [t.score for t in a] == pytest.approx([t.score for t in b], abs=1e-4)


@pytest.mark.parametrize("decode", [{"beam_size": 1}, {"beam_size": 4}, {"beam_size": 4, "length_penalty": 0.0}])
def test_results_are_those_of_our_search(make, decode):
    ours, theirs = make(**decode)
    texts = sentences(30, seed=3) + ["", "  ", "\u200b"]
    expected = ours.translate_n_best(texts, 1)
    assert len({found[0].text for found in expected}) > 15
    same(theirs.translate_n_best(texts, 1), expected)


def test_n_best_differ_and_fall(make):
    ours, theirs = make(beam_size=4, length_penalty=1.0)
    expected = ours.translate_n_best(sentences(10), 3)
    same([found[:1] for found in theirs.translate_n_best(sentences(10), 3)], [found[:1] for found in expected])
    for found in theirs.translate_n_best(sentences(10), 3):
        assert len({translation.text for translation in found}) == len(found)
        scores = [translation.score for translation in found if not translation.unfinished]
        assert scores == sorted(scores, reverse=True)
    with pytest.raises(ValueError, match="n_best=5: must be between 1 and decode.beam_size=4"):
        theirs.translate_n_best(["tea"], 5)


def test_long_sources_are_cut_and_long_outputs_flagged(make, tokenizers):
    model = random_model(RICH, tokenizers)
    with torch.no_grad():
        model.output_bias[3] = -1000  # no output ends
    ours, theirs = make(model, beam_size=2, max_source_tokens=20, max_length_ratio=0.5, max_length_offset=3)
    texts = ["tea", "green tea " * 50, "rice"]
    with pytest.warns(UserWarning) as caught:
        found = theirs.translate_n_best(texts, 1)
    messages = [str(warning.message) for warning in caught]
    assert any("decode.max_source_tokens=20" in message and "line 2" in message for message in messages)
    assert any(message.startswith("3 of 3 translations reached") for message in messages)
    assert [t[0].source_truncated for t in found] == [False, True, False]
    same(found, ours.translate_n_best(texts, 1))
    assert len(found[1][0].tokens) == 13


def test_unknown_pieces_are_never_written(make, tokenizers):
    model = random_model(RICH, tokenizers)
    with torch.no_grad():
        model.output_bias[UNK_ID] = 1000
    for beam_size in (1, 3):
        _, theirs = make(model, beam_size=beam_size)
        for found in theirs.translate_n_best(sentences(5), 1):
            assert found[0].tokens and UNK_ID not in found[0].tokens


def test_batches_and_neighbours_change_nothing(make, monkeypatch):
    _, theirs = make(beam_size=3)
    texts = sentences(20, seed=8)
    expected = theirs.translate_n_best(texts, 2)
    done = []
    theirs.decode = replace(theirs.decode, batch_tokens=1)
    monkeypatch.setattr(engine_module, "AT_ONCE", 6)
    same(theirs.translate_n_best(texts, 2, done.append), expected)
    assert done == [6, 12, 18, 20]
    assert theirs.translate(texts) == [found[0].text for found in expected]
    assert theirs.translate([]) == []


@pytest.mark.parametrize(
    ("beam_size", "n_best", "patience"), [(1, 1, PATIENCE), (4, 1, PATIENCE), (4, 4, PATIENCE), (4, 4, EXHAUSTIVE)]
)
def test_each_source_has_its_own_longest_output(make, tokenizers, beam_size, n_best, patience):
    model = random_model(RICH, tokenizers)
    with torch.no_grad():
        model.output_bias[EOS_ID] += 4  # some outputs end in time
    _, theirs = make(model, beam_size=beam_size, max_length_ratio=1.0, max_length_offset=1)
    theirs._patience = patience
    texts = sentences(25, seed=6)
    lengths = theirs.count_tokens(texts)
    found = theirs.translate_n_best(texts, n_best)
    for length, translations in zip(lengths, found, strict=True):
        assert max(len(t.tokens) + (not t.unfinished) for t in translations) <= length + 1
        assert all(len(t.tokens) == length + 1 for t in translations if t.unfinished)
    assert len({t.unfinished for (t, *_) in found}) == 2
    same(found, [theirs.translate_n_best([text], n_best)[0] for text in texts])


def test_what_is_wrong_with_a_folder_is_one_line(make, tmp_path, tokenizers):
    make()
    with pytest.raises(ValueError, match="holds no export.json: no folder that mt export wrote"):
        load_ctranslate2_translator(tmp_path)
    (tmp_path / "export.json").write_text('{"made_by": "somebody"}')
    with pytest.raises(ValueError, match="export.json: was not written by mt export"):
        load_ctranslate2_translator(tmp_path)
    (tmp_path / "export.json").write_text('{"made_by": "mt 1", "to": "transformers", "decode": {"beam_size": 7}}')
    assert exported_decode(tmp_path).beam_size == 7
    with pytest.raises(ValueError, match="was exported to transformers"):
        load_ctranslate2_translator(tmp_path)
    (tmp_path / "export.json").write_text('{"made_by": "mt 1", "to": "ctranslate2", "decode": {}, "positions": 100}')
    with pytest.raises(ValueError, match=r"^decode.max_source_tokens=1024: allows 2058 tokens.* exported for 100"):
        load_ctranslate2_translator(tmp_path)
    record = {"made_by": "mt 1", "to": "ctranslate2", "decode": {}, "tokenizer_fingerprint": "other"}
    (tmp_path / "export.json").write_text(json.dumps(record))
    tokenizers.save(tmp_path)
    with pytest.raises(ValueError, match="its tokenizers are not those that it was exported with"):
        load_ctranslate2_translator(tmp_path)
    (tmp_path / "export.json").write_text(json.dumps({**record, "tokenizer_fingerprint": tokenizers.fingerprint}))
    load_ctranslate2_translator(tmp_path)
    (tmp_path / "model.bin").write_bytes(b"no model")
    with pytest.raises(ValueError, match="CTranslate2 cannot load it on device=cpu") as caught:
        CTranslate2Translator(tmp_path, tokenizers, DecodeConfig(), "cpu")
    assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match="CTranslate2 cannot load it on device=mps"):
        CTranslate2Translator(tmp_path, tokenizers, DecodeConfig(), "mps")
