import os
import pickle
import random
import signal
import subprocess
import sys
import threading
import time

import pytest

from mt import tokenizer as room
from mt.config import TokenizerConfig
from mt.tokenizer import EOS_ID, PAD_ID, UNK_ID, Tokenizer, TokenizerPair, lost_characters, train_tokenizers

CHINESE = ["我爱中国，你呢？", "（１２３）ＡＢＣ", "…", "我用 Hello World 学习"]
HARD = [*CHINESE, "a\u3000b", "①㎏", "ﬁn", "x\u00a0y", "soft\u00adhyphen", "e\u0301"]
HARD += ["  two  spaces ", "<unk> <s> <0x41>", ""]

pytestmark = pytest.mark.filterwarnings("ignore:tokenizer.*(requested|can hold)")


def train(texts: list[str], seed: int = 1, **settings: object) -> TokenizerPair:
    return train_tokenizers([(text, text) for text in texts], TokenizerConfig(**settings), seed)


@pytest.fixture(scope="module")
def pair() -> TokenizerPair:
    return train(HARD * 3)


def round_trip(tokenizer: Tokenizer, text: str) -> str:
    return tokenizer.decode(tokenizer.encode([text])[0])


@pytest.mark.parametrize("algorithm", ["unigram", "bpe"])
def test_identity_round_trip(algorithm: str) -> None:
    target = train(HARD * 3, algorithm=algorithm).target
    assert [round_trip(target, text) for text in HARD] == HARD


def test_unseen_characters_round_trip_as_bytes(pair: TokenizerPair) -> None:
    ids = pair.target.encode(["茶鱻😀茶"])[0]
    assert pair.target.decode(ids) == "茶鱻😀茶"
    assert UNK_ID not in ids
    assert any(piece.startswith("<0x") for piece in pair.target.pieces(ids))


def test_incomplete_bytes_and_special_ids_are_dropped(pair: TokenizerPair) -> None:
    target = pair.target
    ids = target.encode(["中鱻"])[0]
    assert target.decode(ids[:-1]) == "中"
    assert target.decode(ids[:-1] + target.encode(["国"])[0]).replace(" ", "") == "中国"
    assert target.decode([ids[-1], PAD_ID, UNK_ID, EOS_ID]) == ""
    assert round_trip(target, "a\ufffdb") == "ab"


def test_random_ids_decode_to_one_clean_line(pair: TokenizerPair) -> None:
    generator = random.Random(0)
    for _ in range(200):
        text = pair.target.decode([generator.randrange(pair.target.size) for _ in range(30)])
        text.encode("utf-8")
        assert not set(text) & set("\ufffd\u2047\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029")


@pytest.mark.parametrize("separator", list("\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029\r\n\t\0") + ["\ud800"])
def test_separators_become_a_space(pair: TokenizerPair, separator: str) -> None:
    assert round_trip(pair.source, f"a{separator}b") == "a b"


def test_every_separator_is_unprintable_and_so_found() -> None:
    separators = [chr(i) for i in range(0x110000) if room._SEPARATORS.match(chr(i))]
    assert len(separators) == 32 + 33 + 2 + 2048
    assert not any(separator.isprintable() for separator in separators)
    texts = ["a\u3000b\0", "tea\u2028", "茶 x"]
    assert [room.without_separators(text) for text in texts] == ["a\u3000b ", "tea ", "茶 x"]


def test_no_piece_holds_a_separator() -> None:
    tokenizer = train(["red\rtea", "red\u2028tea", "red\x0btea"] * 5).source
    pieces = tokenizer.pieces(list(range(tokenizer.size)))
    assert not set("".join(pieces)) & set("\r\u2028\x0b")


def test_source_normalisation_folds_and_collapses() -> None:
    pair = train(HARD, joint=False, source_normalization="nfkc_casefold")
    assert round_trip(pair.source, "\u3000（Ａ）  Bé ") == "(a) bé"
    assert pair.source.encode(["", " \u3000"]) == [[], []]
    assert round_trip(pair.target, "（Ａ）  B") == "（Ａ）  B"


def test_small_corpus_shrinks_with_a_warning() -> None:
    with pytest.warns(UserWarning, match="requested 8000, got ") as caught:
        tokenizer = train(["tea", "rice"] * 3).source
    assert f"got {tokenizer.size}," in str(caught[0].message)
    assert tokenizer.size == len(set(tokenizer.pieces(list(range(tokenizer.size))))) < 300


