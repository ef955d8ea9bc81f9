"""Shards of an encoded corpus: what is made of some ten thousand consecutive pairs, in one process, as one Arrow file.

What a shard holds depends on its pairs and on the settings alone, so that any process may make it, and one that is
there need not be made again. NAME.json, which is written last, says that NAME.arrow is whole.
"""

import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from mt.config import CleaningConfig, DataConfig
from mt.data.clean import Cleaner, Pair, in_batches, token_reasons
from mt.data.flat import FlatEncoder, ids_dtype
from mt.tokenizer import TokenizerPair

_SHARD_BATCHES = 10  # of up to 10,000 pairs
_SHARD_BYTES = 1 << 25  # of text; where texts are long, a shard ends with the batch that reaches them
IDS, TEXTS = ("source_ids", "target_ids"), ("source", "target")


@dataclass(frozen=True)
class ShardRecord:
    """What became of a shard's pairs."""

    name: str  # of the file
    batches: int  # that went into it
    pairs: int  # that are in it
    bytes: int  # of the Arrow file
    dropped: Counter[str] = field(default_factory=Counter)
    repaired: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True)
class Shard:
    """The pairs that go into a file, as UTF-8 text in batches: the sources of each, one a line, and the targets.

    Of a shard that was made before, there are none.
    """

    path: Path  # without suffix
    batches: list[tuple[bytes, bytes]]

    @property
    def corpus(self) -> int:
        """The number of the corpus, with which its name begins."""
        return int(self.path.name.partition("-")[0])


class ShardEncoder:
    """Makes shards; can be pickled, so that processes make them side by side.

    cleaning: the settings by which pairs are dropped for their tokens; None: every pair stays. clean: whether pairs go
    through the steps of data.cleaning before.
    """

    def __init__(
        self, data: DataConfig, tokenizers: TokenizerPair, cleaning: CleaningConfig | None, clean: bool
    ) -> None:
        self.data, self.tokenizers, self.cleaning, self.clean = data, tokenizers, cleaning, clean
        self.threads = 1  # of SentencePiece
        self._cleaner: Cleaner | None = None  # made once, in the process that uses it
        self._encoders: list[FlatEncoder] = []

    def __call__(self, shard: Shard) -> ShardRecord:
        """Returns the record of a shard, made now or before. Raises OSError where it cannot be written."""
        return finished(shard.path) or self._make(shard)

    def _make(self, shard: Shard) -> ShardRecord:
        dropped: Counter[str] = Counter()
        repaired: Counter[str] = Counter()
        if self.clean:
            self._cleaner = self._cleaner or Cleaner(self.data)
            self._cleaner.dropped, self._cleaner.repaired = dropped, repaired
        kept = 0
        arrow, part = shard.path.with_suffix(".arrow"), shard.path.with_name(f"{shard.path.name}.{os.getpid()}.part")
        try:
            with open(part, "wb") as file:
                with pa.ipc.new_file(file, schema(ids_dtype(self.tokenizers))) as writer:
                    for texts in shard.batches:
                        rows = self._rows(texts, dropped)
                        kept += rows.num_rows
                        if rows.num_rows:
                            writer.write_batch(rows)
                file.flush()
                os.fsync(file.fileno())
            record = ShardRecord(shard.path.name, len(shard.batches), kept, part.stat().st_size, dropped, repaired)
            os.replace(part, arrow)
            part.write_text(json.dumps(vars(record)), encoding="utf-8")
            os.replace(part, shard.path.with_suffix(".json"))
        finally:
            part.unlink(missing_ok=True)
        return record

    def _rows(self, texts: tuple[bytes, bytes], dropped: Counter[str]) -> pa.RecordBatch:
        sources, targets = (side.decode().split("\n") for side in texts)
        if self._cleaner is not None:
            pairs = list(self._cleaner.clean(zip(sources, targets, strict=True)))
            sources, targets = [source for source, _ in pairs], [target for _, target in pairs]
        source_encoder, target_encoder = self._both()
        ids = _ids_column(*source_encoder.encode(sources)), _ids_column(*target_encoder.encode(targets))
        columns = [*ids, _text_column(sources), _text_column(targets)]
        rows = pa.record_batch(columns, schema=schema(ids_dtype(self.tokenizers)))
        return rows if self.cleaning is None else _fitting(rows, self.cleaning, dropped)

    def _both(self) -> list[FlatEncoder]:
        if not self._encoders:
            both, dtype = self.tokenizers, ids_dtype(self.tokenizers)
            source = FlatEncoder(both.source, dtype, self.threads)
            self._encoders = [source, source if both.joint else FlatEncoder(both.target, dtype, self.threads)]
        return self._encoders

    def __reduce__(self) -> tuple[type["ShardEncoder"], tuple]:
        return ShardEncoder, (self.data, self.tokenizers, self.cleaning, self.clean)


