"""Ids of many texts at once are those of the tokenizer, whether words are looked up or texts are cut whole."""

import random

import numpy as np
import pytest

from mt.config import TokenizerConfig
from mt.data import flat
from mt.data.flat import FlatEncoder, ids_dtype
from mt.tokenizer import Tokenizer, TokenizerPair, train_tokenizers

pytestmark = pytest.mark.filterwarnings("ignore:tokenizer")
WORDS = "red tea rice reread tea-time Äpfel ſſ 茶 红茶和米饭 x\u0301 \u0301 ﬁ ① 😀".split(" ")
ODD = ["", " ", "  tea", "a  b", "a ", " a", "a\u00a0b", "\u00a0", "x \u00a0y", "▁tea", "a▁ b", "a\tb\n", "\u3000茶"]


def tokenizer(algorithm: str, normalization: str) -> Tokenizer:
    generator = random.Random(1)
    pairs = [(" ".join(generator.choices(WORDS, k=6)), " ".join(generator.choices(WORDS, k=6))) for _ in range(300)]
    settings = TokenizerConfig(
        algorithm=algorithm, vocabulary_size=340, source_normalization=normalization, joint=False
    )
    return train_tokenizers(pairs, settings, seed=1).source


@pytest.mark.parametrize("normalization", ["identity", "nfkc", "nfkc_casefold"])
def test_words_looked_up_give_the_ids_of_whole_texts(normalization, monkeypatch):
    trained = tokenizer("bpe", normalization)
    assert trained.cuts_each_word_alone()
    monkeypatch.setattr(flat, "_WORDS", 50)
    encoder, generator = FlatEncoder(trained, np.dtype(np.uint16), 1), random.Random(2)
    letters = "ab 1\u0301\u0308\u3099かABtﬁ①\u00a0 \u00b4\u1fed\ufdfa▁"
    for _ in range(30):
        made = ["".join(generator.choices(letters, k=generator.randint(0, 12))) for _ in range(40)]
        texts = [*made, " ".join(generator.choices(WORDS, k=9)), *ODD]
        ids, lengths = encoder.encode(texts)
        expected = trained.encode(texts)
        assert lengths.tolist() == [len(sentence) for sentence in expected]
        assert ids.tolist() == [token for sentence in expected for token in sentence] and ids.dtype == np.uint16
    assert len(encoder._words) <= 50 + 300
    ids, lengths = encoder.encode([])
    assert len(ids) == len(lengths) == 0


def test_a_unigram_model_cuts_whole_texts():
    trained = tokenizer("unigram", "identity")
    assert not trained.cuts_each_word_alone()
    ids, lengths = FlatEncoder(trained, np.dtype(np.int32), 1).encode(ODD)
    expected = trained.encode(ODD)
    assert lengths.tolist() == [len(sentence) for sentence in expected] and ids.dtype == np.int32
    assert ids.tolist() == [token for sentence in expected for token in sentence]


def test_the_smallest_type_that_holds_both_vocabularies(monkeypatch):
    trained = tokenizer("bpe", "identity")
    assert ids_dtype(TokenizerPair(trained, trained)) == np.uint16
    large = tokenizer("bpe", "identity")
    large.size = (1 << 16) + 1
    assert ids_dtype(TokenizerPair(trained, large)) == np.int32
