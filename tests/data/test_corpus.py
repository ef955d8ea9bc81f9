import gzip
import json
import os
import warnings
from pathlib import Path

import pytest

from mt.config import CorpusConfig, DataConfig
from mt.data import files
from mt.data.corpus import check_corpora, corpus_fingerprint, read_corpora, read_corpus
from mt.data.files import read_lines

SEPARATORS = dict(
    VT="\x0b", FF="\x0c", FS="\x1c", GS="\x1d", RS="\x1e", NEL="\x85", LS="\u2028", PS="\u2029", CR="\r"
)  # fmt: skip
DATA = DataConfig()
NAME = "data.train.main"


def write(path: Path, text: str | bytes) -> str:
    content = text.encode() if isinstance(text, str) else text
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return str(path)


def text_corpus(folder: Path, source: str | bytes, target: str | bytes) -> CorpusConfig:
    return CorpusConfig(source=write(folder / "t.en", source), target=write(folder / "t.zh", target))


def pairs(config: CorpusConfig, data: DataConfig = DATA) -> list[tuple[str, str]]:
    return list(read_corpus(config, data, NAME))


def check(config: CorpusConfig, split: str = "train", name: str = "main") -> None:
    check_corpora(DataConfig(**{split: {name: config}}))


def error_of(call, *arguments) -> str:
    with pytest.raises(ValueError) as caught:
        call(*arguments)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("separator", SEPARATORS.values(), ids=SEPARATORS.keys())
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_every_format_gives_the_same_strings(tmp_path, separator: str, suffix: str) -> None:
    rows = [(f"red{separator}tea", "红茶"), ('"rice', ' 米饭 "\u3000'), ("", "空")]
    text = CorpusConfig(
        source=write(tmp_path / f"t.en{suffix}", "".join(f"{source}\n" for source, _ in rows)),
        target=write(tmp_path / f"t.zh{suffix}", "".join(f"{target}\n" for _, target in rows)),
    )
    tsv = CorpusConfig(path=write(tmp_path / f"t.tsv{suffix}", "".join(f"{s}\t{t}\n" for s, t in rows)))
    lines = "".join(json.dumps({"en": s, "zh": t}, ensure_ascii=False) + "\n" for s, t in rows)
    jsonl = CorpusConfig(path=write(tmp_path / f"t.jsonl{suffix}", lines))
    for config in (text, tsv, jsonl):
        check(config)
        assert pairs(config) == rows


def test_one_carriage_return_bom_and_missing_last_newline(tmp_path) -> None:
    config = text_corpus(tmp_path, b"\xef\xbb\xbftea\r\nrice\r\r\n\xef\xbb\xbfend", "茶\r\n米\n完\n")
    check(config)
    assert pairs(config) == [("tea", "茶"), ("rice\r", "米"), ("\ufeffend", "完")]
    tsv = CorpusConfig(path=write(tmp_path / "t.tsv", b"\xef\xbb\xbftea\t\xe8\x8c\xb6\r\nrice\tx"))
    assert pairs(tsv) == [("tea", "茶"), ("rice", "x")]


@pytest.mark.parametrize("source", ["a\nb\nc\n", "a\nb\n\n"])
@pytest.mark.parametrize("split", ["train", "valid", "test"])
def test_unequal_sides(tmp_path, source: str, split: str) -> None:
    config = text_corpus(tmp_path, source, "甲\n乙\n")
    message = error_of(check, config, split, "web")
    for part in (f"data.{split}.web", config.source, config.target, "has 3", "has 2"):
        assert part in message
    assert "ends after line 2" in error_of(pairs, config)


def test_last_newline_missing_is_legal(tmp_path) -> None:
    config = text_corpus(tmp_path, "a\nb\nc", "甲\n乙\n丙\n")
    check(config)
    assert len(pairs(config)) == 3


def test_quotation_marks_in_tsv_are_text(tmp_path) -> None:
    path = write(tmp_path / "q.tsv", '"Open\t打开\nclose\t关闭\n"quit\t退出\nsave\t保存\n')
    assert pairs(CorpusConfig(path=path)) == [('"Open', "打开"), ("close", "关闭"), ('"quit', "退出"), ("save", "保存")]


