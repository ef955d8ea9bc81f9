"""Shards: the same bytes whoever makes them, none made twice, nothing broken by a kill, a full disk or a neighbour."""

import errno
import hashlib
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from mt.config import CleaningConfig, CorpusConfig, DataConfig, TokenizerConfig
from mt.data import clean, shards
from mt.data.encoded import EncodedCorpus, encode_corpus
from mt.data.shards import ShardEncoder, finished
from mt.tokenizer import TokenizerPair, train_tokenizers

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.filterwarnings("ignore:tokenizer")
PAIRS = [(f"red tea {i}", "" if i % 9 == 0 else f"tea &amp; rice {i % 40}") for i in range(300)]
SHARDS = 8  # of 40 pairs, the last of 20

KILLED = """
import os, signal, sys
from pathlib import Path
from mt.data import clean, shards
from mt.data.encoded import encode_corpus
from tests.data.test_shards import settings
from mt.tokenizer import TokenizerPair

clean.BATCH_PAIRS, shards._SHARD_BATCHES = 20, 2
finished = []

def progress(pairs):
    finished.append(pairs)
    if len(finished) == 3:
        os.kill(os.getpid(), signal.SIGKILL)

place = Path(sys.argv[1])
data = settings(place, processes=2)
encode_corpus(data.train, data, TokenizerPair.load(place / "tokenizer"), progress=progress)
"""


@pytest.fixture(scope="module")
def tokenizers() -> TokenizerPair:
    return train_tokenizers(PAIRS, TokenizerConfig(algorithm="bpe", vocabulary_size=330), seed=1)


@pytest.fixture(autouse=True)
def small_shards(monkeypatch) -> None:
    monkeypatch.setattr(clean, "BATCH_PAIRS", 20)
    monkeypatch.setattr(shards, "_SHARD_BATCHES", 2)


def settings(place: Path, processes: int = 1, cache: str = "cache", **cleaning: object) -> DataConfig:
    cleaning = {"html_entities": "repair", **cleaning}
    train = {"main": CorpusConfig(path=str(place / "t.tsv"))}
    return DataConfig(
        train=train, cleaning=CleaningConfig(**cleaning), cache_dir=str(place / cache), processes=processes
    )


@pytest.fixture
def place(tmp_path) -> Path:
    (tmp_path / "t.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in PAIRS), encoding="utf-8")
    return tmp_path


def content(corpus: EncodedCorpus) -> dict[str, str]:
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(corpus.folder.iterdir())}


@pytest.fixture
def made(monkeypatch) -> list[str]:
    """The names of the shards that this process makes."""
    names, make = [], ShardEncoder._make

    def noted(self, shard):
        names.append(shard.path.name)
        return make(self, shard)

    monkeypatch.setattr(ShardEncoder, "_make", noted)
    return names


def test_any_number_of_processes_gives_the_same_bytes(place, tokenizers, made):
    results = []
    for processes in (1, 3):
        data = settings(place, processes, f"cache{processes}")
        done: list[int] = []
        results.append(encode_corpus(data.train, data, tokenizers, progress=done.append))
        assert done == [40, 80, 120, 160, 200, 240, 280, 300]
    assert len(made) == SHARDS  # of the one process; three processes make theirs elsewhere
    assert content(results[0]) == content(results[1]) and len(content(results[0])) == SHARDS + 1
    for result in results:
        assert result.counts == {"empty target": 34} and result.repaired == {"target HTML entities": 266}
        assert result.texts(0) == ("red tea 1", "tea & rice 1")
        assert result.metadata["corpora"] == {"main": 266}


def test_steps_that_remember_pairs_see_all_of_them_whatever_the_processes(place, tokenizers):
    once = settings(place, 1, "one", drop_near_duplicates=True)
    source, target = PAIRS[1][0].upper(), PAIRS[1][1]
    with open(place / "t.tsv", "a", encoding="utf-8") as file:
        file.write(f"{source}!\t{target}\n")
    found = [
        encode_corpus(data.train, data, tokenizers)
        for data in (once, settings(place, 2, "two", drop_near_duplicates=True))
    ]
    assert content(found[0]) == content(found[1])
    assert found[0].counts == {"empty target": 34, "near duplicate": 1} and found[0].repaired["target HTML entities"]


