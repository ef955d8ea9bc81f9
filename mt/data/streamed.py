"""A training corpus that is never on the disk whole: a streamed dataset, whose parts are encoded shortly before use.

The stream is cut into strands, each of which has files of its own where there are as many, so that a process reads only
what it trains on. A strand is an endless row of passes, each in parts of up to 200,000 rows. What is in a part follows
from the place where it begins, so that a place is all that has to be saved.
"""

import json
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from mt.config import DataConfig
from mt.data.clean import Pair
from mt.data.corpus import corpus_fingerprint
from mt.data.encoded import EncodedCorpus, ShardsWritten, cache_key
from mt.data.own_settings import own_settings
from mt.data.readers.dataset import load_rows, place_of, stream_batches
from mt.data.readers.rows import row_pair
from mt.data.shards import ShardEncoder, cut_into_shards
from mt.data.sides import Sides
from mt.tokenizer import TokenizerPair

PART_ROWS = 200_000  # whole batches of the reader
_PLACE = "place.json"  # of a part, with the place of the one that follows


@dataclass(frozen=True)
class Place:
    """Where a strand stands. A part's batches are counted from its beginning."""

    part: int = 0  # of the strand, over all passes
    round: int = 0  # the pass
    row: int = 0  # of the strand's rows of that pass, where the part begins
    next_batch: int = 0
    # what datasets needs to find that row without reading those before it, which it can say in several ways
    state: dict[str, Any] | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Part:
    """Some pairs of a strand, encoded on disk."""

    corpus: EncodedCorpus
    place: Place
    following: Place


class StreamedCorpus:
    """A corpus with data.train.NAME.streaming=true.

    Raises ValueError for settings that need all pairs at once, and where the dataset cannot be reached.
    """

    def __init__(self, data: DataConfig, tokenizers: TokenizerPair, folder: Path) -> None:
        ((self.name, self.config),) = data.train.items()
        place = f"data.train.{self.name}"
        self.data, self.tokenizers, self.folder = own_settings(data, self.config, place), tokenizers, folder
        self.fingerprint = corpus_fingerprint(self.config, data, place)
        self.key = cache_key(data.train, data, tokenizers.fingerprint, True, "train")

    def texts(self, i: int) -> tuple[str, str]:
        """Returns what stands for the texts of a pair, which may have left the disk."""
        return f"pair {i} of a part of the stream", ""


def is_streamed(data: DataConfig) -> bool:
    """Returns whether the training corpus is streamed: then it is the only one."""
    return any(corpus.streaming for corpus in data.train.values())


class Strand:
    """Every `count`-th share of a stream, the one that begins at `number`."""

    def __init__(self, corpus: StreamedCorpus, number: int, count: int) -> None:
        self.corpus, self.number, self.count = corpus, number, count
        self.sides = Sides.of(corpus.config, corpus.data, f"data.train.{corpus.name}")
        self.folder = corpus.folder / f"{number}-of-{count}"
        self._encoder = ShardEncoder(corpus.data, corpus.tokenizers, corpus.data.cleaning, clean=True)
        self._rows: Any = None  # of all passes
        self._open: tuple[Place, Iterator[dict[str, list]]] | None = None  # where the dataset is being read

    def part(self, place: Place) -> Part:
        """Returns the part that begins at a place: encoded before, or now; it has at least one pair.

        Raises ValueError for what is no text, where nothing is left by data.cleaning in a whole pass, and for a full
        disk.
        """
        place, empty_from = replace(place, next_batch=0), None
        while True:
            try:
                part = self._stored(place) or self._encoded(place)
            except OSError as error:
                raise ValueError(f"{self.folder}: cannot be written ({error.strerror}): make room") from error
            if len(part.corpus):
                return part
            empty_from = place.round if empty_from is None else empty_from
            if part.following.round > empty_from + 1:
                raise ValueError(
                    f"{place_of(self.corpus.config, self.sides)}: strand {self.number + 1} of {self.count} has no pair "
                    "that data.cleaning leaves: an update must not have more micro-batches than the stream has rows"
                )
            place = replace(part.following, part=place.part)

    def remove_before(self, part: int) -> None:
        """Removes the parts before this one from the disk."""
        for folder in self.folder.glob("*"):
            if folder.is_dir() and folder.name.isdigit() and int(folder.name) < part:
                shutil.rmtree(folder, ignore_errors=True)

    def _stored(self, place: Place) -> Part | None:
        """Returns a part that is on disk whole."""
        folder = self.folder / f"{place.part:08d}"
        try:
            found = json.loads((folder / _PLACE).read_text(encoding="utf-8"))
            if found["key"] != self.corpus.key or Place(**found["place"]) != place:
                return None
            return Part(EncodedCorpus(folder), place, Place(**found["following"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _encoded(self, place: Place) -> Part:
        folder = self.folder / f"{place.part:08d}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        written, reading = ShardsWritten(folder), _Reading(place)
        for shard in cut_into_shards(self._pairs(reading), folder, "00"):
            written.add(self._encoder(shard))
        written.finish({self.corpus.name: written.pairs}, self.corpus.tokenizers)
        state = {"key": self.corpus.key, "place": asdict(place), "following": asdict(reading.following)}
        (folder / _PLACE).write_text(json.dumps(state), encoding="utf-8")
        return Part(EncodedCorpus(folder), place, reading.following)

    def _pairs(self, reading: "_Reading") -> Iterator[Pair]:
        """Yields the pairs of a part, and notes where the next one begins."""
        place, number = reading.place, 0
        name = f"{place_of(self.corpus.config, self.sides)}, strand {self.number + 1} of {self.count}, "
        batches = self._from(place)
        while number < PART_ROWS:
            columns = next(batches, None)
            if columns is None:
                reading.following = Place(place.part + 1, place.round + 1)
                return
            for values in zip(*columns.values(), strict=True):
                number += 1
                row = dict(zip(columns, values, strict=True))
                yield row_pair(row, self.sides, f"{name}pass {place.round + 1}, row {place.row + number}")
        state = json.loads(json.dumps(self._rows.state_dict()))
        reading.following = Place(place.part + 1, place.round, place.row + number, state=state)
        self._open = reading.following, batches

    def _from(self, place: Place) -> Iterator[dict[str, list]]:
        """Returns the rows from a place on: those that are being read, if they stand there."""
        at, self._open = self._open, None
        if at is not None and (at[0].round, at[0].row) == (place.round, place.row):
            return at[1]
        if self._rows is None:
            from datasets.distributed import split_dataset_by_node

            rows = load_rows(self.corpus.config, self.sides)
            self._rows = split_dataset_by_node(rows, self.number, self.count)
        self._rows.set_epoch(place.round)  # by which the library may change the order of the files
        self._rows.load_state_dict(place.state)
        return stream_batches(self._rows, self.corpus.config, self.sides)


@dataclass
class _Reading:
    """What reading a part finds out."""

    place: Place
    following: Place = Place()
