import json
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest

from mt.config import CleaningConfig, CorpusConfig, DataConfig, TokenizerConfig
from mt.data import clean, encoded, shards
from mt.data.encoded import EncodedCorpus, encode_corpus
from mt.tokenizer import TokenizerPair, train_tokenizers

PAIRS = [(f"red tea {i}", f"红茶{i}。") for i in range(25)]


@pytest.fixture(scope="module")
def tokenizers() -> TokenizerPair:
    with pytest.warns(UserWarning):
        return train_tokenizers(PAIRS, TokenizerConfig(joint=False), seed=1)


@pytest.fixture(autouse=True)
def small_shards(monkeypatch) -> None:
    monkeypatch.setattr(clean, "BATCH_PAIRS", 10)
    monkeypatch.setattr(shards, "_SHARD_BATCHES", 1)


def corpus(folder: Path, pairs: list[tuple[str, str]], name: str = "t") -> CorpusConfig:
    for side, suffix in ((0, "en"), (1, "zh")):
        (folder / f"{name}.{suffix}").write_bytes("".join(pair[side] + "\n" for pair in pairs).encode())
    return CorpusConfig(source=str(folder / f"{name}.en"), target=str(folder / f"{name}.zh"))


def data_config(folder: Path, pairs: list[tuple[str, str]] = PAIRS, **settings: object) -> DataConfig:
    cleaning = CleaningConfig(**settings)
    train, cache = {"main": corpus(folder, pairs)}, str(folder / "cache")
    return DataConfig(train=train, cleaning=cleaning, cache_dir=cache, processes=1)


def test_ids_lengths_and_texts(tmp_path, tokenizers: TokenizerPair) -> None:
    data = data_config(tmp_path)
    done: list[int] = []
    result = encode_corpus(data.train, data, tokenizers, progress=done.append)
    assert len(result) == 25 and done == [10, 20, 25]
    for i, pair in enumerate(PAIRS):
        assert result.texts(i) == pair
        assert result.source_ids(i).tolist() == tokenizers.source.encode([pair[0]])[0]
        assert result.target_ids(i).tolist() == tokenizers.target.encode([pair[1]])[0]
        assert result.source_lengths[i] == len(result.source_ids(i))
        assert result.target_lengths[i] == len(result.target_ids(i))
    assert result.source_ids(0).dtype == result.target_ids(0).dtype == np.uint16
    assert result.source_lengths.dtype == result.target_lengths.dtype == np.int32
    chosen = np.array([24, 3, 11, 3])
    for tokens, ids in ((result.source_tokens, result.source_ids), (result.target_tokens, result.target_ids)):
        assert tokens(chosen).tolist() == [token for i in chosen for token in ids(int(i))]
        assert tokens(chosen[:0]).shape == (0,)
    assert result.source_lengths.shape == (25,)
    for i in (-1, 25):
        with pytest.raises(IndexError):
            result.source_ids(i)


def test_ids_are_views_of_the_file(tmp_path, tokenizers: TokenizerPair) -> None:
    data = data_config(tmp_path)
    ids = encode_corpus(data.train, data, tokenizers).source_ids(3)
    assert not ids.flags.owndata and not ids.flags.writeable


def test_training_drops_both_sides_and_counts(tmp_path, tokenizers: TokenizerPair) -> None:
    pairs = [
        ("tea", "茶"),
        ("", "空"),
        ("a " * 18, "b c d e f"),
        ("a b c d e", "b " * 18),
        ("rice", "\u3000"),
        ("rice", "米"),
    ]
    data = data_config(tmp_path, pairs, max_tokens=16)
    result = encode_corpus(data.train, data, tokenizers)
    assert [result.texts(i) for i in range(len(result))] == [("tea", "茶"), ("rice", "米")]
    assert result.counts == {
        "empty source": 1, "empty target": 1, "too many source tokens": 1, "too many target tokens": 1,
    }  # fmt: skip
    again = encode_corpus(data.train, data, tokenizers)
    assert again.counts == result.counts and again.fingerprint == result.fingerprint


def test_a_pair_with_two_faults_counts_once_under_the_first(tmp_path, tokenizers: TokenizerPair) -> None:
    long = "b " * 30
    pairs = [(long, long)] * 12 + [("tea", "茶"), ("x", long)] * 13 + [(long, "空")] * 10
    data = data_config(tmp_path, pairs, max_tokens=16, max_length_ratio=0)
    result = encode_corpus(data.train, data, tokenizers)  # a batch of which nothing is left among them
    assert [result.texts(i) for i in range(len(result))] == [("tea", "茶")] * 13
    assert result.counts == {"too many source tokens": 22, "too many target tokens": 13}
    assert {tuple(result.source_ids(i)) for i in range(13)} == {tuple(tokenizers.source.encode(["tea"])[0])}


