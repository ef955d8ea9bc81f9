"""A corpus tokenised once and kept as memory-mapped Arrow, so that neither loading nor workers cost memory.

A cache folder holds shards (columns source_ids and target_ids: lists of uint16, or of int32 for large vocabularies;
source and target: strings) and metadata.json. It is written under another name and renamed, so that a folder of the
right name is complete.
"""

import hashlib
import itertools
import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
from filelock import FileLock

from mt.config import CorpusConfig, DataConfig
from mt.data.clean import Cleaner, nothing_left, outer_versions, scored_pairs
from mt.data.corpus import corpus_fingerprint, read_corpus
from mt.data.duplicates import HELD_OUT
from mt.data.flat import ids_dtype
from mt.data.own_settings import own_settings
from mt.data.shards import ContentHash, Shard, ShardEncoder, ShardEncoders, ShardRecord, cut_into_shards, offsets
from mt.processes import Processes, available_cores
from mt.tokenizer import TokenizerPair

DEFAULT_CACHE_DIR = "data/cache"
FORMAT_VERSION = 5  # raise it when the files or what cleaning and encoding do to a pair change


class EncodedCorpus:
    """The pairs of a cache folder, by index, without bos and eos. Pickles as its path: each process maps anew.

    Raises ValueError where the folder is not a complete cache of this format version.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            metadata = json.loads((folder / "metadata.json").read_text(encoding="utf-8"))
            if metadata["format_version"] != FORMAT_VERSION:
                raise ValueError(f"format version {metadata['format_version']}, must be {FORMAT_VERSION}")
            self._buffers = [_mapped(folder / f"{name}.arrow") for name in metadata["shards"]]
            shards = [_batches(buffer) for buffer in self._buffers]
            self._batches = list(itertools.chain.from_iterable(shards))
            self._batch_shards = [number for number, batches in enumerate(shards) for _ in batches]
            self._first_pairs = np.cumsum([0] + [batch.num_rows for batch in self._batches])  # of each record batch
            sizes = [sum(batch.num_rows for batch in batches) for batches in shards]
            self._shard_ends = np.cumsum(sizes, dtype=np.int64)  # in pairs
            if sizes != list(metadata["shards"].values()):
                raise ValueError(f"shards of {sizes} pairs, must be {list(metadata['shards'].values())}")
            corpus_pairs = list(metadata["corpora"].values())
            if sum(corpus_pairs) != sum(sizes):
                raise ValueError(f"corpora of {corpus_pairs} pairs, {sum(sizes)} in all shards")
            dtype = np.dtype(metadata["ids_dtype"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:  # ArrowInvalid is a ValueError
            raise ValueError(f"{folder}: not a complete encoded corpus ({error}): delete it") from error
        self.metadata = metadata
        self.fingerprint: str = metadata["fingerprint"]
        self.corpus_pairs: list[int] = corpus_pairs  # of each corpus, one after the other
        self.counts: Counter[str] = Counter(metadata["dropped"])
        self.repaired: Counter[str] = Counter(metadata["repaired"])
        # each file as numbers, so that a pair's tokens are a slice
        self._words = [np.frombuffer(buffer, dtype, buffer.size // dtype.itemsize) for buffer in self._buffers]

    def __len__(self) -> int:
        return int(self._first_pairs[-1])

    def verify(self) -> None:
        """Raises ValueError where the pairs on the disk are not those that were written."""
        content = ContentHash()
        try:
            for rows in self._batches:
                content.add(rows)
        except (IndexError, ValueError, TypeError, pa.ArrowException) as error:
            raise ValueError(f"{self.folder}: damaged ({error}): delete it") from error
        if content.hexdigest() != self.fingerprint:
            raise ValueError(f"{self.folder}: damaged (its content is not what was written): delete it")

    def __reduce__(self) -> tuple[type["EncodedCorpus"], tuple[Path]]:
        return EncodedCorpus, (self.folder,)

    @cached_property
    def source_lengths(self) -> np.ndarray:
        """Returns the number of source tokens of each pair, int32 [pairs]."""
        return self._lengths("source_ids")

    @cached_property
    def target_lengths(self) -> np.ndarray:
        """Returns the number of target tokens of each pair, int32 [pairs]."""
        return self._lengths("target_ids")

    @cached_property
    def _source_starts(self) -> np.ndarray:
        return self._starts("source_ids")

    @cached_property
    def _target_starts(self) -> np.ndarray:
        return self._starts("target_ids")

    def source_ids(self, i: int) -> np.ndarray:
        """Returns the source ids of pair i: a read-only view into the file, uint16 or int32 [source_lengths[i]]."""
        return self._view(i, self._source_starts, self.source_lengths)

    def target_ids(self, i: int) -> np.ndarray:
        """Returns the target ids of pair i: a read-only view into the file, uint16 or int32 [target_lengths[i]]."""
        return self._view(i, self._target_starts, self.target_lengths)

    def source_tokens(self, pairs: np.ndarray) -> np.ndarray:
        """Returns the source ids of these pairs, one after the other: [sum of source_lengths[pairs]]."""
        return self._gathered(pairs, self._source_starts, self.source_lengths)

    def target_tokens(self, pairs: np.ndarray) -> np.ndarray:
        """Returns the target ids of these pairs, one after the other: [sum of target_lengths[pairs]]."""
        return self._gathered(pairs, self._target_starts, self.target_lengths)

    def texts(self, i: int) -> tuple[str, str]:
        """Returns the source and target strings of pair i."""
        self._check(i)
        batch = int(np.searchsorted(self._first_pairs, i, side="right")) - 1
        columns, row = self._batches[batch], i - int(self._first_pairs[batch])
        return columns.column("source")[row].as_py(), columns.column("target")[row].as_py()

    def _view(self, i: int, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        self._check(i)
        words = self._words[int(np.searchsorted(self._shard_ends, i, side="right"))]
        return words[starts[i] : starts[i] + lengths[i]]

    def _gathered(self, pairs: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        if not len(pairs):
            return np.empty(0, dtype=np.int32)
        shards = np.searchsorted(self._shard_ends, pairs, side="right").tolist()
        begins, words = starts[pairs], self._words
        spans = zip(shards, begins.tolist(), (begins + lengths[pairs]).tolist(), strict=True)
        return np.concatenate([words[shard][begin:end] for shard, begin, end in spans])

    def _check(self, i: int) -> None:
        if not 0 <= i < len(self):
            raise IndexError(f"pair {i} of {len(self)}")

    def _lengths(self, column: str) -> np.ndarray:
        lengths = [np.diff(offsets(batch.column(column))) for batch in self._batches]
        return np.concatenate([np.empty(0, dtype=np.int32), *lengths])

    def _starts(self, column: str) -> np.ndarray:
        """Returns where the tokens of each pair begin in the words of its shard: int32 [pairs]."""
        starts = [np.empty(0, dtype=np.int32)]
        for batch, shard in zip(self._batches, self._batch_shards, strict=True):
            ids, words = batch.column(column), self._words[shard]
            place = ids.values.buffers()[1]
            address = self._buffers[shard].address
            first = (place.address - address) // words.itemsize if place is not None and place.size else 0
            starts.append(offsets(ids)[:-1] + np.int32(first))
        return np.concatenate(starts)


def _mapped(path: Path) -> pa.Buffer:
    with pa.memory_map(str(path)) as file:  # closed, so that many shards do not use up the files a process may open
        return file.read_buffer()


def _batches(buffer: pa.Buffer) -> list[pa.RecordBatch]:
    file = pa.ipc.open_file(buffer)
    return [file.get_batch(i) for i in range(file.num_record_batches)]


def gather(words: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Returns the given spans of `words`, one after the other: [sum of lengths]."""
    ends = np.cumsum(lengths, dtype=np.int64)
    total = int(ends[-1]) if len(ends) else 0
    return words[np.arange(total) + np.repeat(starts - (ends - lengths), lengths)]


