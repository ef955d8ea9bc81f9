"""Every architecture in CTranslate2's format, against our own model: probabilities of given outputs, and searches."""

import itertools
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from mt.config import DecodeConfig
from mt.export.ctranslate2_model import QUANTIZATIONS, save_ctranslate2_model
from mt.export.verify import score
from mt.translation.ctranslate2_engine import EXHAUSTIVE, CTranslate2Translator
from mt.translation.translator import Translation, Translator
from tests.export.small_runs import MODEL, make_tokenizers, random_model, sentences

ctranslate2 = pytest.importorskip("ctranslate2", reason="needs mt's extra export")
pytestmark = pytest.mark.filterwarnings("ignore:.*are unfinished.*")

ACTIVATIONS = itertools.cycle(["relu", "gelu", "silu", "swiglu", "swiglu"])  # five beside twelve: in every company
ARCHITECTURES = [
    {"norm_position": position, "norm": norm, "activation": next(ACTIVATIONS), "positions": positions}
    for position, norm, positions in itertools.product(
        ["pre", "post"], ["layer_norm", "rms_norm"], ["sinusoidal", "sinusoidal_paper", "rotary"]
    )
] + [
    {"tying": "three_way"},
    {"tying": "decoder"},
    {"tying": "decoder", "output_bias": True},
    {"encoder_layers": 1, "decoder_layers": 3},
    {"norm_epsilon": 0.01},
    {"norm_epsilon": 0.01, "norm": "rms_norm"},
    {"norm_epsilon": 0.01, "norm": "rms_norm", "norm_position": "post", "positions": "rotary"},
]


@pytest.fixture(scope="module")
def tokenizers():
    return {joint: make_tokenizers(joint) for joint in (True, False)}


def exported(folder: Path, model, tokenizers, decode: DecodeConfig, quantization: str = "float32"):
    """Returns our translator and CTranslate2's."""
    save_ctranslate2_model(folder, model.config, model.state_dict(), tokenizers, 300, quantization)
    return Translator(model, tokenizers, decode), CTranslate2Translator(folder, tokenizers, decode, "cpu", EXHAUSTIVE)


@pytest.mark.parametrize("changes", ARCHITECTURES, ids=lambda changes: "-".join(map(str, changes.values())))
def test_probabilities_and_searches_agree(changes, tokenizers, tmp_path):
    pair = tokenizers[changes.get("tying") == "three_way"]
    model = random_model(replace(MODEL, **changes), pair)
    decode = DecodeConfig(beam_size=3, length_penalty=0.7, max_length_ratio=1.0)
    ours, theirs = exported(tmp_path, model, pair, decode)
    texts = sentences(6, seed=11)
    given = [ids[:9] for ids in pair.target.encode(sentences(6, seed=12))]
    source_pieces = [pair.source.pieces(ids) for ids in pair.source.encode(texts)]
    results = theirs._engine.score_batch(source_pieces, [pair.target.pieces(ids) for ids in given])
    for text, ids, result in zip(texts, given, results, strict=True):
        expected = score(ours, text, Translation("", 0.0, ids, False, False))
        assert sum(result.log_probs) / (len(ids) + 1) ** 0.7 == pytest.approx(expected, abs=1e-4)
    found, expected = (translator.translate_n_best(texts, 3) for translator in (theirs, ours))
    assert len({translations[0].text for translations in expected}) > 3
    for a, b in zip(found, expected, strict=True):
        assert a[0].tokens == b[0].tokens
        assert a[0].score == pytest.approx(b[0].score, abs=1e-4)
        assert a[0].unfinished == b[0].unfinished


@pytest.mark.parametrize("quantization", QUANTIZATIONS)
def test_every_type_loads_and_is_near(quantization, tokenizers, tmp_path):
    pair = tokenizers[False]
    model = random_model(replace(MODEL, d_model=32, activation="swiglu"), pair)
    ours, theirs = exported(tmp_path, model, pair, DecodeConfig(beam_size=2), quantization)
    texts = sentences(4, seed=3)
    pieces = [pair.source.pieces(ids) for ids in pair.source.encode(texts)]
    given = [ids[:9] for ids in pair.target.encode(sentences(4, seed=4))]
    results = theirs._engine.score_batch(pieces, [pair.target.pieces(ids) for ids in given])
    for text, ids, result in zip(texts, given, results, strict=True):
        expected = score(ours, text, Translation("", 0.0, ids, False, False))
        assert sum(result.log_probs) / (len(ids) + 1) == pytest.approx(expected, rel=0.1)


def test_tied_tables_and_positions_are_stored_once(tokenizers, tmp_path):
    pair = tokenizers[True]
    sizes = {}
    for tying in ("three_way", "none"):
        folder = tmp_path / tying
        folder.mkdir()
        model = random_model(replace(MODEL, tying=tying, d_model=32), pair)
        save_ctranslate2_model(folder, model.config, model.state_dict(), pair, 300, "float32")
        numbers = sum(p.numel() for p in model.parameters()) + 300 * 32
        sizes[tying] = (folder / "model.bin").stat().st_size - 4 * numbers
        torch.testing.assert_close(sizes[tying], 3000, rtol=0, atol=3000)  # names and shapes
