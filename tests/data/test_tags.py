"""Tags: pieces of their own that no text becomes, and names that do not fit."""

import pytest

from mt.config import CorpusConfig, DataConfig, TokenizerConfig
from mt.data.tags import CorpusTags, check_tags, tag_ids, training_tags
from mt.tokenizer import EOS_ID, TokenizerPair, train_tokenizers

PAIRS = [(f"red tea {i} <2de> x<2de>", f"rot {i}") for i in range(40)]


def corpora(**tags):
    return {name: CorpusConfig(path=f"{name}.tsv", tags=own) for name, own in tags.items()}


@pytest.fixture(scope="module", params=[True, False], ids=["joint", "separate"])
def tokenizers(request) -> TokenizerPair:
    with pytest.warns(UserWarning):
        return train_tokenizers(PAIRS, TokenizerConfig(joint=request.param), 1, ["<2de>", ">>fr<<"])


def test_a_tag_is_one_piece_of_the_source_that_no_text_becomes_and_none_is_written_with(tokenizers):
    source = tokenizers.source
    assert source.tags == {"<2de>": EOS_ID + 1, ">>fr<<": EOS_ID + 2}
    for text in ("<2de> tea", "tea>>fr<<", "<2de>"):
        ids = source.encode([text])[0]
        assert not set(ids) & set(source.tags.values()) and source.decode(ids) == text
        assert not set(source.sample([text], 0.1, 1)[0]) & set(source.tags.values())
    assert source.decode([*source.tags.values(), *source.encode(["tea"])[0]]) == "tea"
    assert bool(tokenizers.target.tags) == tokenizers.joint


def test_without_tags_the_tokenizer_is_what_it_was():
    with pytest.warns(UserWarning):
        plain, same = (train_tokenizers(PAIRS, TokenizerConfig(), 1, *tags) for tags in ((), ([],)))
    assert plain.fingerprint == same.fingerprint and plain.source.tags == {}


def test_tags_of_the_corpora_are_found_once_each_and_in_order():
    data = DataConfig(train=corpora(a="<2de>", b="<2fr> <back>", c="<2de> <back>", d=None), valid=corpora(v="<2fr>"))
    assert training_tags(data) == ["<2de>", "<2fr>", "<back>"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (DataConfig(train=corpora(a="<2de> <s>")), "data.train.a.tags=<2de> <s>: <s>: must be written as <2de> or"),
        (DataConfig(train=corpora(a="back")), "data.train.a.tags=back: back: must be written as <2de> or >>de<<"),
        (DataConfig(train=corpora(a="<0xE9>")), "data.train.a.tags=<0xE9>: <0xE9>: must be written"),
        (
            DataConfig(train=corpora(a="<2de>"), valid=corpora(v="<2ed>")),
            r"data.valid.v.tags=<2ed>: <2ed>: no training corpus has this tag; did you mean <2de>\? \(tags: <2de>\)",
        ),
    ],
)
def test_tags_that_cannot_be_are_named(data, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        training_tags(data)


def test_a_tag_that_the_tokenizer_has_not_is_named(tokenizers):
    assert tag_ids(">>fr<< <2de>", tokenizers.source) == [EOS_ID + 2, EOS_ID + 1]
    assert tag_ids("", tokenizers.source) == []
    with pytest.raises(ValueError, match=r"^decode.tags=<2d>: <2d>: the tokenizer was trained without this tag; did"):
        tag_ids("<2d>", tokenizers.source)
    with pytest.raises(ValueError, match=r"^data.train.a.tags=<BT>: <BT>: the tokenizer was trained without"):
        check_tags(DataConfig(train=corpora(a="<BT>")), "", tokenizers.source)


def test_a_corpus_without_a_setting_has_the_default(tokenizers):
    tags = CorpusTags(corpora(a=None, b="", c=">>fr<<"), [2, 0, 3], tokenizers.source, "valid", "<2de>")
    assert tags.names == ["<2de>", "", ">>fr<<"] and tags.counts.tolist() == [1, 0, 1]
    assert [tags.names[number] for number in tags.corpora([0, 1, 2, 4])] == ["<2de>", "<2de>", ">>fr<<", ">>fr<<"]
