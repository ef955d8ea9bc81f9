import json
import shlex
from pathlib import Path

import pytest

LANGUAGES = ["--source-language", "en", "--target-language", "de", "--output", "out"]
SIZES = ["--valid", "3", "--test", "2"]


@pytest.fixture
def corpus(tmp_path: Path) -> list[str]:
    """The arguments of a TSV file with tabs in none, and one text with a line separator."""
    lines = [f"x\ttea\u2028{i}\tTee {i}\n" for i in range(20)]
    (tmp_path / "a.tsv").write_text("".join(lines), encoding="utf-8")
    return ["a.tsv", "--source-field", "1", "--target-field", "2", *LANGUAGES]


def rows(file: Path) -> list[tuple[str, str]]:
    return [tuple(json.loads(line).values()) for line in file.read_text(encoding="utf-8").split("\n")[:-1]]


def test_three_files_and_the_command_that_reads_them(run_mt, tmp_path: Path, corpus: list[str]) -> None:
    code, out, err = run_mt("split", *corpus, *SIZES)
    assert code == 0 and err == "out: train 15, valid 3, test 2 pairs\n"
    found = {name: rows(tmp_path / "out" / f"{name}.jsonl") for name in ("train", "valid", "test")}
    assert sorted(sum(found.values(), [])) == sorted((f"tea\u2028{i}", f"Tee {i}") for i in range(20))
    assert out.count(b"\n") == 1 and out.startswith(b"mt train data.source_language=en data.target_language=de ")
    shown = run_mt("data", "default", *out.decode().split()[2:], "--no-tokens")
    assert shown[0] == 0 and b"# data.train: 15 pairs read, 15 left" in shown[1]
    (tmp_path / "out").rename(tmp_path / "before")
    assert run_mt("split", *corpus, *SIZES)[:2] == (0, out)
    for name, pairs in found.items():
        assert rows(tmp_path / "out" / f"{name}.jsonl") == pairs


def test_two_text_files(run_mt, tmp_path: Path) -> None:
    for ending in ("en", "de"):
        (tmp_path / f"a.{ending}").write_text("".join(f"{ending}\t{i % 6}\n" for i in range(9)))
    code, _, err = run_mt("split", "a.en", "a.de", *LANGUAGES, *SIZES)
    assert code == 0 and "valid 3, test 2 pairs" in err and "left out, as other translations: " in err
    assert all(pair[0][3:] == pair[1][3:] for pair in rows(tmp_path / "out" / "train.jsonl"))


def test_without_a_test_set_and_with_an_odd_name_the_command_still_works(run_mt, tmp_path: Path, corpus) -> None:
    arguments = [*corpus[:-1], "o,u[t]='x' (1)"]
    code, out, err = run_mt("split", *arguments, "--valid", "3", "--test", "0")
    assert code == 0 and "train 17, valid 3, test 0 pairs" in err and b"data.test" not in out
    shown = run_mt("data", "default", *shlex.split(out.decode())[2:], "--no-tokens")
    assert shown[0] == 0 and b"# data.train: 17 pairs read, 17 left" in shown[1], shown[2]


def test_what_is_not_read_is_counted(run_mt, tmp_path: Path) -> None:
    entries = "".join(f'msgid "tea {i}"\nmsgstr "Tee {i}"\n\n' for i in range(8))
    (tmp_path / "a.po").write_text(f'{entries}#, fuzzy\nmsgid "a"\nmsgstr "b"\n\nmsgid "c"\nmsgstr ""\n')
    code, _, err = run_mt("split", "a.po", *LANGUAGES, *SIZES)
    assert code == 0
    assert (
        err == "out: train 3, valid 3, test 2 pairs; not read, fuzzy entry: 1; not read, entry without translation: 1\n"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--valid", "15", "--test", "5"], "there are 20 different source sentences, but --valid=15 and --test=5"),
        (["--valid", "0"], "--valid"),
        (["--target-language", "en"], "--source-language=en, --target-language: must differ"),
        (["--output", "."], "--output=.: is there already"),
        (["--output", "none/out"], "there is no folder"),
        (["--source-field", "x"], "--source-field=x"),
        (["--target-field", "7"], "a.tsv, line 1: has 3 columns, but at least 8 are needed"),
    ],
)
def test_errors_are_one_line_and_leave_nothing(
    run_mt, tmp_path: Path, corpus: list[str], arguments: list[str], message: str
) -> None:
    code, out, err = run_mt("split", *corpus, *SIZES, *arguments)
    assert (code, out) == (2, b"") and message in err and err.count("\n") == 1
    assert {path.name for path in tmp_path.iterdir()} == {"a.tsv", ".stdin"}
