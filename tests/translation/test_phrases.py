import warnings

import pytest

from mt.config import TokenizerConfig
from mt.tokenizer import train_tokenizers
from mt.translation.phrases import Speller, in_word, longest_first, spaced

ENGLISH = [
    "I love china and tea",
    "they drink green tea every day",
    "teas and teapots",
    "the team is late",
    "rice",
] * 20
CHINESE = ["我爱中国和茶", "他们每天喝绿茶", "茶壶和茶叶", "我们迟到了", "米饭", "我们爱吃酸菜鱼"] * 20


def tokenizer(lines, **settings):
    config = TokenizerConfig(vocabulary_size=400, **settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a small corpus gives a small vocabulary
        return train_tokenizers(zip(lines, lines, strict=True), config, seed=1).target


@pytest.fixture(scope="module", params=["unigram", "bpe"])
def english(request):
    return Speller(tokenizer(ENGLISH, algorithm=request.param), spaced=True)


@pytest.fixture(scope="module", params=["unigram", "bpe"])
def chinese(request):
    return Speller(tokenizer(CHINESE, algorithm=request.param), spaced=False)


def ways(speller, phrase):
    """All runs of tokens that a search may write a phrase with."""
    unfinished, found = [([token], end) for token, end in phrase.starts], []
    while unfinished:
        tokens, end = unfinished.pop()
        if end == len(phrase.text):
            found.append(tokens)
        else:
            unfinished += [([*tokens, token], after) for token, after in phrase.continuations[end]]
    return found


@pytest.mark.parametrize("text", ["tea", "green tea", "zebra", "straße 茶"])
def test_english_phrases_begin_a_word_and_every_way_writes_them(english, text):
    found = ways(english, english.phrase(text))
    assert english.tokenizer.encode([text])[0] in found
    for tokens in found:
        assert b"".join(english.tokenizer.piece_bytes[t] for t in tokens).decode() == f" {text}"
    first = english.tokenizer.encode(["drink " + text])[0]
    assert any(first[-len(tokens) :] == tokens for tokens in found)


@pytest.mark.parametrize("text", ["茶", "绿茶", "酸菜鱼", "咖啡"])
def test_chinese_phrases_begin_anywhere(chinese, text):
    found = ways(chinese, chinese.phrase(text))
    texts = {b"".join(chinese.tokenizer.piece_bytes[t] for t in tokens).decode() for tokens in found}
    assert text in texts <= {text, f" {text}"}


def test_letters_after_a_phrase_would_go_on_with_its_word(english, chinese):
    glue = {piece for piece, glues in zip(english.tokenizer.piece_bytes, english.glues, strict=True) if glues}
    assert {bytes([byte]) for byte in "ü".encode()} <= glue  # a letter without a piece is spelled in bytes
    assert b"s" in glue and b"." not in glue and not any(piece.startswith(b" ") for piece in glue) and b"" not in glue
    assert not any(chinese.glues)


@pytest.mark.parametrize("text", ["I love", "I lo", "They drink gre", "zeb", "I love ", "tea", "t", "tea 茶"])
def test_the_last_piece_of_a_prefix_may_be_a_longer_one(english, text):
    tokens, longer = english.prefix(text)
    assert tokens == english.tokenizer.encode([text])[0] and tokens[-1] not in longer
    last = english.tokenizer.piece_bytes[tokens[-1]]
    assert longer == [t for t, p in enumerate(english.tokenizer.piece_bytes) if p.startswith(last) and t != tokens[-1]]
    for token in longer:
        assert english.tokenizer.decode([*tokens[:-1], token]).startswith(text)


def test_no_prefix(english):
    assert english.prefix("") == ([], [])


def test_what_a_text_is_written_as(english, chinese):
    assert english.written(" green  tea ") == b"green  tea"
    assert chinese.written("绿茶") == "绿茶".encode()
    with pytest.raises(ValueError, match="no pieces of the target tokenizer write this text"):
        english.written("\u0001")


def test_spaced_languages():
    assert spaced("en") and spaced("de_AT") and spaced("ko")
    assert not any(map(spaced, ("zh", "zh_TW", "zh-Hans", "ja", "th", "ZH")))


def test_a_phrase_inside_another_one_is_written_with_it_where_words_have_no_spaces(english, chinese):
    assert longest_first(["茶", "绿茶", "米饭", "茶"]) == ["绿茶", "米饭"]
    assert [phrase.text.decode() for phrase in chinese.phrases(["茶", "绿茶"])] == ["绿茶"]
    assert [phrase.text for phrase in english.phrases(["tea", "teapot", "tea"])] == [b"tea", b"teapot"]


def test_characters_of_words():
    assert all(map(in_word, "aé1ß한ह")) and in_word("\u0301") and in_word("\u093f")  # marks on letters
    assert not any(map(in_word, " -.'(茶の\U00020001ไ"))
