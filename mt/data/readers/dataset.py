"""Hugging Face datasets: by name on the hub or a local folder, whole and memory-mapped, or streamed."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mt.config import CorpusConfig
from mt.data.files import READ_ERRORS, file_digest, reason, suffixes
from mt.data.readers.rows import row_pair
from mt.data.sides import Pair, Sides

_ROWS = 1000  # read at once
_READERS = {".parquet": "parquet", ".jsonl": "json", ".csv": "csv", ".arrow": "arrow"}  # the library's, by suffix


def dataset_pairs(config: CorpusConfig, sides: Sides) -> Iterator[Pair]:
    """Yields both fields of each row. Raises ValueError for a dataset that cannot be loaded, or has other fields."""
    place, number = place_of(config, sides), 0
    for columns in _batches(config, sides):
        for values in zip(*columns.values(), strict=True):
            number += 1
            yield row_pair(dict(zip(columns, values, strict=True)), sides, f"{place}, row {number}")


def dataset_fingerprint(config: CorpusConfig, sides: Sides) -> str:
    """Returns what stands for the content of the split: the library's own fingerprint of its files."""
    if not config.streaming:
        return _loaded(config, sides)._fingerprint
    import datasets

    try:
        path, arguments = _arguments(config)
        builder = datasets.load_dataset_builder(path, **arguments)
    except _errors() as error:
        raise _cannot_load(config, sides, error) from error
    files = builder.config.data_files or {}
    data = files.get(config.split, [file for of_split in files.values() for file in of_split])
    if Path(config.dataset).is_dir() and all(Path(file).is_file() for file in data):
        # the library goes by the time of the last change, which a copy does not keep
        names = [os.path.relpath(file, config.dataset) for file in data]
        digests = [file_digest(f"{sides.name}.dataset", file) for file in data]
        return "\0".join(["streaming", "files", config.split, *names, *digests])
    origins = [f"{split}: {[*data, *data.origin_metadata]}" for split, data in files.items()]  # commits, or times
    return "\0".join(["streaming", builder.cache_dir, config.split, *origins])


def _batches(config: CorpusConfig, sides: Sides) -> Iterator[dict[str, list]]:
    rows = load_rows(config, sides)
    if not config.streaming:
        for start in range(0, len(rows), _ROWS):
            try:
                batch = rows[start : start + _ROWS]
            except _errors() as error:
                raise _cannot_load(config, sides, error, f", rows {start + 1} to {start + _ROWS}") from error
            yield batch
        return
    yield from stream_batches(rows, config, sides)


def stream_batches(rows: Any, config: CorpusConfig, sides: Sides) -> Iterator[dict[str, list]]:
    """Yields the rows of a datasets.IterableDataset from where it stands, 1000 at a time, as columns."""
    batches = rows.iter(_ROWS)
    while True:
        try:
            batch = next(batches, None)
        except _errors() as error:
            raise _cannot_load(config, sides, error) from error
        if batch is None:
            return
        yield batch


def load_rows(config: CorpusConfig, sides: Sides) -> Any:
    """Returns the datasets.Dataset or IterableDataset of a corpus, without the columns that nobody reads."""
    rows = _loaded(config, sides)
    names = rows.column_names or []  # of a stream they may be unknown
    if set(sides.fields) <= set(names) or "translation" in names:
        rows = rows.select_columns([name for name in names if name in (*sides.fields, "translation")])
    return rows


def _arguments(config: CorpusConfig) -> tuple[str, dict[str, Any]]:
    """Returns what datasets.load_dataset takes: a name or folder, or the reader of files at an address (s3://...)."""
    if "://" not in config.dataset:
        return config.dataset, {"name": config.dataset_config}
    suffix = suffixes(config.dataset)[0]
    if suffix not in _READERS:
        known = ", ".join(_READERS)
        raise ValueError(f"unknown format {suffix or '(no extension)'}; of files at an address, known: {known}")
    return _READERS[suffix], {"data_files": {config.split: config.dataset}}


def _loaded(config: CorpusConfig, sides: Sides) -> Any:
    """Returns the datasets.Dataset of a corpus, or the IterableDataset, of which nothing is known to be there."""
    import datasets

    setting = f"{sides.name}.dataset={config.dataset}"
    folder = Path(config.dataset)
    for file in folder.rglob("*") if folder.is_dir() else ():
        if ".tsv" in (suffix.lower() for suffix in file.suffixes):  # read as CSV, where quotation marks swallow lines
            raise ValueError(f"{setting}: holds {file.name}, which datasets cannot read safely: set path to it instead")
    try:
        if (folder / "state.json").exists() or (folder / "dataset_dict.json").exists():
            if config.streaming:
                raise ValueError("streaming=true has no meaning for a saved folder, which is never read whole")
            loaded = datasets.load_from_disk(config.dataset)
            if isinstance(loaded, datasets.DatasetDict):
                if config.split not in loaded:
                    raise ValueError(f"no split {config.split}; there are {', '.join(loaded)}")
                loaded = loaded[config.split]
        else:
            path, arguments = _arguments(config)
            loaded = datasets.load_dataset(path, **arguments, split=config.split, streaming=config.streaming)
    except _errors() as error:
        raise _cannot_load(config, sides, error) from error
    if not config.streaming:
        if len(loaded) == 0:
            raise ValueError(f"{place_of(config, sides)}: has no rows")
        row_pair(loaded[0], sides, f"{place_of(config, sides)}, row 1")
    return loaded


def _errors() -> tuple[type[Exception], ...]:
    import datasets

    # ImportError: s3fs, ...; StopIteration: of a folder whose files hold nothing
    own = ValueError, RuntimeError, ImportError, StopIteration, datasets.exceptions.DatasetsError
    return *READ_ERRORS, *own


def _cannot_load(config: CorpusConfig, sides: Sides, error: Exception, rows: str = "") -> ValueError:
    first = error
    while first.__cause__ is not None:  # the library says "An error occurred", and what did, further down
        first = first.__cause__
    why = "its files hold no rows" if isinstance(first, StopIteration) else reason(first)
    return ValueError(f"{place_of(config, sides)}{rows}: cannot be loaded ({why})")


def place_of(config: CorpusConfig, sides: Sides) -> str:
    """Returns how messages call a dataset."""
    return f"{sides.name}.dataset={config.dataset}, split {config.split}"