class ShardEncoders:
    """Makes the shards of several corpora, each by the encoder of its corpus; can be pickled."""

    def __init__(self, encoders: list[ShardEncoder]) -> None:
        self._encoders = encoders

    def __call__(self, shard: Shard) -> ShardRecord:
        """Returns the record of a shard, as its encoder does."""
        return self._encoders[shard.corpus](shard)

    def use_threads(self, count: int) -> None:
        """Lets SentencePiece take so many threads."""
        for encoder in self._encoders:
            encoder.threads = count


class ContentHash:
    """A fingerprint of pairs and their tokens that is the same however they are stored or cut into batches."""

    def __init__(self) -> None:
        self._hashes = [hashlib.sha256() for _ in range(2 * len(IDS + TEXTS))]  # of each column: lengths, then values

    def add(self, rows: pa.RecordBatch) -> None:
        """Takes the pairs into account, which follow those of the calls before."""
        for column, lengths, values in zip(rows.columns, self._hashes[::2], self._hashes[1::2], strict=True):
            bounds = offsets(column)
            lengths.update(np.diff(bounds))
            first, end = int(bounds[0]), int(bounds[-1])
            if pa.types.is_list(column.type):
                values.update(ids_of(column)[first:end].astype(np.int32))
            else:
                values.update(memoryview(column.buffers()[2] or b"")[first:end])

    def hexdigest(self) -> str:
        """Returns a SHA-256 hex digest."""
        return hashlib.sha256(b"".join(part.digest() for part in self._hashes)).hexdigest()


def cut_into_shards(pairs: Iterable[Pair], folder: Path, name: str) -> Iterator[Shard]:
    """Yields the shards of a corpus, which begin with `name`, as long as there are pairs.

    Where each begins is the same whether those before it were made already or not.
    """
    batches, number = in_batches(pairs), 0
    for first in batches:
        path = folder / f"{name}-{number:05d}"
        record = finished(path)
        if record is None:
            taken, size = [_joined(first)], 0
            while True:
                size += len(taken[-1][0]) + len(taken[-1][1])
                if len(taken) == _SHARD_BATCHES or size >= _SHARD_BYTES or (batch := next(batches, None)) is None:
                    break
                taken.append(_joined(batch))
            yield Shard(path, taken)
        else:
            for _ in range(record.batches - 1):
                next(batches)
            yield Shard(path, [])
        number += 1


def finished(path: Path) -> ShardRecord | None:
    """Returns the record of a shard that is whole, None where there is none."""
    try:
        found = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
        counts = {name: Counter(found.pop(name)) for name in ("dropped", "repaired")}
        record = ShardRecord(**found, **counts)
        return record if path.with_suffix(".arrow").stat().st_size == record.bytes else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def schema(dtype: np.dtype) -> pa.Schema:
    """Returns the columns of a shard, with ids of that type."""
    ids, text = pa.list_(pa.from_numpy_dtype(dtype)), pa.string()
    return pa.schema([*((name, ids) for name in IDS), *((name, text) for name in TEXTS)])


def offsets(column: pa.Array) -> np.ndarray:
    """Returns where each list or text begins, and the end: int32 [rows + 1]. (Arrow's own to_numpy imports pandas.)"""
    return np.frombuffer(column.buffers()[1], np.int32, len(column) + 1, 4 * column.offset)


def ids_of(column: pa.ListArray) -> np.ndarray:
    """Returns the ids that the offsets of a column count."""
    buffer = column.values.buffers()[1]
    dtype = np.dtype(column.type.value_type.to_pandas_dtype())
    return np.empty(0, dtype) if buffer is None else np.frombuffer(buffer, dtype)


def _joined(batch: list[Pair]) -> tuple[bytes, bytes]:
    """Returns both sides, one text a line: no text has a line break, whatever it was read from."""
    return "\n".join([source for source, _ in batch]).encode(), "\n".join([target for _, target in batch]).encode()


def _ids_column(ids: np.ndarray, lengths: np.ndarray) -> pa.ListArray:
    return pa.ListArray.from_arrays(pa.array(_bounds(lengths)), pa.array(ids))


def _text_column(texts: list[str]) -> pa.StringArray:
    """Returns what pa.array(texts) does, in a tenth of the time."""
    encoded = [text.encode() for text in texts]
    bounds = _bounds(np.fromiter(map(len, encoded), np.int64, len(encoded)))
    return pa.StringArray.from_buffers(len(texts), pa.py_buffer(bounds), pa.py_buffer(b"".join(encoded)))


def _bounds(lengths: np.ndarray) -> np.ndarray:
    bounds = np.zeros(len(lengths) + 1, dtype=np.int32)
    np.cumsum(lengths, out=bounds[1:])
    return bounds


def _fitting(rows: pa.RecordBatch, cleaning: CleaningConfig, dropped: Counter[str]) -> pa.RecordBatch:
    """Returns the rows that fit by their tokens; counts the first reason of the others."""
    source, target = (np.diff(offsets(rows.column(name))) for name in IDS)
    fits = np.ones(len(source), dtype=bool)
    for reason, drops in token_reasons(source, target, cleaning).items():
        if count := int(drops.sum()):
            dropped[reason] += count
        fits &= ~drops
    return rows if fits.all() else rows.filter(pa.array(fits))
