"""Strands of a streamed dataset: every row once a pass, each strand its own, and from a saved place the same again."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mt.config import CleaningConfig, CorpusConfig, DataConfig, TokenizerConfig
from mt.data import streamed
from mt.data.readers import dataset as reader
from mt.data.streamed import Place, Strand, StreamedCorpus
from mt.tokenizer import TokenizerPair, train_tokenizers

FILES, ROWS = 4, 23
TEXTS = [[(f"tea {file} {row}", f"rice {file} {row}") for row in range(ROWS)] for file in range(FILES)]
pytestmark = pytest.mark.filterwarnings("ignore:tokenizer")


@pytest.fixture(scope="module")
def tokenizers() -> TokenizerPair:
    return train_tokenizers(TEXTS[0], TokenizerConfig(vocabulary_size=330), seed=1)


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("stream")
    for number, pairs in enumerate(TEXTS):
        table = pa.table({"en": [s for s, _ in pairs], "de": [t for _, t in pairs], "other": list(range(ROWS))})
        pq.write_table(table, place / f"{number}.parquet", row_group_size=5)
    return place


@pytest.fixture(autouse=True)
def small_parts(monkeypatch) -> None:
    monkeypatch.setattr(streamed, "PART_ROWS", 10)
    monkeypatch.setattr(reader, "_ROWS", 4)


def corpus(files: Path | str, tokenizers: TokenizerPair, folder: Path, **cleaning: object) -> StreamedCorpus:
    train = {"main": CorpusConfig(dataset=str(files), streaming=True)}
    return StreamedCorpus(DataConfig("en", "de", train=train, cleaning=CleaningConfig(**cleaning)), tokenizers, folder)


def read(strand: Strand, place: Place, parts: int) -> tuple[list[list[tuple[str, str]]], list[Place]]:
    """Returns the pairs of so many parts, and where each begins."""
    texts, places = [], []
    for _ in range(parts):
        part = strand.part(place)
        texts.append([part.corpus.texts(i) for i in range(len(part.corpus))])
        places.append(part.place)
        place = part.following
    return texts, places


@pytest.mark.parametrize("count", [2, 3])  # of 4 files: two strands have two each, three share them
def test_a_pass_has_every_row_once_and_strands_share_nothing(files, tokenizers, tmp_path, count):
    passes: list[list[tuple[str, str]]] = [[], []]
    for number in range(count):
        place, strand = Place(), Strand(corpus(files, tokenizers, tmp_path), number, count)
        while place.round < len(passes):
            part = strand.part(place)
            if part.place.round == len(passes):  # the last part of the pass had no row
                break
            passes[part.place.round] += [part.corpus.texts(i) for i in range(len(part.corpus))]
            assert len(part.corpus) <= 12
            place = part.following
    everything = sorted(pair for pairs in TEXTS for pair in pairs)
    assert [sorted(pairs) for pairs in passes] == [everything] * len(passes)


@pytest.mark.parametrize("count", [1, 3])
def test_any_saved_place_gives_the_same_parts_again(files, tokenizers, tmp_path, count):
    texts, places = read(Strand(corpus(files, tokenizers, tmp_path / "a"), 0, count), Place(), 12)
    assert max(place.round for place in places) >= 1
    for start in (2, 5, 9):
        saved = Place(**json.loads(json.dumps(asdict(replace(places[start], next_batch=2)))))
        other = Strand(corpus(files, tokenizers, tmp_path / f"b{start}"), 0, count)
        assert read(other, saved, 2) == (texts[start : start + 2], places[start : start + 2])


def test_a_part_that_is_on_disk_is_not_read_again(files, tokenizers, tmp_path, monkeypatch):
    texts, places = read(Strand(corpus(files, tokenizers, tmp_path), 0, 1), Place(), 3)
    again = Strand(corpus(files, tokenizers, tmp_path), 0, 1)
    monkeypatch.setattr(streamed, "load_rows", lambda *_: pytest.fail("read again"))
    assert read(again, places[1], 2) == (texts[1:], places[1:])
    again.remove_before(2)
    assert [folder.name for folder in again.folder.iterdir()] == ["00000002"]
    monkeypatch.undo()
    monkeypatch.setattr(streamed, "PART_ROWS", 10)
    monkeypatch.setattr(reader, "_ROWS", 4)
    (again.folder / "00000002" / "place.json").write_text("{")
    assert read(again, places[1], 2) == (texts[1:], places[1:])


def test_what_cleaning_drops_is_counted(files, tokenizers, tmp_path):
    part = Strand(corpus(files, tokenizers, tmp_path / "a", max_characters=8), 0, 1).part(Place())
    assert part.corpus.counts == {"too many target characters": 2} and len(part.corpus) == 10


def test_a_stream_of_which_nothing_is_left_ends_in_one_line(files, tokenizers, tmp_path):
    with pytest.raises(ValueError, match="strand 1 of 1 has no pair that data.cleaning leaves"):
        Strand(corpus(files, tokenizers, tmp_path, max_characters=2), 0, 1).part(Place())
    with pytest.raises(ValueError, match="strand 201 of 300 has no pair"):
        Strand(corpus(files, tokenizers, tmp_path), 200, 300).part(Place())


def test_files_at_an_address_are_read_through_fsspec(files, tokenizers, tmp_path):
    import fsspec

    memory = fsspec.filesystem("memory")
    for file in files.glob("*.parquet"):
        memory.pipe_file(f"/bucket/{file.name}", file.read_bytes())
    try:
        texts, _ = read(Strand(corpus("memory://bucket/*.parquet", tokenizers, tmp_path), 0, 2), Place(), 3)
        assert sorted(pair for part in texts for pair in part)[:2] == [("tea 0 0", "rice 0 0"), ("tea 0 1", "rice 0 1")]
        with pytest.raises(ValueError, match="unknown format .txt; of files at an address, known: .parquet"):
            corpus("memory://bucket/a.txt", tokenizers, tmp_path)
    finally:
        memory.rm("/bucket", recursive=True)
