"""A run as a class of transformers: equal logits, equal translations, by its own classes alone."""

import re
from dataclasses import replace

import pytest
import torch

from mt.config import DecodeConfig
from mt.export.transformers_consumer import translate_by_transformers
from mt.export.transformers_model import check_fits_transformers, save_transformers_model
from mt.model.layout import Layout
from mt.tokenizer import BOS_ID, EOS_ID
from mt.translation.translator import Translator
from tests.export.small_runs import MODEL, make_tokenizers, random_model, sentences

transformers = pytest.importorskip("transformers", reason="needs mt's extra transformers")
pytestmark = pytest.mark.filterwarnings("ignore:.*are unfinished.*", "ignore:.*sacremoses.*")

CASES = [
    ({"norm_position": position, "tying": tying, "activation": activation, "output_bias": bias}, joint)
    for position in ("pre", "post")
    for tying, joint, activation, bias in [
        ("three_way", True, "relu", False),
        ("three_way", True, "silu", True),
        ("decoder", False, "gelu", False),
        ("decoder", True, "relu", True),
        ("none", False, "relu", False),
        ("none", False, "silu", True),
    ]
] + [({"norm_position": "post", "positions": "sinusoidal_paper", "tying": "decoder", "norm_epsilon": 1e-5}, False)]


def one_line(text: str) -> list[str]:
    """Returns the words of what SentencePiece writes, without what we leave out: random bytes are no text.

    Of bytes that are no character it makes U+FFFD, we nothing; a control character is a space to us.
    """
    return re.sub(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]", " ", text.replace("\ufffd", "")).split()


@pytest.fixture(scope="module")
def tokenizers():
    return {joint: make_tokenizers(joint) for joint in (True, False)}


@pytest.mark.parametrize(("changes", "joint"), CASES)
def test_logits_and_translations_are_ours(changes, joint, tokenizers, tmp_path):
    pair = tokenizers[joint]
    model = random_model(replace(MODEL, **changes), pair)
    decode = DecodeConfig(beam_size=3, length_penalty=0.7, max_length_ratio=1.0, max_source_tokens=100)
    save_transformers_model(tmp_path, model.config, model.state_dict(), pair, decode, 200)
    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert isinstance(theirs, transformers.MarianMTModel) == (model.config.norm_position == "post")

    text, output = "they read good books every day", "sie lesen gute Bücher"
    ids = tokenizer(text)["input_ids"]
    source = [*pair.source.encode([text])[0], EOS_ID]
    assert ids == source
    labels = tokenizer(text_target=output)["input_ids"]
    target = pair.target.encode([output])[0]
    with torch.no_grad():
        hidden = model(
            torch.tensor(source), Layout.from_lengths([len(source)]),
            torch.tensor([BOS_ID, *target]), Layout.from_lengths([len(target) + 1]),
        )  # fmt: skip
        start = torch.tensor([[BOS_ID, *labels[:-1]]])
        logits = theirs(input_ids=torch.tensor([ids]), decoder_input_ids=start).logits[0]
    expected = model.logits(hidden).log_softmax(1)
    found = logits.log_softmax(1)
    found = torch.cat([found[:, :4], found[:, -expected.shape[1] + 4 :]], dim=1)  # without source pieces in between
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-5)

    texts = [*sentences(8, seed=21), ""]
    ours = Translator(model, pair, decode).translate_n_best(texts, 1)
    found = translate_by_transformers(tmp_path, texts, decode, pair)
    assert [t.tokens for t in found] == [best.tokens for best, *_ in ours]
    assert [one_line(t.text) for t in found] == [best.text.split() for best, *_ in ours]
    assert [t.unfinished for t in found] == [best.unfinished for best, *_ in ours]
    scores = [best.score for best, *_ in ours]
    assert [t.score for t in found] == pytest.approx(scores, abs=1e-4)


def test_the_plain_call_translates(tokenizers, tmp_path):
    pair = tokenizers[False]
    model = random_model(replace(MODEL, output_bias=True), pair)
    with torch.no_grad():
        model.output_bias[EOS_ID] += 4  # outputs end
    decode = DecodeConfig(beam_size=1, max_source_tokens=50)
    save_transformers_model(tmp_path, model.config, model.state_dict(), pair, decode, 111)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path)
    texts = sentences(6, seed=2)
    batch = tokenizer(texts, return_tensors="pt", padding=True)
    found = tokenizer.batch_decode(theirs.generate(**batch), skip_special_tokens=True)
    ours = Translator(model, pair, decode).translate_n_best(texts, 1)
    finished = [index for index, (best, *_) in enumerate(ours) if not best.unfinished]
    assert len(finished) > 2
    assert [one_line(found[i]) for i in finished] == [ours[i][0].text.split() for i in finished]


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"norm": "rms_norm"}, r"model.norm=rms_norm \(needs layer_norm\)"),
        ({"positions": "rotary"}, r"model.positions=rotary \(needs sinusoidal or sinusoidal_paper\)"),
        ({"activation": "swiglu"}, r"model.activation=swiglu \(needs relu or gelu or silu\)"),
    ],
)
def test_what_no_class_computes_is_named(changes, named):
    with pytest.raises(ValueError, match=named):
        check_fits_transformers(replace(MODEL, **changes))
    check_fits_transformers(MODEL)
