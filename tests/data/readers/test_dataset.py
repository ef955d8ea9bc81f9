import gzip
import json
import os
import shutil
from pathlib import Path

import pytest

from mt.config import CorpusConfig, DataConfig
from mt.data.corpus import check_corpus, corpus_fingerprint, read_corpus

datasets = pytest.importorskip("datasets")
NAME = "data.train.main"
ROWS = [("red\u2028tea", "红茶"), (' "rice', "米饭")]


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


def write(folder: Path, rows: list[tuple[str, str]] = ROWS) -> str:
    folder.mkdir(exist_ok=True)
    columns = {"en": [s for s, _ in rows], "zh": [t for _, t in rows], "id": list(range(len(rows)))}
    datasets.Dataset.from_dict(columns).to_parquet(folder / "train.parquet")
    return str(folder)


def pairs(config: CorpusConfig) -> list[tuple[str, str]]:
    check_corpus(config, DataConfig(), NAME)
    return list(read_corpus(config, DataConfig(), NAME))


def error(config: CorpusConfig) -> str:
    with pytest.raises(ValueError) as caught:
        pairs(config)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_streaming_gives_the_same_pairs_and_stores_nothing(tmp_path) -> None:
    rows = [(f"tea {i}", f"茶 {i}") for i in range(2500)]
    folder = write(tmp_path / "data", rows)
    assert pairs(CorpusConfig(dataset=folder, streaming=True)) == rows
    assert not list((tmp_path / "cache").rglob("*.arrow"))
    assert pairs(CorpusConfig(dataset=folder)) == rows


def test_streaming_nested_and_broken(tmp_path) -> None:
    nested = datasets.Dataset.from_dict({"translation": [{"en": s, "zh": t} for s, t in ROWS]})
    (tmp_path / "nested").mkdir()
    nested.to_parquet(tmp_path / "nested" / "train.parquet")
    assert pairs(CorpusConfig(dataset=str(tmp_path / "nested"), streaming=True)) == ROWS
    folder = write(tmp_path / "data")
    message = error(CorpusConfig(dataset=folder, streaming=True, source_field="src"))
    assert "split train, row 1: no field 'src'; there are en, zh, id" in message
    assert "must be text, got int" in error(CorpusConfig(dataset=folder, streaming=True, source_field="id"))
    assert "split valid: cannot be loaded" in error(CorpusConfig(dataset=folder, streaming=True, split="valid"))
    (tmp_path / "nothing").mkdir()
    assert "cannot be loaded" in error(CorpusConfig(dataset=str(tmp_path / "nothing"), streaming=True))
    (tmp_path / "data" / "train.parquet").write_bytes(b"PAR1 not")
    assert "cannot be loaded" in error(CorpusConfig(dataset=folder, streaming=True))


def test_the_fingerprint_of_a_streamed_dataset_follows_its_files(tmp_path) -> None:
    def fingerprint(**settings: str) -> str:
        return corpus_fingerprint(CorpusConfig(dataset=folder, streaming=True, **settings), DataConfig(), NAME)

    folder = write(tmp_path / "data")
    before = fingerprint()
    assert fingerprint() == before and fingerprint(source_field="id") != before
    write(tmp_path / "data", [("red\u2028tea", "绿茶"), (' "rice', "米饭")])
    assert fingerprint() != before


def test_streaming_where_it_has_no_meaning(tmp_path) -> None:
    datasets.Dataset.from_dict({"en": ["a"], "zh": ["b"]}).save_to_disk(tmp_path / "saved")
    assert "streaming=true has no meaning for a saved folder" in error(
        CorpusConfig(dataset=str(tmp_path / "saved"), streaming=True)
    )
    (tmp_path / "t.tsv").write_text("a\tb\n")
    assert "streaming=True: has no meaning" in error(CorpusConfig(path=str(tmp_path / "t.tsv"), streaming=True))


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize("damage", ["cut off", "one byte", "empty", "no text", "no json"])
def test_damaged_and_empty_files_end_in_one_line(tmp_path, streaming: bool, damage: str) -> None:
    rows = "".join(json.dumps({"en": f"tea {i * i}", "zh": f"茶 {i}"}) + "\n" for i in range(3000)).encode()
    packed = gzip.compress(rows)
    content = {
        "cut off": packed[: len(packed) // 2],
        "one byte": packed[:5000] + bytes([packed[5000] ^ 0x55]) + packed[5001:],
        "empty": b"",
        "no text": b'{"en": "tea", "zh": "x"}\n{"en": "\xff", "zh": "x"}\n',
        "no json": b'{"en": "tea", "zh": "x"}\n{"en": "x\n',
    }[damage]
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / f"a.jsonl{'.gz' if damage in ('cut off', 'one byte') else ''}").write_bytes(content)
    message = error(CorpusConfig(dataset=str(tmp_path / "data"), streaming=streaming))
    assert f"data.train.main.dataset={tmp_path}/data, split train" in message
    assert "An error occurred" not in message and "()" not in message


def test_a_copy_of_a_streamed_folder_is_the_same_corpus(tmp_path) -> None:
    folder = write(tmp_path / "data")
    copy = shutil.copytree(folder, tmp_path / "elsewhere")
    os.utime(copy / "train.parquet", (1, 1))
    fingerprints = {
        corpus_fingerprint(CorpusConfig(dataset=str(place), streaming=True), DataConfig(), NAME)
        for place in (folder, copy)
    }
    assert len(fingerprints) == 1
