"""A corpus tokenised once and kept as memory-mapped Arrow, so that neither loading nor workers cost memory.

A cache folder holds pairs.arrow (columns source_ids and target_ids: list<int32>, source and target: string) and
metadata.json. It is written under another name and renamed, so that a folder of the right name is complete.
"""

import hashlib
import itertools
import json
import os
import shutil
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
from filelock import FileLock

from mt.config import CleaningConfig, CorpusConfig, DataConfig
from mt.data.clean import Cleaner, Pair, clean_corpora, in_batches, nothing_left, outer_versions, token_reasons
from mt.data.corpus import corpus_fingerprint, read_corpora
from mt.data.duplicates import HELD_OUT
from mt.data.own_settings import own_settings
from mt.tokenizer import TokenizerPair

DEFAULT_CACHE_DIR = "data/cache"
FORMAT_VERSION = 3  # raise it when the files or what cleaning and encoding do to a pair change
_THREADS = 2
_SCHEMA = pa.schema(
    [
        ("source_ids", pa.list_(pa.int32())),
        ("target_ids", pa.list_(pa.int32())),
        ("source", pa.string()),
        ("target", pa.string()),
    ]
)


class EncodedCorpus:
    """The pairs of a cache folder, by index, without bos and eos. Pickles as its path: each process maps the file anew.

    Raises ValueError where the folder is not a complete cache of this format version.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            metadata = json.loads((folder / "metadata.json").read_text(encoding="utf-8"))
            if metadata["format_version"] != FORMAT_VERSION:
                raise ValueError(f"format version {metadata['format_version']}, must be {FORMAT_VERSION}")
            self._buffer = pa.memory_map(str(folder / "pairs.arrow")).read_buffer()
            file = pa.ipc.open_file(self._buffer)
            self._batches = [file.get_batch(i) for i in range(file.num_record_batches)]
            self._first_pairs = np.cumsum([0] + [batch.num_rows for batch in self._batches])  # of each record batch
            corpus_pairs = list(metadata["corpus_pairs"])
            if self._first_pairs[-1] != sum(corpus_pairs):
                raise ValueError(f"{self._first_pairs[-1]} pairs, must be {sum(corpus_pairs)}")
        except (OSError, ValueError, KeyError, TypeError) as error:  # ArrowInvalid is a ValueError
            raise ValueError(f"{folder}: not a complete encoded corpus ({error}): delete it") from error
        self.metadata = metadata
        self.fingerprint: str = metadata["fingerprint"]
        self.corpus_pairs: list[int] = corpus_pairs  # of each corpus, one after the other
        self.counts: Counter[str] = Counter(metadata["dropped"])
        self.repaired: Counter[str] = Counter(metadata["repaired"])
        # the whole file as numbers, so that the tokens of any pairs are gathered in one go
        self.words = np.frombuffer(self._buffer, dtype=np.int32, count=self._buffer.size // 4)

    def __len__(self) -> int:
        return int(self._first_pairs[-1])

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
    def source_starts(self) -> np.ndarray:
        """Returns where the source tokens of each pair begin in `words`: int64 [pairs]."""
        return self._starts("source_ids")

    @cached_property
    def target_starts(self) -> np.ndarray:
        """Returns where the target tokens of each pair begin in `words`: int64 [pairs]."""
        return self._starts("target_ids")

    def source_ids(self, i: int) -> np.ndarray:
        """Returns the source ids of pair i: a read-only int32 view into the file, [source_lengths[i]]."""
        return self._view(i, self.source_starts, self.source_lengths)

    def target_ids(self, i: int) -> np.ndarray:
        """Returns the target ids of pair i: a read-only int32 view into the file, [target_lengths[i]]."""
        return self._view(i, self.target_starts, self.target_lengths)

    def texts(self, i: int) -> tuple[str, str]:
        """Returns the source and target strings of pair i."""
        self._check(i)
        batch = int(np.searchsorted(self._first_pairs, i, side="right")) - 1
        columns, row = self._batches[batch], i - int(self._first_pairs[batch])
        return columns.column("source")[row].as_py(), columns.column("target")[row].as_py()

    def _view(self, i: int, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        self._check(i)
        return self.words[starts[i] : starts[i] + lengths[i]]

    def _check(self, i: int) -> None:
        if not 0 <= i < len(self):
            raise IndexError(f"pair {i} of {len(self)}")

    def _lengths(self, column: str) -> np.ndarray:
        lengths = [np.diff(_offsets(batch.column(column))) for batch in self._batches]
        return np.concatenate([np.empty(0, dtype=np.int32), *lengths])

    def _starts(self, column: str) -> np.ndarray:
        starts = [np.empty(0, dtype=np.int64)]
        for batch in self._batches:
            ids = batch.column(column)
            place = ids.values.buffers()[1]
            first = (place.address - self._buffer.address) // 4 if place is not None and place.size else 0
            starts.append(_offsets(ids)[:-1].astype(np.int64) + first)
        return np.concatenate(starts)


def gather(words: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Returns the given spans of `words`, one after the other: [sum of lengths]."""
    ends = np.cumsum(lengths, dtype=np.int64)
    total = int(ends[-1]) if len(ends) else 0
    return words[np.arange(total) + np.repeat(starts - (ends - lengths), lengths)]