def test_a_killed_process_is_continued_without_making_a_shard_again(place, tokenizers, made):
    tokenizers.save(place / "tokenizer")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    killed = subprocess.run([sys.executable, "-c", KILLED, str(place)], env=environment, stderr=subprocess.PIPE)
    assert killed.returncode == -9, killed.stderr.decode()
    (unfinished,) = (place / "cache").glob("*.unfinished")
    deadline = time.monotonic() + 20
    while (count := len(list(unfinished.glob("*.json")))) < SHARDS and time.monotonic() < deadline:
        time.sleep(0.2)  # its processes end with the shard that each has
        if count == len(list(unfinished.glob("*.json"))) and not list(unfinished.glob("*.part")):
            break
    before = {file.stem for file in unfinished.glob("*.json")}
    assert 3 <= len(before)
    (unfinished / "00-00001.arrow").write_bytes(b"half")  # what says that it is whole does not fit
    data = settings(place)
    result = encode_corpus(data.train, data, tokenizers)
    assert set(made) == {f"00-{i:05d}" for i in range(SHARDS)} - before | {"00-00001"}
    other = settings(place, cache="other")
    assert content(result) == content(encode_corpus(other.train, other, tokenizers))
    assert not list((place / "cache").glob("*.unfinished"))


@pytest.mark.parametrize("processes", [1, 2])
def test_a_full_disk_is_one_line_and_the_same_command_goes_on(place, tokenizers, monkeypatch, processes, made):
    replace, full = os.replace, [True]

    def replaced(source, target):
        if full[0] and str(target).endswith("00-00004.arrow"):
            raise OSError(errno.ENOSPC, "No space left on device")
        replace(source, target)

    data = settings(place, processes)
    if processes == 1:
        monkeypatch.setattr(os, "replace", replaced)
    else:  # a folder in the way of the file, which no other process can get round
        unfinished = place / "cache" / f"{key_of(place, tokenizers)}.unfinished"
        (unfinished / "00-00004.arrow").mkdir(parents=True)
    with pytest.raises(ValueError, match="data.cache_dir=.*cannot be written .*the same command goes on") as caught:
        encode_corpus(data.train, data, tokenizers)
    assert "\n" not in str(caught.value)
    (unfinished,) = (place / "cache").glob("*.unfinished")
    assert not list(unfinished.glob("*.part")) and finished(unfinished / "00-00003") and len(list(unfinished.iterdir()))
    full[0] = False
    if processes == 2:
        (unfinished / "00-00004.arrow").rmdir()
    made.clear()
    result = encode_corpus(data.train, data, tokenizers)
    assert len(result) == 266 and "00-00003" not in made


def key_of(place: Path, tokenizers: TokenizerPair) -> str:
    data = settings(place, cache="elsewhere")
    return encode_corpus(data.train, data, tokenizers).folder.name


def test_a_process_ended_from_outside_is_one_line(place, tokenizers, monkeypatch):
    monkeypatch.setattr(ShardEncoder, "__reduce__", lambda self: (os._exit, (3,)))  # what the others do first
    data = settings(place, 2)
    with pytest.raises(ValueError, match="a process that prepares data has ended .exit code 3"):
        encode_corpus(data.train, data, tokenizers)


def test_two_that_begin_at_once_encode_a_corpus_once(place, tokenizers, made):
    data, found = settings(place), []
    threads = [
        threading.Thread(target=lambda: found.append(encode_corpus(data.train, data, tokenizers))) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 3 and len(made) == SHARDS
    assert found[0].folder == found[1].folder == found[2].folder


def test_long_texts_make_shorter_shards(place, tokenizers, monkeypatch, made):
    monkeypatch.setattr(shards, "_SHARD_BYTES", 500)
    data = settings(place)
    result = encode_corpus(data.train, data, tokenizers)
    assert len(made) == 15 and len(result) == 266