def test_validation_keeps_every_line(tmp_path, tokenizers: TokenizerPair) -> None:
    pairs = [("tea.", "茶。"), ("", "空"), ("a " * 30, "b " * 30), ("", "")]
    data = data_config(tmp_path, pairs, max_tokens=16)
    result = encode_corpus(data.train, data, tokenizers, clean=False, split="valid")
    assert [result.texts(i) for i in range(len(result))] == pairs
    assert result.source_lengths.tolist()[1::2] == [0, 0] and result.counts == {}
    assert result.source_ids(1).shape == (0,)
    assert encode_corpus(data.train, data, tokenizers).texts(0) == ("tea.", "茶。")


def test_cache_is_used_and_keyed_by_all_that_matters(tmp_path, tokenizers: TokenizerPair, monkeypatch) -> None:
    data = data_config(tmp_path)
    first = encode_corpus(data.train, data, tokenizers)
    with monkeypatch.context() as patch:
        patch.setattr(encoded, "scored_pairs", lambda *_: pytest.fail("read again"))
        assert encode_corpus(data.train, data, tokenizers).texts(7) == PAIRS[7]
    others = [encode_corpus(data.train, data, tokenizers, clean=False)]
    data.cleaning.max_tokens = 99
    others.append(encode_corpus(data.train, data, tokenizers))
    assert {other.fingerprint for other in others} == {first.fingerprint}  # the same pairs, and the same tokens
    swapped = TokenizerPair(tokenizers.target, tokenizers.source)
    others.append(encode_corpus(data.train, data, swapped))
    data = data_config(tmp_path, PAIRS[:-1])
    others.append(encode_corpus(data.train, data, tokenizers))
    assert len({corpus.fingerprint for corpus in [first, *others]}) == 3
    folders = {corpus.folder for corpus in [first, *others]}
    assert len(folders) == 5 and {path for path in (tmp_path / "cache").iterdir() if path.is_dir()} == folders


def test_the_fingerprint_follows_the_pairs_and_not_the_batches(
    tmp_path, tokenizers: TokenizerPair, monkeypatch
) -> None:
    fingerprints = []
    for number, (pairs, size) in enumerate(
        [(PAIRS, 10), (PAIRS, 7), ([("", "x"), *PAIRS], 10), ([*PAIRS[1:], PAIRS[0]], 10), ([("red", "x"), *PAIRS], 10)]
    ):
        monkeypatch.setattr(clean, "BATCH_PAIRS", size)
        (tmp_path / str(number)).mkdir()
        data = data_config(tmp_path / str(number), pairs)
        fingerprints.append(encode_corpus(data.train, data, tokenizers).fingerprint)
    assert fingerprints[0] == fingerprints[1] == fingerprints[2] and len(set(fingerprints)) == 3
    moved = [("ab", "c"), ("a", "bc")], [("a", "c"), ("ba", "bc")]  # the same letters with other borders
    for number, pairs in enumerate(moved, start=10):
        (tmp_path / str(number)).mkdir()
        data = data_config(tmp_path / str(number), pairs)
        fingerprints.append(encode_corpus(data.train, data, tokenizers).fingerprint)
    assert len(set(fingerprints)) == 5