def test_tsv_columns(tmp_path) -> None:
    path = write(tmp_path / "t.tsv", "1\t茶\ttea\n2\t米\trice\n")
    assert pairs(CorpusConfig(path=path, source_field="2", target_field="1"))[0] == ("tea", "茶")
    few = error_of(check, CorpusConfig(path=path, source_field="9"))
    assert "line 1: has 3 columns, but at least 10 are needed" in few
    assert "column number" in error_of(check, CorpusConfig(path=path, source_field="en"))
    bad = CorpusConfig(path=write(tmp_path / "bad.tsv", "a\tb\tc\nonly one column\n\t空\n"))
    assert "bad.tsv, line 2: has 1 columns" in error_of(pairs, bad)
    more = CorpusConfig(path=write(tmp_path / "more.tsv", "a\tb\na\tb\tc\n"))
    assert "more.tsv, line 2: has 3 columns, but the first line has 2" in error_of(pairs, more)


def test_jsonl_fields(tmp_path) -> None:
    path = write(tmp_path / "t.jsonl", '{"src": "tea", "tgt": "茶", "en": 1}\n')
    assert pairs(CorpusConfig(path=path, source_field="src", target_field="tgt")) == [("tea", "茶")]
    nested = CorpusConfig(path=write(tmp_path / "n.jsonl", '{"translation": {"en": "tea", "zh": "茶"}}\n'))
    assert pairs(nested) == [("tea", "茶")]
    languages = DataConfig(source_language="zh", target_language="en")
    assert pairs(nested, languages) == [("茶", "tea")]


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ('{"src": "tea", "zh": "茶"}', "no field 'en'; there are src, zh: set data.train.main.source_field"),
        ('{"translation": {"de": "Tee"}}', "no field 'en'; there are de"),
        ('{"en": 3, "zh": "茶"}', "field 'en' must be text, got int '3'"),
        ('{"en": null, "zh": "茶"}', "must be text, got NoneType"),
        ('{"en": "\\ud800", "zh": "茶"}', "not valid Unicode"),
        ('["tea", "茶"]', "must be a JSON object"),
        ("tea\t茶", "not valid JSON"),
        ("", "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
    ],
)
def test_bad_jsonl_names_file_and_line(tmp_path, line: str, part: str) -> None:
    config = CorpusConfig(path=write(tmp_path / "t.jsonl", '{"en": "a", "zh": "b"}\n' + line + "\n"))
    message = error_of(pairs, config)
    assert part in message and f"{config.path}, line 2" in message


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (b"fine\nbad \xff\n", "t.en, line 2: byte 5 (0xff) is not valid UTF-8"),
        (b"fine\na\0b\n", "t.en, line 2: has a NUL byte"),
        ("tea\nrice\n".encode("utf-16"), "t.en, line 1"),
    ],
)
def test_binary_files(tmp_path, content: bytes, part: str) -> None:
    assert part in error_of(pairs, text_corpus(tmp_path, content, "茶\n米\n"))


def test_missing_empty_and_broken_files(tmp_path) -> None:
    good = write(tmp_path / "good.zh", "茶\n")
    for source, part in (
        (str(tmp_path / "none.en"), "No such file"),
        (str(tmp_path), "directory"),
        (write(tmp_path / "empty.en", ""), "the file is empty"),
        (write(tmp_path / "empty.en.gz", ""), "the file is empty"),
    ):
        message = error_of(check, CorpusConfig(source=source, target=good))
        assert f"data.train.main.source={source}" in message and part in message
    for path in ("none.tsv", "none.jsonl"):
        assert "data.train.main.path=" in error_of(check, CorpusConfig(path=str(tmp_path / path)))
    for cut in (gzip.compress(b"tea\n" * 1000)[:-9], b"not gzip"):
        (tmp_path / "cut.en.gz").write_bytes(cut)
        assert "cut.en.gz" in error_of(check, CorpusConfig(source=str(tmp_path / "cut.en.gz"), target=good))
        assert "cut.en.gz" in error_of(list, read_lines(tmp_path / "cut.en.gz"))
    for name in ("e.tsv", "e.jsonl"):
        empty = CorpusConfig(path=write(tmp_path / name, ""))
        assert "the file is empty" in error_of(check, empty)
        assert "there is no pair of texts" in error_of(pairs, empty)