def _offsets(column: pa.ListArray) -> np.ndarray:
    """Returns where each list begins, and the end: int32 [rows + 1]. (Arrow's own to_numpy imports pandas.)"""
    return np.frombuffer(column.buffers()[1], np.int32, len(column) + 1, 4 * column.offset)


def encode_corpus(
    corpora: dict[str, CorpusConfig],
    data: DataConfig,
    tokenizers: TokenizerPair,
    clean: bool = True,
    split: str = "train",
    progress: Callable[[int], None] | None = None,
) -> EncodedCorpus:
    """Returns the pairs of all corpora in order, from the cache in data.cache_dir or encoded now.

    With `clean` (training) pairs are dropped by data.cleaning; without it (validation, test) every
    pair stays, so that pair i is line i. `split` stands in messages. `progress` gets the number of pairs done so far.
    Processes that ask for the same corpus at once encode it once. Raises ValueError for bad corpora and where no pair
    is left.
    """
    if not corpora:
        raise ValueError(f"data.{split}: no corpus given: set data.{split}.main.source and .target, .path or .dataset")
    key = _cache_key(corpora, data, tokenizers, clean, split)
    cache_dir = Path(data.cache_dir or DEFAULT_CACHE_DIR)
    try:
        cache_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"data.cache_dir={cache_dir}: cannot be created ({error.strerror})") from error
    folder = cache_dir / key
    with FileLock(cache_dir / f"{key}.lock"):
        if folder.exists():
            try:
                return EncodedCorpus(folder)
            except ValueError:  # broken or of an older version: built anew
                shutil.rmtree(folder)
        unfinished = cache_dir / f"{key}.unfinished"
        shutil.rmtree(unfinished, ignore_errors=True)  # of a process that was killed
        unfinished.mkdir()
        counts: Counter[str] = Counter()
        repaired: Counter[str] = Counter()
        try:
            cleaner = Cleaner(data) if clean else None
            if cleaner is not None:
                counts, repaired = cleaner.dropped, cleaner.repaired
            parts = _parts(corpora, data, cleaner, split, counts)
            kept, fingerprint = _write_pairs(unfinished, parts, tokenizers, counts, progress)
            if not any(kept):
                raise ValueError(nothing_left(split, counts))
            _write_metadata(unfinished, fingerprint, kept, counts, repaired, tokenizers)
            os.replace(unfinished, folder)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
        return EncodedCorpus(folder)


def _cache_key(
    corpora: dict[str, CorpusConfig], data: DataConfig, tokenizers: TokenizerPair, clean: bool, split: str
) -> str:
    """Returns a SHA-256 hex digest of all that the encoded pairs depend on."""
    parts = {
        "format_version": FORMAT_VERSION,
        "corpora": [corpus_fingerprint(corpus, data, f"data.{split}.{name}") for name, corpus in corpora.items()],
        "tokenizers": tokenizers.fingerprint,
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


def _parts(
    corpora: dict[str, CorpusConfig], data: DataConfig, cleaner: Cleaner | None, split: str, counts: Counter[str]
) -> Iterator[tuple[CleaningConfig | None, Iterator[Pair]]]:
    """Yields each corpus's pairs, cleaned where there is a cleaner, and its settings of cleaning."""
    for name, corpus in corpora.items():
        if cleaner is None:
            yield None, read_corpora({name: corpus}, data, split, counts)
        else:
            own = own_settings(data, corpus, f"data.{split}.{name}")
            yield own.cleaning, clean_corpora({name: corpus}, data, cleaner, split)


def _encoded(batches: Iterable[list[tuple[str, str]]], tokenizers: TokenizerPair) -> Iterator[pa.RecordBatch]:
    """Yields the rows of each batch in order, encoded by threads while the next batches are read and cleaned.

    Two threads, so that SentencePiece, which holds no lock of Python's, goes on while the other's lists become columns.
    """
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="encode") as threads:
        jobs: deque[Future[pa.RecordBatch]] = deque()
        for batch in batches:
            jobs.append(threads.submit(_encode_batch, batch, tokenizers))
            if len(jobs) > _THREADS:
                yield jobs.popleft().result()
        while jobs:
            yield jobs.popleft().result()


