import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

from mt.config import CleaningConfig, CorpusConfig, DataConfig
from mt.data.clean import Cleaner, check_cleaning, clean_corpora
from mt.data.corpus import check_corpora

SCORES = (0.9, 0.1, 0.5)
LINES = {
    "a.tsv": "0.9\ttea\t茶\t1\n0.1\trice\t米\t1\n0.5\tsoup\t汤\t0\n",
    "a.jsonl": '{"en": "tea", "zh": "茶", "0": 0.9, "3": 1}\n{"en": "rice", "zh": "米", "0": "0.1", "3": 1}\n'
    '{"en": "soup", "zh": "汤", "0": 0.5, "3": 0}\n',
    "a.csv": '0,en,zh,3\n0.9,tea,茶,1\n0.1,"rice",米,1\n0.5,soup,汤,0\n',
}


def data_config(file: Path, **min_scores: float) -> DataConfig:
    fields = {"source_field": "1", "target_field": "2"} if ".tsv" in file.name else {}
    cleaning = CleaningConfig(min_scores=min_scores)
    return DataConfig(train={"main": CorpusConfig(path=str(file), **fields)}, cleaning=cleaning)


def write(folder: Path, name: str) -> Path:
    """Returns a file with the three pairs and their scores, or a folder of two such files."""
    path = folder / name
    if name == "parts.tsv":
        path.mkdir()
        lines = LINES["a.tsv"].splitlines(keepends=True)
        (path / "2.tsv").write_text(lines[2], encoding="utf-8")
        (path / "1.tsv").write_text("".join(lines[:2]), encoding="utf-8")
    elif name == "a.parquet":
        lines = LINES["a.jsonl"].splitlines()
        rows = [json.loads(line) | {"0": score} for line, score in zip(lines, SCORES, strict=True)]
        pyarrow.parquet.write_table(pa.Table.from_pylist(rows), path, row_group_size=2)
    else:
        content = LINES[name.removesuffix(".gz")].encode()
        path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return path


@pytest.mark.parametrize("name", ["a.tsv", "a.jsonl", "a.csv", "a.parquet", "a.tsv.gz", "parts.tsv"])
def test_low_scores_are_dropped_first_and_counted_by_column(tmp_path: Path, name: str) -> None:
    data = data_config(write(tmp_path, name), **{"0": 0.5, "3": 1})
    check_corpora(data)
    check_cleaning(data)
    cleaner = Cleaner(data)
    assert list(clean_corpora(data.train, data, cleaner)) == [("tea", "茶")]
    assert cleaner.dropped == {"score 0": 1, "score 3": 1}
    assert (cleaner.left["read"], cleaner.left["scores"], cleaner.lost["scores"]) == (3, 1, 2)


@pytest.mark.parametrize(
    ("name", "content", "column", "message"),
    [
        ("a.tsv", "x\ty\n", "laser", "'laser' must be a column number from 0, as a.tsv of data.train.main names no"),
        ("a.tsv", "x\ta\tb\n", "0", "a.tsv, line 1: column '0' has 'x': data.cleaning.min_scores needs a number"),
        ("a.tsv", "nan\ta\tb\n", "0", "a.tsv, line 1: column '0' has 'nan'"),
        ("a.tsv", "1\ta\tb\n", "9", "a.tsv, line 1: has no column '9', which data.cleaning.min_scores names"),
        ("a.jsonl", '{"en": "a", "zh": "b"}\n', "laser", "line 1: has no column 'laser'"),
        ("a.csv", "en,zh\ntea,Tee\n", "laser", "a.csv, row 1: has no column 'laser'"),
        ("a.po", "", "laser", "data.train.main has no columns: they are read from .tsv, .csv, .jsonl, .parquet files"),
        ("a.jsonl", '{"en": "a", "zh": "b", "laser": true}\n', "laser", "column 'laser' has 'True'"),
    ],
)
def test_what_is_no_score_is_refused_at_the_start(
    tmp_path: Path, name: str, content: str, column: str, message: str
) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(ValueError) as error:
        check_cleaning(data_config(tmp_path / name, **{column: 0.5}))
    assert message in str(error.value) and "\n" not in str(error.value)


def test_a_later_line_without_a_score_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("1\ta\tb\n?\tc\td\n")
    data = data_config(tmp_path / "a.tsv", **{"0": 0.5})
    check_cleaning(data)
    with pytest.raises(ValueError, match="a.tsv, line 2: column '0' has '\\?'"):
        list(clean_corpora(data.train, data, Cleaner(data)))


def test_a_folder_must_have_columns_in_every_file(tmp_path: Path) -> None:
    folder = write(tmp_path, "parts.tsv")
    (folder / "3.po").write_text('msgid ""\nmsgstr ""\n\nmsgid "tea"\nmsgstr "茶"\n', encoding="utf-8")
    with pytest.raises(ValueError, match="data.train.main has no columns: they are read from"):
        check_cleaning(data_config(folder, **{"0": 0.5}))


def test_text_files_have_no_columns() -> None:
    data = DataConfig(
        train={"main": CorpusConfig(source="a", target="b")}, cleaning=CleaningConfig(min_scores={"0": 1})
    )
    with pytest.raises(ValueError, match="data.cleaning.min_scores: data.train.main has no columns"):
        check_cleaning(data)
