"""Parquet and Arrow files (Feather 2 is one of those), of which one row group or batch is in memory at a time."""

from collections.abc import Iterable, Iterator
from typing import BinaryIO

import pyarrow as pa

from mt.data.files import reason
from mt.data.readers.rows import missing_field
from mt.data.sides import Pair, Sides, one_line

_ROWS = 10_000  # made into texts at once
_FILE_MAGIC, _FEATHER_1_MAGIC = b"ARROW1", b"FEA1"
# MemoryError: a size that is damaged; UnicodeDecodeError: names of columns; the others: what describes the columns
_DAMAGED = (pa.ArrowException, OSError, MemoryError, UnicodeDecodeError, KeyError, TypeError)


def parquet_pairs(file: BinaryIO, name: str, sides: Sides) -> Iterator[Pair]:
    """Yields both columns of each row. Raises ValueError with file and row for what is no text."""
    import pyarrow.parquet

    try:
        table = pyarrow.parquet.ParquetFile(file)
        schema = table.schema_arrow
        columns = sorted({_place(schema, field, setting, name)[0] for field, setting in _wanted(sides)})
        batches = table.iter_batches(_ROWS, columns=[schema.names[column] for column in columns])
    except _DAMAGED as error:
        raise _damaged(name, 0, error) from error
    yield from _pairs(batches, name, sides)


def arrow_pairs(file: BinaryIO, name: str, sides: Sides) -> Iterator[Pair]:
    """Yields both columns of each row, of a file or a stream in Arrow's format, as `parquet_pairs` does."""
    magic = file.read(len(_FILE_MAGIC))
    if magic.startswith(_FEATHER_1_MAGIC):
        raise ValueError(f"{name}: is a Feather file of version 1: write it anew with pyarrow.feather.write_feather")
    file.seek(0)
    try:
        if magic == _FILE_MAGIC:
            table = pa.ipc.open_file(file)
            batches: Iterable[pa.RecordBatch] = map(table.get_batch, range(table.num_record_batches))
        else:
            batches = pa.ipc.open_stream(file)
    except _DAMAGED as error:
        raise _damaged(name, 0, error) from error
    yield from _pairs(batches, name, sides)


def _pairs(batches: Iterable[pa.RecordBatch], name: str, sides: Sides) -> Iterator[Pair]:
    first, batches = 1, iter(batches)  # row
    while True:
        try:
            batch = next(batches, None)
            if batch is None:
                return
            columns = [_column(batch, field, setting, name) for field, setting in _wanted(sides)]
            for column in columns:
                column.validate(full=True)  # offsets of a damaged file would lead anywhere
        except _DAMAGED as error:
            raise _damaged(name, first, error) from error
        for start in range(0, batch.num_rows, _ROWS):
            texts = [column.slice(start, _ROWS).to_pylist() for column in columns]
            for row, (source, target) in enumerate(zip(*texts, strict=True), start=first + start):
                if source is None or target is None:
                    field = sides.fields[0 if source is None else 1]
                    raise ValueError(f"{name}, row {row}: field {field!r} must be text, got null")
                yield one_line(source), one_line(target)
        first += batch.num_rows


def _wanted(sides: Sides) -> list[tuple[str, str]]:
    """Returns the field of each side and the setting that names it."""
    return list(zip(sides.fields, (f"{sides.name}.source_field", f"{sides.name}.target_field"), strict=True))


def _place(schema: pa.Schema, field: str, setting: str, name: str) -> tuple[int, int | None]:
    """Returns the number of the field's column, and its number inside the column "translation", where it is there."""
    if schema.names.count(field) > 1:
        raise ValueError(f"{name}: has two columns {field!r}: rename one, or set {setting}")
    if field in schema.names:
        return schema.names.index(field), None
    if "translation" not in schema.names:
        raise missing_field(field, schema.names, setting, name)
    column = schema.names.index("translation")
    kind = schema.field(column).type
    inner = [kind.field(i).name for i in range(kind.num_fields)] if pa.types.is_struct(kind) else []
    if field not in inner:
        raise missing_field(field, inner or schema.names, setting, name)
    return column, inner.index(field)


def _column(batch: pa.RecordBatch, field: str, setting: str, name: str) -> pa.Array:
    """Returns the column of texts of a field. Raises ValueError where there is none."""
    number, inner = _place(batch.schema, field, setting, name)
    column = batch.column(number)
    if inner is not None:
        column.validate(full=True)
        column = column.flatten()[inner]
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)):
        raise ValueError(f"{name}: field {field!r} must be text, it is {' '.join(str(kind)[:80].split())}")
    return column


def _damaged(name: str, row: int, error: Exception) -> ValueError:
    place = f"{name}, from row {row} on" if row > 1 else name
    return ValueError(f"{place}: is damaged, or of another format ({reason(error)})")
