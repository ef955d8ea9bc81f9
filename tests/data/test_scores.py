import gzip
from pathlib import Path

import pytest

from mt.config import CleaningConfig, CorpusConfig, DataConfig
from mt.data.clean import Cleaner, check_cleaning, clean_corpora

LINES = {
    "a.tsv": "0.9\ttea\t茶\t1\n0.1\trice\t米\t1\n0.5\tsoup\t汤\t0\n",
    "a.jsonl": '{"en": "tea", "zh": "茶", "0": 0.9, "3": 1}\n{"en": "rice", "zh": "米", "0": "0.1", "3": 1}\n'
    '{"en": "soup", "zh": "汤", "0": 0.5, "3": 0}\n',
}


def data_config(file: Path, **min_scores: float) -> DataConfig:
    fields = {"source_field": "1", "target_field": "2"} if ".tsv" in file.name else {}
    cleaning = CleaningConfig(min_scores=min_scores)
    return DataConfig(train={"main": CorpusConfig(path=str(file), **fields)}, cleaning=cleaning)


@pytest.mark.parametrize("name", ["a.tsv", "a.jsonl", "a.tsv.gz"])
def test_low_scores_are_dropped_first_and_counted_by_column(tmp_path: Path, name: str) -> None:
    content = LINES[name.removesuffix(".gz")].encode()
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    data = data_config(tmp_path / name, **{"0": 0.5, "3": 1})
    check_cleaning(data)
    cleaner = Cleaner(data)
    assert list(clean_corpora(data.train, data, cleaner)) == [("tea", "茶")]
    assert cleaner.dropped == {"score 0": 1, "score 3": 1}
    assert (cleaner.left["read"], cleaner.left["scores"], cleaner.lost["scores"]) == (3, 1, 2)


@pytest.mark.parametrize(
    ("name", "content", "column", "message"),
    [
        ("a.tsv", "x\ty\n", "laser", "'laser' must be a column number from 0, as data.train.main is a TSV file"),
        ("a.tsv", "x\ta\tb\n", "0", "a.tsv, line 1: column 0 has 'x': data.cleaning.min_scores needs a number"),
        ("a.tsv", "nan\ta\tb\n", "0", "a.tsv, line 1: column 0 has 'nan'"),
        ("a.tsv", "1\ta\tb\n", "9", "a.tsv, line 1: has no column 9, which data.cleaning.min_scores names"),
        ("a.jsonl", '{"en": "a", "zh": "b"}\n', "laser", "line 1: has no column 'laser'"),
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
    with pytest.raises(ValueError, match="a.tsv, line 2: column 0 has '\\?'"):
        list(clean_corpora(data.train, data, Cleaner(data)))


def test_text_files_have_no_columns() -> None:
    data = DataConfig(
        train={"main": CorpusConfig(source="a", target="b")}, cleaning=CleaningConfig(min_scores={"0": 1})
    )
    with pytest.raises(ValueError, match="data.cleaning.min_scores: data.train.main has no columns"):
        check_cleaning(data)
