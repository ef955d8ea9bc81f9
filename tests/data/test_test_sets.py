import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from sacrebleu.dataset import DATASETS

from mt.config import CorpusConfig, DataConfig
from mt.data.corpus import check_corpus, corpus_fingerprint, read_corpus
from mt.data.test_sets import known_test_set

TEST_SET = CorpusConfig(test_set="wmt14")
GERMAN = DataConfig("en", "de")


@pytest.fixture
def downloaded(tmp_path: Path, monkeypatch) -> Path:
    """A folder in which wmt14, German and English, seems to have been downloaded before, and nothing else."""

    def urlopen(url: str) -> None:
        raise urllib.error.URLError("no\nconnection")

    monkeypatch.setattr(urllib.request, "urlopen", urlopen)
    for name in ("wmt14", "wmt15"):
        monkeypatch.setattr(DATASETS[name], "_outdir", str(tmp_path))
        monkeypatch.setattr(DATASETS[name], "_rawdir", str(tmp_path / "raw"))
    fields = dict.fromkeys(DATASETS["wmt14"].fieldnames("en-de"), "x\n")
    for ending, text in (fields | {"src": "tea\nred\u2028rice\n", "ref": "Tee\nroter Reis\n"}).items():
        (tmp_path / f"wmt14.en-de.{ending}").write_text(text, encoding="utf-8")
    return tmp_path


def test_a_test_set_is_a_corpus_by_name(downloaded: Path) -> None:
    pairs = [("tea", "Tee"), ("red\u2028rice", "roter Reis")]
    for data in (GERMAN, DataConfig("en_US", "de-DE")):
        check_corpus(TEST_SET, data, "data.test.a")
        assert list(read_corpus(TEST_SET, data, "data.test.a")) == pairs
    files = CorpusConfig(source=str(downloaded / "wmt14.en-de.src"), target=str(downloaded / "wmt14.en-de.ref"))
    fingerprints = [corpus_fingerprint(corpus, GERMAN, "data.test.a") for corpus in (TEST_SET, files)]
    assert fingerprints[0] == fingerprints[1]
    assert known_test_set("wmt14", ("en", "de"), "x")[1] == [downloaded / "wmt14.en-de.ref"]


@pytest.mark.parametrize(
    ("name", "languages", "message"),
    [
        ("wmt", ("en", "de"), "data.test.a.test_set=wmt: is no test set of sacreBLEU; there are iwslt17, "),
        ("wmt14", ("en", "zh"), "data.test.a.test_set=wmt14: is not for en-zh; there is cs-en, en-cs, de-en, en-de"),
        ("wmt14", ("de", "en"), "wmt14: cannot be downloaded (<urlopen error no connection>): fetch it"),
    ],
)
def test_what_is_not_there_is_named(downloaded: Path, name: str, languages: tuple[str, str], message: str) -> None:
    with pytest.raises(ValueError) as error:
        check_corpus(CorpusConfig(test_set=name), DataConfig(*languages), "data.test.a")
    assert message in str(error.value) and "\n" not in str(error.value)


def test_a_download_that_sacrebleu_gives_up(downloaded: Path, monkeypatch) -> None:
    monkeypatch.setattr(DATASETS["wmt15"], "process_to_text", lambda direction: sys.exit(1))
    with pytest.raises(ValueError, match=r"--test-set=wmt15: cannot be downloaded \(see the message above\)"):
        known_test_set("wmt15", ("en", "de"), "--test-set")


def test_other_settings_have_no_meaning() -> None:
    with pytest.raises(ValueError, match="data.test.a.source_field=en: has no meaning"):
        check_corpus(CorpusConfig(test_set="wmt14", source_field="en"), GERMAN, "data.test.a")
    with pytest.raises(ValueError, match="needs exactly one of: .*test_set"):
        CorpusConfig(test_set="wmt14", path="a.tsv")
