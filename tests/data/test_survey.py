from pathlib import Path

import pytest

from mt.config import CleaningConfig, CorpusConfig, DataConfig, TokenizerConfig
from mt.data import clean
from mt.data.encoded import encode_corpus
from mt.data.survey import FunnelRow, Samples, survey
from mt.tokenizer import TokenizerPair, train_tokenizers

PAIRS = [(f"red tea {i}", f"红茶{i}。") for i in range(20)]
DAMAGED = [("", "空"), ("same text", "same text"), ("tea &amp; rice", "茶和米"), ("many " * 30, "很多" * 60)]


@pytest.fixture(scope="module")
def tokenizers() -> TokenizerPair:
    with pytest.warns(UserWarning):
        return train_tokenizers(PAIRS, TokenizerConfig(joint=False), seed=1)


@pytest.fixture
def data(tmp_path: Path) -> DataConfig:
    (tmp_path / "a.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in PAIRS + DAMAGED))
    cleaning = CleaningConfig(html_entities="repair", drop_identical=True, max_tokens=40)
    train = {"main": CorpusConfig(path=str(tmp_path / "a.tsv"))}
    return DataConfig(train=train, cleaning=cleaning, cache_dir=str(tmp_path / "cache"))


def test_the_funnel_is_what_encoding_does(data: DataConfig, tokenizers: TokenizerPair, monkeypatch) -> None:
    monkeypatch.setattr(clean, "BATCH_PAIRS", 7)
    done: list[int] = []
    found = survey(data, tokenizers, samples=2, seed=1, progress=done.append)
    assert found.funnel == [
        FunnelRow("read", 0, 0, 24),
        FunnelRow("HTML entities", 1, 0, 24),
        FunnelRow("empty", 0, 1, 23),
        FunnelRow("characters", 0, 0, 23),
        FunnelRow("length ratio", 0, 0, 23),
        FunnelRow("identical", 0, 1, 22),
        FunnelRow("tokens", 0, 1, 21),
    ]
    encoded = encode_corpus(data.train, data, tokenizers)
    assert (len(encoded), encoded.counts, encoded.repaired) == (found.left, found.dropped, found.repaired)
    assert found.repaired == {"source HTML entities": 1}
    assert found.samples.drawn["identical"][0] == ("same text", "same text")
    assert found.samples.drawn["source HTML entities"][0] == ("tea &amp; rice", "tea & rice")
    for side, lengths in enumerate((encoded.source_lengths, encoded.target_lengths)):
        assert found.tokens[side].count == found.token_lengths.totals[side] == lengths.sum()
        assert found.token_lengths.longest[side] == lengths.max()
        texts = [encoded.texts(i)[side] for i in range(len(encoded))]
        assert found.characters.totals[side] == found.tokens[side].characters == sum(map(len, texts))
    assert done[-1] == 24 and done == sorted(done)


def test_spelled_characters_are_those_without_a_piece(tmp_path, data: DataConfig, tokenizers: TokenizerPair) -> None:
    (tmp_path / "a.tsv").write_text("tea 龘x\t红茶\nred tea\t龘é𠀀\n")
    found = survey(data, tokenizers, samples=0, seed=1)
    pieces = [
        {p for i in range(one.size) if not one.is_byte(i) for p in one.piece_bytes[i].decode(errors="ignore")}
        for one in (tokenizers.source, tokenizers.target)
    ]
    missing = [sum(c not in pieces[0] for c in "tea 龘xred tea"), sum(c not in pieces[1] for c in "红茶龘é𠀀")]
    assert [tokens.spelled for tokens in found.tokens] == missing and missing[0] >= 1 and missing[1] >= 3


def test_without_tokenizers_there_are_no_tokens(data: DataConfig) -> None:
    found = survey(data, None, samples=1, seed=1)
    assert found.tokens is None and found.token_lengths is None and found.funnel[-1].step == "identical"


def test_samples_are_uniform_and_repeatable() -> None:
    counts = dict.fromkeys(range(20), 0)
    for seed in range(600):
        samples = Samples(3, seed)
        for i in range(20):
            samples.dropped("x", (str(i), ""))
            samples.dropped("only one" if i == 0 else "y", ("", ""))
        assert samples.seen["x"] == 20 and samples.seen["only one"] == 1
        for source, _ in samples.drawn["x"]:
            counts[int(source)] += 1
    assert 55 < min(counts.values()) and max(counts.values()) < 130  # 90 of each are expected
    again = Samples(3, 599)
    for i in range(20):
        again.dropped("x", (str(i), ""))  # other kinds change nothing
    assert again.drawn["x"] == samples.drawn["x"]


def test_a_repair_far_inside_a_text_is_shown() -> None:
    samples = Samples(1, 1)
    samples.repaired("x", "a" * 5000 + "&amp;" + "b" * 5000, "a" * 5000 + "&" + "b" * 5000)
    ((before, after),) = samples.drawn["x"]
    assert "a&amp;b" in before and "a&b" in after and len(before) < 400