def encode_corpus(
    corpora: dict[str, CorpusConfig],
    data: DataConfig,
    tokenizers: TokenizerPair,
    clean: bool = True,
    split: str = "train",
    progress: Callable[[int], None] | None = None,
    verify: bool = True,
) -> EncodedCorpus:
    """Returns the pairs of all corpora in order, from the cache in data.cache_dir or encoded now by data.processes.

    verify: what is in the cache is read whole, and where its content is not what was written, encoded anew.

    With `clean` (training) pairs are dropped by data.cleaning; without it (validation, test) every
    pair stays, so that pair i is line i. `split` stands in messages. `progress` gets the number of pairs done so far.
    Processes that ask for the same corpus at once encode it once; where one was killed, the next goes on with the
    shards that are not finished. Raises ValueError for bad corpora, where no pair is left, and for a full disk.
    """
    if not corpora:
        raise ValueError(f"data.{split}: no corpus given: set data.{split}.main.source and .target, .path or .dataset")
    key = cache_key(corpora, data, tokenizers.fingerprint, clean, split)
    cache_dir = Path(data.cache_dir or DEFAULT_CACHE_DIR)
    make_cache_dir(cache_dir)
    folder = cache_dir / key
    with FileLock(cache_dir / f"{key}.lock"):
        if folder.exists():
            try:
                corpus = EncodedCorpus(folder)
                if verify:
                    corpus.verify()
                return corpus
            except ValueError:  # broken or of an older version: built anew
                shutil.rmtree(folder)
        unfinished = cache_dir / f"{key}.unfinished"
        try:
            unfinished.mkdir(exist_ok=True)
            _remove_parts(unfinished)
            _write(unfinished, corpora, data, tokenizers, clean, split, progress)
            _remove_parts(unfinished)
            os.replace(unfinished, folder)
        except ChildProcessError as error:
            raise ValueError(f"{error}; finished shards stay, and the same command goes on from them") from error
        except OSError as error:
            _remove_parts(unfinished)
            raise ValueError(
                f"data.cache_dir={cache_dir}: cannot be written ({error.strerror or error}): make room, or set it "
                "elsewhere; finished shards stay, and the same command goes on from them"
            ) from error
        except ValueError:  # of the corpora, which have to change
            shutil.rmtree(unfinished, ignore_errors=True)
            raise
        return EncodedCorpus(folder)


