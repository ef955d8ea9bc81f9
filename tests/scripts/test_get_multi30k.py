import gzip
import hashlib
import http.client
import importlib.util
from pathlib import Path
from unittest import mock

import pytest

ROOT = Path(__file__).parents[2]
COPY = ROOT / "../shared/data/multi30k-en-de"
SPEC = importlib.util.spec_from_file_location("get_multi30k", ROOT / "scripts" / "get_multi30k.py")
get = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(get)

REAL_SHA256 = dict(get.TEXT_SHA256)
TEXTS = {"raw/train.en.gz": b"A dog runs.\n", "tok/train.lc.norm.tok.en": b"a dog runs .\n"}


@pytest.fixture
def repository(tmp_path, monkeypatch) -> Path:
    """A folder like the repository's data/task1, with two files: raw text compressed, tokenised text not."""
    for name, text in TEXTS.items():
        file = tmp_path / "task1" / name
        file.parent.mkdir(parents=True)
        file.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    monkeypatch.setattr(get, "TEXT_SHA256", {name: hashlib.sha256(text).hexdigest() for name, text in TEXTS.items()})
    return tmp_path / "task1"


def call(place: Path | str, output: Path) -> None:
    get.main(["--from", str(place), "--output", str(output)])


def test_all_files_come_compressed_and_whole(repository, tmp_path, monkeypatch):
    call(repository, tmp_path / "set")
    call(repository.as_uri(), tmp_path / "by address")
    for folder in (tmp_path / "set", tmp_path / "by address"):
        found = {file.name: gzip.decompress(file.read_bytes()) for file in folder.iterdir()}
        assert found == {"train.en.gz": b"A dog runs.\n", "train.lc.norm.tok.en.gz": b"a dog runs .\n"}
    monkeypatch.setattr(get, "fetch", pytest.fail)
    call(repository, tmp_path / "set")  # complete: nothing is fetched


def test_only_what_is_missing_is_fetched_and_other_files_are_left_alone(repository, tmp_path):
    call(repository, tmp_path / "set")
    (tmp_path / "set" / "train.en.gz").unlink()
    (repository / "tok" / "train.lc.norm.tok.en").unlink()
    call(repository, tmp_path / "set")
    mine = gzip.compress(b"mine\n")
    (tmp_path / "set" / "train.en.gz").write_bytes(mine)
    with pytest.raises(ValueError, match="train.en.gz: is not the file of this corpus: move it away"):
        call(repository, tmp_path / "set")
    assert (tmp_path / "set" / "train.en.gz").read_bytes() == mine


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (gzip.compress(b"other\n"), "sha256 of the text is .*, expected"),
        (gzip.compress(b"A dog runs.\n")[:-4], "is no whole gzip file"),
        (b"<html>", "is no whole gzip file"),
        (None, "--from takes another address"),
    ],
    ids=["other text", "cut short", "a web page", "absent"],  # a gzip header holds the time: no name for two processes
)
def test_what_is_not_the_corpus_is_refused_in_one_line(repository, tmp_path, content, message):
    (repository / "raw" / "train.en.gz").unlink()
    if content is not None:
        (repository / "raw" / "train.en.gz").write_bytes(content)
    with pytest.raises(ValueError, match=message) as caught:
        call(repository, tmp_path / "set")
    assert "\n" not in str(caught.value) and list((tmp_path / "set").iterdir()) == []


def test_a_connection_that_breaks_off_is_told_in_one_line(monkeypatch, tmp_path):
    broken = mock.MagicMock()
    broken.__enter__.return_value.read.side_effect = http.client.IncompleteRead(b"half", 4)
    monkeypatch.setattr(get.urllib.request, "urlopen", lambda *arguments, **more: broken)
    with pytest.raises(ValueError, match="https://.*IncompleteRead.*--from takes another address"):
        get.fetch("https://example.org/a.gz")


@pytest.mark.skipif(not COPY.is_dir(), reason="needs a copy of Multi30k")
def test_the_checksums_are_those_of_the_corpus():
    for name, checksum in REAL_SHA256.items():
        file = COPY / (Path(name).name.removesuffix(".gz") + ".gz")
        assert get.text_sha256(file.read_bytes(), name) == checksum
