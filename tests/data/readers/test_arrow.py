from pathlib import Path

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest

from mt.config import CorpusConfig, DataConfig
from mt.data.corpus import check_corpus, read_corpus

NAME = "data.train.main"
ROWS = [("red\u2028tea", "红茶"), (' "rice\n', "米饭"), ("", "空")]
PAIRS = [("red\u2028tea", "红茶"), ('"rice', "米饭"), ("", "空")]
COLUMNS = pa.table({"id": [1, 2, 3], "en": [s for s, _ in ROWS], "zh": [t for _, t in ROWS]})


def write(path: Path, table: pa.Table, kind: str) -> Path:
    if kind == "parquet":
        pyarrow.parquet.write_table(table, path)
    elif kind == "feather":
        pyarrow.feather.write_feather(table, path)
    else:
        new = pa.ipc.new_file if kind == "file" else pa.ipc.new_stream
        with new(path, table.schema) as writer:
            writer.write_table(table, max_chunksize=2)
    return path


def pairs(path: Path, **fields: str) -> list[tuple[str, str]]:
    config = CorpusConfig(path=str(path), **fields)
    check_corpus(config, DataConfig(), NAME)
    return list(read_corpus(config, DataConfig(), NAME))


def error(path: Path, **fields: str) -> str:
    with pytest.raises(ValueError) as caught:
        pairs(path, **fields)
    assert "\n" not in str(caught.value)
    return str(caught.value)


KINDS = {"parquet": "t.parquet", "feather": "t.feather", "file": "t.arrow", "stream": "t.arrow"}


@pytest.mark.parametrize("kind", KINDS)
def test_columns_and_translations(tmp_path, kind: str) -> None:
    path = tmp_path / KINDS[kind]
    assert pairs(write(path, COLUMNS, kind)) == PAIRS
    named = COLUMNS.rename_columns(["id", "src", "tgt"])
    assert pairs(write(path, named, kind), source_field="src", target_field="tgt") == PAIRS
    nested = pa.table({"translation": [{"en": s, "zh": t} for s, t in ROWS]})
    assert pairs(write(path, nested, kind)) == PAIRS
    large = COLUMNS.cast(pa.schema([("id", pa.int8()), ("en", pa.large_string()), ("zh", pa.string())]))
    assert pairs(write(path, large, kind)) == PAIRS
    coded = COLUMNS.set_column(2, "zh", COLUMNS["zh"].dictionary_encode())
    assert pairs(write(path, coded, kind)) == PAIRS


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_text_is_named(tmp_path, kind: str) -> None:
    path = write(tmp_path / KINDS[kind], COLUMNS, kind)
    assert f"{path.name}: no field 'src'; there are id, en, zh: set {NAME}.source_field" in error(
        path, source_field="src"
    )
    assert f"{path.name}: field 'id' must be text, it is int64" in error(path, target_field="id")
    empty = pa.table({"en": ["a", "b", None], "zh": ["x", "y", "z"]})
    assert f"{path.name}, row 3: field 'en' must be text, got null" in error(write(path, empty, kind))
    nulls = pa.array([{"en": "a", "zh": "x"}, None])
    assert "row 2: field 'en' must be text" in error(write(path, pa.table({"translation": nulls}), kind))
    nested = pa.table({"translation": [{"de": "Tee"}]})
    assert "no field 'en'; there are de" in error(write(path, nested, kind))
    assert "there is no pair of texts" in error(write(path, COLUMNS.slice(0, 0), kind))


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_files_are_named(tmp_path, kind: str) -> None:
    path = write(tmp_path / KINDS[kind], COLUMNS, kind)
    content = path.read_bytes()
    for damaged in (content[: len(content) // 2], content[len(content) // 2 :], b"tea,\xe8\x8c\xb6\n"):
        path.write_bytes(damaged)
        assert f"{path.name}" in (message := error(path)) and "is damaged, or of another format" in message


def test_invalid_text_in_a_column_is_refused(tmp_path) -> None:
    bad = pa.Array.from_buffers(
        pa.string(), 2, [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0\2\0\0\0"), pa.py_buffer(b"a\xff")]
    )
    path = write(tmp_path / "t.arrow", pa.table({"en": bad, "zh": ["x", "y"]}), "file")
    assert "Invalid UTF8" in error(path)


def test_rows_are_counted_over_batches(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("mt.data.readers.arrow._ROWS", 2)
    table = pa.table({"en": [str(i) for i in range(9)], "zh": ["x"] * 8 + [None]})
    for kind, name in KINDS.items():
        path = write(tmp_path / name, table, kind)
        assert "row 9: field 'zh'" in error(path)
    assert pairs(write(path, table.slice(0, 8), kind)) == [(str(i), "x") for i in range(8)]


def test_unknown_ends(tmp_path) -> None:
    (tmp_path / "t.parquet.gz").write_bytes(b"x")
    assert "unknown format .parquet.gz" in error(tmp_path / "t.parquet.gz")
    (tmp_path / "t.feather").write_bytes(b"FEA1" + bytes(100))
    assert "Feather file of version 1" in error(tmp_path / "t.feather")