def test_unknown_format_and_meaningless_settings(tmp_path) -> None:
    sheet = write(tmp_path / "t.xlsx", "a,b\n")
    assert "unknown format .xlsx; known: .tsv, .csv, .jsonl" in error_of(check, CorpusConfig(path=sheet))
    tsv = write(tmp_path / "t.tsv", "a\tb\n")
    assert "dataset_config=x" in error_of(check, CorpusConfig(path=tsv, dataset_config="x"))
    assert "split=test" in error_of(check, CorpusConfig(path=tsv, split="test"))
    text = CorpusConfig(source=tsv, target=tsv, source_field="0")
    assert "source_field=0" in error_of(check, text)
    assert "include_fuzzy=True" in error_of(check, CorpusConfig(path=tsv, include_fuzzy=True))
    assert "include_fuzzy=True" in error_of(check, CorpusConfig(dataset="x", include_fuzzy=True))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes on this system")
def test_a_pipe_that_can_be_read_only_once_is_refused(tmp_path) -> None:
    os.mkfifo(tmp_path / "pipe.en")
    good = write(tmp_path / "good.zh", "茶\n")
    config = CorpusConfig(source=str(tmp_path / "pipe.en"), target=good)
    assert "data.train.main.source=" in (message := error_of(check, config)) and "is a pipe" in message
    assert "data.train.main.source=a\0b: " in error_of(check, CorpusConfig(source="a\0b", target=good))


def test_one_bad_corpus_among_several_is_named(tmp_path) -> None:
    good = CorpusConfig(path=write(tmp_path / "good.tsv", "a\tb\n"))
    bad = text_corpus(tmp_path, "a\nb\n", "甲\n")
    message = error_of(check_corpora, DataConfig(train={"first": good, "second": bad, "third": good}))
    assert message.startswith("data.train.second: ")


def test_fields_in_a_message_are_few_and_on_one_line(tmp_path) -> None:
    row = json.dumps({f"key\n{i}": "x" for i in range(1000)})
    message = error_of(check, CorpusConfig(path=write(tmp_path / "t.jsonl", row + "\n")))
    assert "key 0, key 1" in message and len(message) < 500
    deep = write(tmp_path / "d.jsonl", '{"en": ' + "[" * 980 + "]" * 980 + ', "zh": "x"}\n')
    assert "line 1" in error_of(check, CorpusConfig(path=deep))


@pytest.mark.parametrize("code", ["cn", "jp", "chinese", "zh CN", "", "中文", "cn-Hans"])
def test_what_is_no_language_code_gives_a_warning(code: str) -> None:
    with pytest.warns(UserWarning, match=f"data.target_language={code}: is no language code"):
        check_corpora(DataConfig(target_language=code))


@pytest.mark.parametrize("code", ["zh", "ZH", "zh-CN", "zh_Hans", "cmn", "pt_BR", "de-1996"])
def test_language_codes_give_none(code: str) -> None:
    with warnings.catch_warnings(action="error"):
        check_corpora(DataConfig(source_language=code, target_language=code))


def test_read_lines_of_an_empty_file_is_nothing(tmp_path) -> None:
    assert list(read_lines(Path(write(tmp_path / "e.txt", "")))) == []
    assert list(read_lines(Path(write(tmp_path / "n.txt", "\n\n")))) == ["", ""]


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("end", ["", "\n"])
@pytest.mark.parametrize("block_bytes", [1, 7, 1 << 16])
def test_lines_are_the_same_however_many_are_decoded_at_once(tmp_path, monkeypatch, suffix, end, block_bytes) -> None:
    monkeypatch.setattr(files, "_LINES_BYTES", block_bytes)
    lines = ["tea", "", "", "茶\u2028茶", "rice\x0b\x85", "\ufeffno mark", "a\rb", "last"]
    stored = [line + ("\r" if line == "a\rb" else "") for line in lines]
    path = write(tmp_path / f"t.txt{suffix}", "\ufeff" + "\n".join(stored) + end)
    assert list(read_lines(Path(path))) == lines