def make_cache_dir(cache_dir: Path) -> None:
    """Returns when the folder is there. Raises ValueError where it cannot be made or written into."""
    try:
        cache_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(
            f"data.cache_dir={cache_dir}: cannot be created ({error.strerror}): choose a folder that can"
        ) from error
    if not os.access(cache_dir, os.W_OK | os.X_OK):
        raise ValueError(f"data.cache_dir={cache_dir}: may not be written into: choose another folder")


def _remove_parts(folder: Path) -> None:
    """Removes what processes that were killed, or had lost the one that started them, left behind."""
    for part in folder.glob("*.part"):
        part.unlink(missing_ok=True)


def cache_key(corpora: dict[str, CorpusConfig], data: DataConfig, tokenizers: str, clean: bool, split: str) -> str:
    """Returns a SHA-256 hex digest of all that the encoded pairs depend on. tokenizers: what tells them from others."""
    parts = {
        "format_version": FORMAT_VERSION,
        "corpora": [corpus_fingerprint(corpus, data, f"data.{split}.{name}") for name, corpus in corpora.items()],
        "tokenizers": tokenizers,
    }
    own = [own_settings(data, corpus, f"data.{split}.{name}") for name, corpus in corpora.items()] if clean else []
    parts["cleaning"] = [(asdict(one.cleaning), one.source_language, one.target_language) for one in own]
    parts["outer_versions"] = [outer_versions(one.cleaning) for one in own]
    if any(one.cleaning.drop_held_out != "none" for one in own):
        parts["held_out"] = [
            corpus_fingerprint(corpus, data, f"data.{split}.{name}")
            for split in HELD_OUT
            for name, corpus in getattr(data, split).items()
        ]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _write(
    folder: Path,
    corpora: dict[str, CorpusConfig],
    data: DataConfig,
    tokenizers: TokenizerPair,
    clean: bool,
    split: str,
    progress: Callable[[int], None] | None,
) -> None:
    """Writes the shards that are not there yet, and metadata.json in place of their records."""
    cleaner = Cleaner(data) if clean else None
    counts = Counter() if cleaner is None else cleaner.dropped
    places = {name: f"data.{split}.{name}" for name in corpora}
    cleaners = {name: cleaner and cleaner.of(corpus, places[name]) for name, corpus in corpora.items()}
    encoder = ShardEncoders([_encoder(own, data, tokenizers) for own in cleaners.values()])
    written = ShardsWritten(folder)
    for record in _encoded(_cut(folder, corpora, data, cleaners, places, counts), encoder, data.processes):
        written.add(record)
        if progress is not None:
            progress(written.pairs + written.dropped.total() + counts.total())
    written.dropped += counts
    if written.pairs == 0:
        raise ValueError(nothing_left(split, written.dropped))
    sizes = {name: _pairs_of(number, written.shards) for number, name in enumerate(corpora)}
    if cleaner is not None:
        written.repaired += cleaner.repaired  # by steps that were taken here
    written.finish(sizes, tokenizers)