def _encode_batch(batch: list[tuple[str, str]], tokenizers: TokenizerPair) -> pa.RecordBatch:
    sources, targets = [source for source, _ in batch], [target for _, target in batch]
    ids = _ids_column(tokenizers.source.encode(sources)), _ids_column(tokenizers.target.encode(targets))
    return pa.record_batch([*ids, pa.array(sources, pa.string()), pa.array(targets, pa.string())], schema=_SCHEMA)


def _ids_column(ids: list[list[int]]) -> pa.ListArray:
    offsets = np.zeros(len(ids) + 1, dtype=np.int32)
    np.cumsum(np.fromiter(map(len, ids), np.int32, len(ids)), out=offsets[1:])
    words = np.fromiter(itertools.chain.from_iterable(ids), np.int32, offsets[-1])
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(words))  # ten times as fast as pa.array(ids)


def _write_pairs(
    folder: Path,
    parts: Iterable[tuple[CleaningConfig | None, Iterator[Pair]]],
    tokenizers: TokenizerPair,
    counts: Counter[str],
    progress: Callable[[int], None] | None,
) -> tuple[list[int], str]:
    """Writes pairs.arrow and returns the number of pairs in it of each part, and the fingerprint of all."""
    kept, content = list[int](), _Content()
    with open(folder / "pairs.arrow", "wb") as file:
        with pa.ipc.new_file(file, _SCHEMA) as writer:
            for cleaning, pairs in parts:
                kept.append(0)
                for rows in _encoded(in_batches(pairs), tokenizers):
                    if cleaning is not None:
                        rows = _fitting(rows, cleaning, counts)
                    if rows.num_rows:
                        writer.write_batch(rows)
                        content.add(rows)
                    kept[-1] += rows.num_rows
                    if progress is not None:
                        progress(sum(kept) + counts.total())
        file.flush()
        os.fsync(file.fileno())
    return kept, content.fingerprint()


class _Content:
    """A fingerprint of pairs and their tokens that is the same however they are stored or cut into batches."""

    def __init__(self) -> None:
        self._hashes = [hashlib.sha256() for _ in range(2 * len(_SCHEMA))]  # of each column: lengths, then values

    def add(self, rows: pa.RecordBatch) -> None:
        for column, lengths, values in zip(rows.columns, self._hashes[::2], self._hashes[1::2], strict=True):
            offsets = _offsets(column)
            of_ids = pa.types.is_list(column.type)
            buffer = (column.values.buffers()[1] if of_ids else column.buffers()[2]) or b""
            size = 4 if of_ids else 1  # bytes of a value
            lengths.update(np.diff(offsets))
            values.update(memoryview(buffer)[size * int(offsets[0]) : size * int(offsets[-1])])

    def fingerprint(self) -> str:
        """Returns a SHA-256 hex digest."""
        return hashlib.sha256(b"".join(part.digest() for part in self._hashes)).hexdigest()


def _fitting(rows: pa.RecordBatch, cleaning: CleaningConfig, counts: Counter[str]) -> pa.RecordBatch:
    """Returns the rows that fit by their tokens; counts the first reason of the others."""
    source, target = (np.diff(_offsets(rows.column(name))) for name in ("source_ids", "target_ids"))
    fits = np.ones(len(source), dtype=bool)
    for reason, drops in token_reasons(source, target, cleaning).items():
        if dropped := int(drops.sum()):
            counts[reason] += dropped
        fits &= ~drops
    return rows if fits.all() else rows.filter(pa.array(fits))


def _write_metadata(
    folder: Path,
    fingerprint: str,
    corpus_pairs: list[int],
    counts: Counter[str],
    repaired: Counter[str],
    tokenizers: TokenizerPair,
) -> None:
    metadata = {
        "format_version": FORMAT_VERSION,
        "fingerprint": fingerprint,
        "tokenizer_fingerprint": tokenizers.fingerprint,
        "pairs": sum(corpus_pairs),
        "corpus_pairs": corpus_pairs,
        "dropped": dict(counts),
        "repaired": dict(repaired),
    }
    with open(folder / "metadata.json", "w", encoding="utf-8", newline="") as file:
        json.dump(metadata, file, ensure_ascii=False, indent=2)
        file.flush()
        os.fsync(file.fileno())