@pytest.mark.parametrize(
    ("settings", "setting"),
    [({}, "vocabulary_size"), ({"joint": False, "source_vocabulary_size": 310}, "source_vocabulary_size")],
)
def test_too_small_vocabulary_names_what_is_needed(settings: dict, setting: str) -> None:
    text = "".join(chr(0x4E00 + i) for i in range(300))
    vocabulary_size = 310 if setting == "vocabulary_size" else 8000
    with pytest.raises(ValueError, match=rf"tokenizer\.{setting}=310: must be at least 561") as caught:
        train([text] * 3, vocabulary_size=vocabulary_size, **settings)
    assert "\n" not in str(caught.value)
    assert train([text] * 3, vocabulary_size=561).source.size == 561


def test_long_lines_are_trained_on() -> None:
    texts = ["tea rice"] * 5 + ["z" + " tea" * 20_000] * 5 + ["q" * 70_000]
    for algorithm in ("unigram", "bpe"):
        tokenizer = train(texts, algorithm=algorithm, character_coverage=1.0).source
        pieces = tokenizer.pieces(list(range(tokenizer.size)))
        assert "z" in pieces and "q" in "".join(pieces)


def test_sentence_with_the_reserved_character_is_trained_on() -> None:
    tokenizer = train(["tea\u2585water"] * 5).source
    assert round_trip(tokenizer, "tea\u2585") == "tea\u2585"
    assert not any(piece.startswith("<0x") for piece in tokenizer.pieces(tokenizer.encode(["water"])[0]))


def test_sample_is_seeded_spread_out_and_stated() -> None:
    texts = [f"word{chr(97 + i % 26)}{chr(97 + i // 26 % 26)} tea" for i in range(2000)]
    with pytest.warns(UserWarning, match="random sample of 50 of 2000 pairs"):
        first = train(texts, training_sentences=50)
    with pytest.warns(UserWarning):
        assert train(texts, training_sentences=50).fingerprint == first.fingerprint
        assert train(texts, seed=2, training_sentences=50).fingerprint != first.fingerprint
        assert train(texts[:50]).fingerprint != first.fingerprint


def test_sample_is_uniform_and_bounded_by_its_characters(monkeypatch) -> None:
    monkeypatch.setattr(room, "_SAMPLE_CHARACTERS", 4000)
    places = []
    for seed in range(40):
        sample, seen = room._sample(((f"{i:05}", "x" * 15) for i in range(3000)), 1000, seed)
        assert seen == 3000 and 50 <= len(sample) == len(set(sample)) <= 200
        places += [int(source) for source, _ in sample]
    assert abs(sum(places) / len(places) - 1500) < 60  # neither the beginning nor the end is preferred
    thirds = [sum(i * 1000 <= place < (i + 1) * 1000 for place in places) / len(places) for i in range(3)]
    assert min(thirds) > 0.29
    one_long, _ = room._sample([("x" * 9000, "y")], 10, 1)
    assert len(one_long) == 1
    with pytest.warns(UserWarning, match="random sample of .* 4000 characters"):
        train([f"word {i}" for i in range(2000)])


@pytest.mark.parametrize("joint", [True, False])
def test_characters_that_normalising_changes_are_listed(joint: bool) -> None:
    texts = ["茶，茶？（１２３）", "…①㎏", "ﬁn a\u3000b e\u0301", "plain abc 123 茶"]
    settings = {"joint": joint, "target_normalization": "nfkc", "source_normalization": "nfkc"}
    with pytest.warns(UserWarning, match=r"target_normalization=nfkc: .*U\+3000 .*U\+FF08 （") as caught:
        pair = train(texts, **settings)
    assert sum("can hold" in str(warning.message) for warning in caught) == 1
    assert set(lost_characters(pair.target, texts)) == set("，？（１２３）…①㎏ﬁ\u3000\u0301")
    assert lost_characters(train(texts).target, texts) == []
    assert lost_characters(train(texts).target, ["a\u2581b \ufffd\t\r"]) == ["\u2581", "\ufffd"]


@pytest.mark.parametrize(("algorithm", "alpha"), [("unigram", 0.02), ("bpe", 0.3)])
def test_sampled_pieces_say_the_same_text_and_follow_the_seed(algorithm, alpha):
    texts = ["red tea and green tea", "they drink tea every day", "rice and tea", *CHINESE]
    tokenizer = train(texts * 5, algorithm=algorithm).source
    first, again, other = (tokenizer.sample(texts, alpha, seed) for seed in (1, 1, 2))
    assert first == again != other
    assert first != tokenizer.encode(texts)
    assert [tokenizer.decode(ids) for ids in first] == texts