@pytest.mark.parametrize("damage", ["no metadata", "cut arrow", "old version", "not json", "unfinished", "ids", "text"])
def test_broken_cache_is_built_anew(tmp_path, tokenizers: TokenizerPair, damage: str) -> None:
    data = data_config(tmp_path)
    folder = encode_corpus(data.train, data, tokenizers).folder
    metadata = folder / "metadata.json"
    if damage == "no metadata":
        metadata.unlink()
    elif damage == "cut arrow":
        content = (folder / "00-00001.arrow").read_bytes()
        (folder / "00-00001.arrow").write_bytes(content[: len(content) // 2])
    elif damage == "old version":
        metadata.write_text(json.dumps(json.loads(metadata.read_text()) | {"format_version": 0}))
    elif damage == "not json":
        metadata.write_text("[")
    elif damage == "unfinished":
        shutil.move(folder, folder.with_name(f"{folder.name}.unfinished"))
    else:  # bytes whose change nothing but a digest can tell
        corpus, file = EncodedCorpus(folder), folder / "00-00000.arrow"
        wanted = corpus.source_ids(3).tobytes() if damage == "ids" else corpus.texts(3)[0].encode()
        content = file.read_bytes()
        at = content.index(wanted)
        file.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        with pytest.raises(ValueError, match="damaged"):
            EncodedCorpus(folder).verify()
    if damage not in ("unfinished", "ids", "text"):
        with pytest.raises(ValueError, match="not a complete encoded corpus"):
            EncodedCorpus(folder)
    again = encode_corpus(data.train, data, tokenizers)
    assert len(again) == 25
    again.verify()
    assert sorted(path.name for path in (tmp_path / "cache").iterdir()) == [folder.name, f"{folder.name}.lock"]


def test_failure_leaves_no_folder(tmp_path, tokenizers: TokenizerPair) -> None:
    data = data_config(tmp_path)
    Path(data.train["main"].target).write_bytes("茶\n".encode() * 20 + b"\xff\n" * 5)
    with pytest.raises(ValueError, match="t.zh, line 21"):
        encode_corpus(data.train, data, tokenizers)
    assert [path.suffix for path in (tmp_path / "cache").iterdir()] == [".lock"]


def test_cleaning_that_cannot_work_leaves_no_folder(tmp_path, tokenizers: TokenizerPair) -> None:
    data = data_config(tmp_path, min_script_share=0.5)
    data.target_language = "xx"
    with pytest.raises(ValueError, match="data.target_language=xx"):
        encode_corpus(data.train, data, tokenizers)
    assert [path.suffix for path in (tmp_path / "cache").iterdir()] == [".lock"]


def test_nothing_left_states_the_counts(tmp_path, tokenizers: TokenizerPair) -> None:
    data = data_config(tmp_path, [("", "空"), ("a " * 30, "b " * 30)], max_tokens=5)
    with pytest.raises(ValueError, match="data.train: no pair is left .*empty source: 1, too many source tokens: 1"):
        encode_corpus(data.train, data, tokenizers)
    with pytest.raises(ValueError, match="data.valid: no corpus given"):
        encode_corpus({}, data, tokenizers, split="valid")


def test_unusable_cache_dir_is_named(tmp_path, tokenizers: TokenizerPair) -> None:
    data = data_config(tmp_path)
    (tmp_path / "file").write_text("")
    data.cache_dir = str(tmp_path / "file")
    with pytest.raises(ValueError, match="data.cache_dir=.*file: cannot be created"):
        encode_corpus(data.train, data, tokenizers)


def _texts_and_ids(result: EncodedCorpus, i: int) -> tuple[tuple[str, str], list[int]]:
    return result.texts(i), result.source_ids(i).tolist()


def test_pickles_as_its_path_for_spawned_workers(tmp_path, tokenizers: TokenizerPair) -> None:
    data = data_config(tmp_path)
    data.train["more"] = corpus(tmp_path, PAIRS[:2], "more")
    result = encode_corpus(data.train, data, tokenizers)
    assert len(pickle.dumps(result)) < 1000
    copy = pickle.loads(pickle.dumps(result))
    assert [_texts_and_ids(copy, i) for i in range(27)] == [_texts_and_ids(result, i) for i in range(27)]


def test_repaired_text_is_encoded_and_counted(tmp_path, tokenizers: TokenizerPair) -> None:
    data = data_config(tmp_path, [("red &amp; tea", "红茶"), ("tea", "茶&#10;红")], html_entities="repair")
    for _ in range(2):  # encoded, then from the cache
        result = encode_corpus(data.train, data, tokenizers)
        assert [result.texts(i) for i in range(2)] == [("red & tea", "红茶"), ("tea", "茶 红")]
        assert result.source_ids(0).tolist() == tokenizers.source.encode(["red & tea"])[0]
        assert result.repaired == {"source HTML entities": 1, "target HTML entities": 1} and not result.counts
    untouched = encode_corpus(data.train, data, tokenizers, clean=False, split="valid")
    assert untouched.texts(0) == ("red &amp; tea", "红茶") and not untouched.repaired


def test_other_validation_text_is_another_corpus(tmp_path, tokenizers: TokenizerPair) -> None:
    data = data_config(tmp_path)
    fingerprints = {encode_corpus(data.train, data, tokenizers).fingerprint}
    for name, pair in (("v1", PAIRS[3]), ("v2", PAIRS[4])):
        data.valid = {"main": corpus(tmp_path, [pair], name)}
        result = encode_corpus(data.train, data, tokenizers)
        assert result.counts == {"source in valid": 1} and pair not in map(result.texts, range(len(result)))
        fingerprints.add(result.fingerprint)
    data.cleaning.drop_held_out = "none"
    fingerprints.add(encode_corpus(data.train, data, tokenizers).fingerprint)
    assert len(fingerprints) == 3 and len(encode_corpus(data.train, data, tokenizers)) == 25
    del data.valid["main"]
    assert encode_corpus(data.train, data, tokenizers).fingerprint in fingerprints