class ShardsWritten:
    """Shards of a folder, in order, and what they hold together; `finish` makes an encoded corpus of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.shards: dict[str, int] = {}  # pairs by name
        self.dropped: Counter[str] = Counter()
        self.repaired: Counter[str] = Counter()
        self._content = ContentHash()

    @property
    def pairs(self) -> int:
        """Returns how many pairs all shards have."""
        return sum(self.shards.values())

    def add(self, record: ShardRecord) -> None:
        """Takes a shard into account, which is on disk whole."""
        self.shards[record.name] = record.pairs
        self.dropped, self.repaired = self.dropped + record.dropped, self.repaired + record.repaired
        for rows in _batches(_mapped(self.folder / f"{record.name}.arrow")):
            self._content.add(rows)

    def finish(self, corpora: dict[str, int], tokenizers: TokenizerPair) -> None:
        """Writes metadata.json, with which the folder is an encoded corpus, in place of the shards' records.

        corpora: pairs of each by its name.
        """
        metadata = {
            "format_version": FORMAT_VERSION,
            "fingerprint": self._content.hexdigest(),
            "tokenizer_fingerprint": tokenizers.fingerprint,
            "pairs": self.pairs,
            "corpora": corpora,
            "shards": self.shards,
            "ids_dtype": ids_dtype(tokenizers).name,
            "dropped": dict(self.dropped),
            "repaired": dict(self.repaired),
        }
        with open(self.folder / "metadata.json", "w", encoding="utf-8", newline="") as file:
            json.dump(metadata, file, ensure_ascii=False, indent=2)
            file.flush()
            os.fsync(file.fileno())
        for name in self.shards:
            (self.folder / f"{name}.json").unlink()


def _encoder(cleaner: Cleaner | None, data: DataConfig, tokenizers: TokenizerPair) -> ShardEncoder:
    """Returns what makes shards of a corpus, which takes the steps of its cleaner too.

    Steps that remember pairs have to see them all, in this process: they are taken before.
    """
    if cleaner is None:
        return ShardEncoder(data, tokenizers, None, clean=False)
    return ShardEncoder(cleaner.data, tokenizers, cleaner.data.cleaning, not cleaner.remembers)


def _cut(
    folder: Path,
    corpora: dict[str, CorpusConfig],
    data: DataConfig,
    cleaners: dict[str, Cleaner | None],
    places: dict[str, str],
    counts: Counter[str],
) -> Iterator[Shard]:
    """Yields the shards of all corpora; none has pairs of two. Of cleaners that remember, their pairs are clean."""
    for number, (name, corpus) in enumerate(corpora.items()):
        cleaner = cleaners[name]
        if cleaner is None:
            pairs = read_corpus(corpus, data, places[name], counts)
        else:
            pairs = scored_pairs(corpus, data, cleaner, places[name])
            pairs = cleaner.clean(pairs) if cleaner.remembers else pairs
        yield from cut_into_shards(pairs, folder, f"{number:02d}")


def _pairs_of(number: int, shards: dict[str, int]) -> int:
    return sum(pairs for name, pairs in shards.items() if int(name.partition("-")[0]) == number)


def _encoded(shards: Iterator[Shard], encoder: ShardEncoders, processes: int | None) -> Iterator[ShardRecord]:
    """Yields what became of the shards, in order. One alone is made here, since processes take a second to start."""
    first = list(itertools.islice(shards, 2))
    count = processes or available_cores()
    if count == 1 or len(first) < 2:
        encoder.use_threads(count)
        yield from map(encoder, _all(first, shards))
        return
    with Processes(encoder, count) as others:
        yield from others.map(_all(first, shards))


def _all(first: list[Shard], others: Iterator[Shard]) -> Iterator[Shard]:
    while first:
        yield first.pop(0)  # whose texts are not needed any longer than those of the others
    yield from others
