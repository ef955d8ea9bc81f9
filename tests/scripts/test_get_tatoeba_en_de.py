import http.client
import importlib.util
import zipfile
from pathlib import Path
from unittest import mock

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"
ARCHIVE = Path(__file__).parents[2] / "../shared/data/tatoeba-en-de/deu-eng.zip"


@pytest.fixture
def get(monkeypatch):
    """The script, with five pairs each in valid and test."""
    monkeypatch.syspath_prepend(str(SCRIPTS))
    spec = importlib.util.spec_from_file_location("get_tatoeba_en_de", SCRIPTS / "get_tatoeba_en_de.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setitem(module.split.__globals__, "SPLIT_PAIRS", 5)
    return module


def write_zip(path: Path, lines: list[str]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("deu.txt", "\ufeff" + "\r\n".join(lines) + "\r\n")
        archive.writestr("_about.txt", "Sentences of our own.")
    return path


def lines(columns: int) -> list[str]:
    """Twenty English sentences, each in three spellings, one pair of them twice, and one with an empty side."""
    rows = [
        ("Let's try it.", "Versuchen wir\u200b es.", "a"),
        ("Let's try it.", "Versuchen wir es.", "b"),
        ("Oh.", " ", ""),
    ]
    for i in range(20):
        rows += [
            (f"Sentence {i}.", f"Satz {i}.", f"#{i}"),
            (f"sentence {i}!", f"{i}. Satz!", ""),
            (f"SENTENCE, {i}", "S", "c"),
        ]
    return ["\t".join(row[:columns]) for row in rows]


def read(output: Path, name: str) -> list[list[str]]:
    return [row.split("\t") for row in (output / f"{name}.tsv").read_bytes().decode().split("\n")[:-1]]


@pytest.mark.parametrize("columns", [2, 3])
def test_splits_share_no_english_sentence(get, tmp_path, columns, capsys):
    output = tmp_path / "data" / "set"
    get.main(["--zip", str(write_zip(tmp_path / "a.zip", lines(columns))), "--output", str(output)])
    assert "not the archive of 2018-05-13" in capsys.readouterr().err
    splits = {name: read(output, name) for name in ("train", "valid", "test")}
    normalised = get.split.__globals__["normalised"]
    sources = {name: [normalised(row[0]) for row in rows] for name, rows in splits.items()}
    assert len(set(sources["test"])) == len(sources["test"]) == len(sources["valid"]) == 5
    assert len(set().union(*sources.values())) == sum(len(set(names)) for names in sources.values()) == 21
    everything = [row for rows in splits.values() for row in rows]
    assert all(len(row) == columns and row[1] for row in everything)
    assert not {"\r", "\ufeff", "\u200b"} & set("".join(row[0] + row[1] for row in everything))
    assert "CC-BY 2.0" in (output / "ATTRIBUTION.md").read_text()
    assert [path.name for path in output.parent.iterdir()] == ["set"]


def test_the_same_pair_is_kept_once_and_a_pair_needs_both_sides(get):
    rows = [
        ("Try it.", "Versuch es.", "a"),
        ("Try it.", " Versuch\u200b es.", "b"),
        ("Try it.", "Los.", "c"),
        ("Oh.", ""),
    ]
    assert get.clean(rows) == [rows[0], rows[2]]


def test_a_second_call_does_nothing_and_the_seed_decides(get, tmp_path, monkeypatch):
    archive = str(write_zip(tmp_path / "a.zip", lines(3)))
    for name, seed in (("a", "1"), ("b", "1"), ("c", "2")):
        get.main(["--zip", archive, "--output", str(tmp_path / name), "--seed", seed])
    tests = [(tmp_path / name / "test.tsv").read_bytes() for name in "abc"]
    assert tests[0] == tests[1] != tests[2]
    monkeypatch.setattr(get, "read_rows", pytest.fail)
    get.main(["--zip", archive, "--output", str(tmp_path / "a")])
    (tmp_path / "a" / "test.tsv").write_bytes(b"mine\n")
    with pytest.raises(ValueError, match="test.tsv: missing or changed"):
        get.main(["--zip", archive, "--output", str(tmp_path / "a")])


def test_the_archive_is_fetched_by_its_address(get, tmp_path):
    archive = write_zip(tmp_path / "a.zip", lines(3))
    get.main(["--url", archive.as_uri(), "--output", str(tmp_path / "set")])
    assert get.sha256(archive) in (tmp_path / "set" / "ATTRIBUTION.md").read_text()
    assert len(read(tmp_path / "set", "test")) == 5


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (["a\tb", "a"], r"deu.txt, line 2: 1 columns, expected 2"),
        (["a\tb", "a\tb\tc"], r"deu.txt, line 2: 3 columns, expected 2"),
        (["a"], r"deu.txt, line 1: 1 columns, expected 2"),
        (["a\tb"], r"1 different English sentences"),
    ],
)
def test_what_is_no_corpus_is_refused_in_one_line(get, tmp_path, content, message):
    with pytest.raises(ValueError, match=message) as caught:
        get.main(["--zip", str(write_zip(tmp_path / "a.zip", content)), "--output", str(tmp_path / "set")])
    assert "\n" not in str(caught.value) and not (tmp_path / "set").exists()


def test_what_is_no_archive_and_what_cannot_be_fetched_is_refused_in_one_line(get, tmp_path):
    (tmp_path / "a.zip").write_bytes(b"<html>")
    with pytest.raises(ValueError, match="a.zip: is no archive with deu.txt"):
        get.main(["--zip", str(tmp_path / "a.zip"), "--output", str(tmp_path / "set")])
    with pytest.raises(ValueError, match="give it with --zip"):
        get.main(["--url", (tmp_path / "none.zip").as_uri(), "--output", str(tmp_path / "set")])
    assert not (tmp_path / "set").exists()


def test_a_connection_that_breaks_off_is_told_in_one_line(get, monkeypatch, tmp_path):
    broken = mock.MagicMock()
    broken.__enter__.return_value.read.side_effect = http.client.IncompleteRead(b"half", 4)
    monkeypatch.setattr(get.urllib.request, "urlopen", lambda *arguments, **more: broken)
    with pytest.raises(ValueError, match="https://.*IncompleteRead.*with a browser"):
        get.fetch("https://example.org/a.zip", tmp_path)


@pytest.mark.skipif(not ARCHIVE.is_file(), reason="needs a copy of the archive of 2018-05-13")
def test_the_archive_of_the_date_has_its_checksum_and_is_read_whole(get):
    assert get.sha256(ARCHIVE) == get.DATED_SHA256
    assert len(get.read_rows(ARCHIVE)) == 169_813