@pytest.mark.parametrize("algorithm", ["unigram", "bpe"])
def test_sampled_pieces_are_the_same_in_another_process(tmp_path, algorithm):
    """A run that goes on in a process of its own sees the batches that it would have seen."""
    texts = ["red tea and green tea", "they drink tea every day", "rice and tea"] * 3
    tokenizer = train(texts * 5, algorithm=algorithm)
    tokenizer.save(tmp_path)
    code = (
        "import pathlib, sys; from mt.tokenizer import TokenizerPair; "
        f"print(TokenizerPair.load(pathlib.Path(sys.argv[1])).source.sample({texts}, 0.2, 3))"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    printed = [subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in range(2)]
    assert printed == [f"{tokenizer.source.sample(texts, 0.2, 3)}\n"] * 2


def test_a_process_of_its_own_trains_the_same_and_refuses_the_same(monkeypatch):
    texts = ["red tea and green tea", "they drink tea every day"] * 9
    here = train(texts)
    monkeypatch.setattr("mt.tokenizer._LONG_CHARACTERS", 0)
    assert train(texts).source.model_bytes == here.source.model_bytes
    with pytest.raises(ValueError, match="no words to train on"):
        train([" ", "\t"])
    with pytest.raises(ValueError, match="tokenizer.vocabulary_size=300: must be at least"):
        train(["".join(map(chr, range(0x4E00, 0x4E80)))], vocabulary_size=300)


@pytest.mark.slow
def test_ctrl_c_ends_a_long_training(monkeypatch):
    generator = random.Random(1)
    words = ["".join(generator.choices("abcdefghijklmnopqrst", k=6)) for _ in range(40_000)]
    texts = [" ".join(generator.choices(words, k=12)) for _ in range(70_000)]
    timer = threading.Timer(4, os.kill, (os.getpid(), signal.SIGINT))
    start = time.monotonic()
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        train(texts, vocabulary_size=8000)
    assert time.monotonic() - start < 8


@pytest.mark.parametrize("texts", [[], ["", " \t\u2028"]])
def test_nothing_to_train_on(texts: list[str]) -> None:
    with pytest.raises(ValueError, match="no words to train on"):
        train(texts)


@pytest.mark.parametrize("joint", [True, False])
def test_save_load_and_pickle(tmp_path, joint: bool) -> None:
    pair = train_tokenizers([("tea", "我爱中国"), ("rice", "米饭")], TokenizerConfig(joint=joint), seed=1)
    pair.save(tmp_path / "tokenizer")
    names = {path.name for path in (tmp_path / "tokenizer").iterdir()}
    assert names == ({"joint.model"} if joint else {"source.model", "target.model"})
    for copy in (TokenizerPair.load(tmp_path / "tokenizer"), pickle.loads(pickle.dumps(pair))):
        assert copy.joint is joint
        assert copy.fingerprint == pair.fingerprint
        assert copy.target.encode(CHINESE) == pair.target.encode(CHINESE)


def test_fingerprint_tells_sides_apart() -> None:
    pair = train_tokenizers([("tea", "我爱中国"), ("rice", "米饭")], TokenizerConfig(joint=False), seed=1)
    assert TokenizerPair(pair.target, pair.source).fingerprint != pair.fingerprint


def test_missing_and_broken_files_are_named(tmp_path) -> None:
    with pytest.raises(ValueError, match="source.model: cannot read the tokenizer"):
        TokenizerPair.load(tmp_path)
    for content in (b"not a model", b""):  # nothing at all: SentencePiece would crash later
        (tmp_path / "joint.model").write_bytes(content)
        with pytest.raises(ValueError, match="joint.model: not a SentencePiece model"):
            TokenizerPair.load(tmp_path)


def test_spans_are_places_in_the_text_as_it_was_written() -> None:
    tokenizer = train(HARD * 3, source_normalization="nfkc_casefold", joint=False).source
    for text in [*HARD, "a\x0bb", "🫖 茶"]:
        spans = tokenizer.spans(text)
        assert len(spans) == len(tokenizer.encode([text])[0])
        assert all(0 <= start <= end <= len(text) for start, end in spans)
        assert all(before[1] <= after[0] for before, after in zip(spans, spans[1:], strict=False))
        assert "".join(text[start:end] for start, end in spans).split() == text.replace("\x0b", " ").split()
