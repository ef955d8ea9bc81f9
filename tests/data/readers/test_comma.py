from pathlib import Path

import pytest

from mt.config import CorpusConfig, DataConfig
from mt.data.corpus import check_corpus, read_corpus

NAME = "data.train.main"


def pairs(folder: Path, content: str | bytes, **fields: str) -> list[tuple[str, str]]:
    path = folder / "t.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    config = CorpusConfig(path=str(path), **fields)
    check_corpus(config, DataConfig(), NAME)
    return list(read_corpus(config, DataConfig(), NAME))


def error(folder: Path, content: str, **fields: str) -> str:
    with pytest.raises(ValueError) as caught:
        pairs(folder, content, **fields)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_quoted_fields(tmp_path) -> None:
    rows = 'zh,id,en\r\n茶,1,"red, ""green"" tea"\r\n"米\n饭",2,  rice \r\n空,3,\r\n'
    assert pairs(tmp_path, rows) == [('red, "green" tea', "茶"), ("  rice ", "米 饭"), ("", "空")]


@pytest.mark.parametrize("separator", "\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029")
def test_what_others_take_for_a_line_break_is_text(tmp_path, separator: str) -> None:
    assert pairs(tmp_path, f'en,zh\nred{separator}tea,茶\n"{separator}","a\rb"\n') == [
        (f"red{separator}tea", "茶"),
        (separator, "a\rb"),
    ]


def test_numbers_mean_that_no_row_names_the_columns(tmp_path) -> None:
    assert pairs(tmp_path, "1,茶,tea\n2,米,rice\n", source_field="2", target_field="1") == [
        ("tea", "茶"),
        ("rice", "米"),
    ]
    bom = b"\xef\xbb\xbfsrc,tgt\ntea,x"
    assert pairs(tmp_path, bom, source_field="src", target_field="tgt") == [("tea", "x")]


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (
            'en,zh\na,b\n"Open,c\nd,e\nf,g\n',
            "t.csv, the row that begins in line 3: is not CSV (unexpected end of data)",
        ),
        ('en,zh\n"a" b,c\n', "begins in line 2: is not CSV (',' expected after '\"')"),
        ("en,zh\na\rb,c\n", "begins in line 2: is not CSV"),
        ('en,zh\n"' + "x\n" * 80_000 + '",c\n', "begins in line 2: is not CSV (field larger than field limit"),
        ("en,zh\na,b,c\n", "t.csv, line 2: has 3 columns, but the first line has 2"),
        ('en,zh\n"a\n\nb",c\na\n', "t.csv, line 5: has 1 columns"),
        ("en,zh\n\na,b\n", "t.csv, line 2: has 0 columns"),
        (
            "src,zh\na,b\n",
            "t.csv, line 1: no field 'en'; there are src, zh: set data.train.main.source_field (where no",
        ),
        ("en,zh,en\na,b,c\n", "names two columns 'en'"),
        ("en;zh\na;b\n", "there are en;zh"),
        ("en,zh\n", "there is no pair of texts"),
    ],
)
def test_bad_rows_are_named(tmp_path, content: str, part: str) -> None:
    assert part in error(tmp_path, content)


def test_a_column_that_is_not_there(tmp_path) -> None:
    message = error(tmp_path, "a,b\n", source_field="0", target_field="2")
    assert "line 1: has 2 columns, but at least 3 are needed" in message