@pytest.mark.parametrize("block_bytes", [1, 7, 1 << 16])
@pytest.mark.parametrize(
    ("line", "part"), [(b"bad \xff", "byte 5 (0xff) is not valid UTF-8"), (b"a\0\xff", "has a NUL byte")]
)
def test_a_bad_line_is_named_after_the_good_ones_before_it(tmp_path, monkeypatch, block_bytes, line, part) -> None:
    monkeypatch.setattr(files, "_LINES_BYTES", block_bytes)
    path = Path(write(tmp_path / "t.txt", b"1\n2\n3\n4\n" + line + b"\n6\n"))
    lines = read_lines(path)
    assert [next(lines) for _ in range(4)] == ["1", "2", "3", "4"]
    assert f"{path}, line 5: {part}" in error_of(next, lines)


def test_corpora_are_read_one_after_the_other(tmp_path) -> None:
    first = CorpusConfig(path=write(tmp_path / "1.tsv", "a\tb\n"))
    second = CorpusConfig(path=write(tmp_path / "2.tsv", "c\td\n"))
    assert list(read_corpora({"x": first, "y": second}, DATA, "train")) == [("a", "b"), ("c", "d")]


def test_fingerprint_follows_content_and_fields(tmp_path) -> None:
    def fingerprint(config: CorpusConfig) -> str:
        return corpus_fingerprint(config, DATA, NAME)

    config = text_corpus(tmp_path, "a\n", "b\n")
    before = fingerprint(config)
    assert fingerprint(text_corpus(tmp_path, "a\n", "b\n")) == before
    assert fingerprint(text_corpus(tmp_path, "b\n", "a\n")) != before
    path = write(tmp_path / "t.tsv", "a\tb\n")
    assert fingerprint(CorpusConfig(path=path)) == fingerprint(CorpusConfig(path=path, source_field="0"))
    assert fingerprint(CorpusConfig(path=path)) != fingerprint(CorpusConfig(path=path, source_field="1"))


def test_dataset_folders(tmp_path, monkeypatch) -> None:
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    rows = [("red\u2028tea", "红茶"), (' "rice', "米饭")]
    columns = datasets.Dataset.from_dict({"en": [s for s, _ in rows], "zh": [t for _, t in rows], "id": [1, 2]})
    columns.save_to_disk(tmp_path / "columns")
    nested = datasets.Dataset.from_dict({"translation": [{"en": s, "zh": t} for s, t in rows]})
    (tmp_path / "nested").mkdir()
    nested.to_parquet(tmp_path / "nested" / "train.parquet")
    for folder in ("columns", "nested"):
        config = CorpusConfig(dataset=str(tmp_path / folder))
        check(config)
        assert pairs(config) == rows
        assert corpus_fingerprint(config, DATA, NAME) == corpus_fingerprint(config, DATA, NAME)
        message = error_of(check, CorpusConfig(dataset=str(tmp_path / folder), source_field="src"))
        assert "no field 'src'; there are en, zh" in message
    datasets.DatasetDict({"valid": columns}).save_to_disk(tmp_path / "splits")
    assert "no split train; there are valid" in error_of(check, CorpusConfig(dataset=str(tmp_path / "splits")))
    number = CorpusConfig(dataset=str(tmp_path / "columns"), source_field="id")
    assert "must be text, got int" in error_of(check, number)
    for name in ("train.tsv", "deep/Train.TSV.gz"):
        folder = tmp_path / f"tables-{len(name)}"
        (folder / name).parent.mkdir(parents=True)
        write(folder / name, "en\tzh\n")
        assert Path(name).name in error_of(check, CorpusConfig(dataset=str(folder)))
    (tmp_path / "nothing").mkdir()
    assert "cannot be loaded" in error_of(check, CorpusConfig(dataset=str(tmp_path / "nothing")))


@pytest.mark.parametrize(
    ("split", "remedy"),
    [
        ("train", "data/README.md says how to get the corpora of the experiments"),
        ("valid", "mt split takes validation and test sets out of a corpus, and '~data.valid.a' trains without"),
        ("test", "mt split takes validation and test sets out of a corpus"),
    ],
)
def test_a_missing_file_comes_with_a_remedy(split, remedy):
    with pytest.raises(ValueError, match=rf"^data.{split}.a.path=no.tsv: No such file or directory; {remedy}"):
        check_corpora(DataConfig(**{split: {"a": CorpusConfig(path="no.tsv")}}))
