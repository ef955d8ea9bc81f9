"""Corpora of every format as (source, target) strings, and their checks before any work is done.

Text is bytes split at LF and nowhere else: what other tools take for a line break (CR, U+2028, vertical tab, ...) stays
inside its sentence, so that the two sides of a corpus cannot slip apart. One CR at the end of a line is dropped.
"""

import gzip
import hashlib
import io
import itertools
import json
import re
import warnings
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from mt.config import CorpusConfig, DataConfig

_BOM = b"\xef\xbb\xbf"
_BLOCK_BYTES = 1 << 20
_LINES_BYTES = 1 << 16  # lines decoded at once
_DATASET_ROWS = 1000  # rows read from a dataset at once
_FIELDS_SHOWN = 20  # in a message
# Two or three letters and subtags (zh, cmn, zh-Hans, pt_BR); cn and jp are countries, often taken for languages.
_LANGUAGE_CODE = re.compile(r"(?!(cn|jp)\b)[a-z]{2,3}([-_][a-z0-9]+)*", re.IGNORECASE)


def read_corpora(corpora: dict[str, CorpusConfig], data: DataConfig, split: str) -> Iterator[tuple[str, str]]:
    """Returns the pairs of all corpora of a split ("train"), one corpus after the other."""
    return itertools.chain.from_iterable(
        read_corpus(corpus, data, f"data.{split}.{name}") for name, corpus in corpora.items()
    )


def read_corpus(config: CorpusConfig, data: DataConfig, name: str) -> Iterator[tuple[str, str]]:
    """Yields the (source, target) strings of one corpus, unchanged and in order.

    `name` ("data.train.main") stands in the messages. Raises ValueError for everything that is not text in pairs, with
    the file and line.
    """
    if config.dataset is not None:
        return _dataset_pairs(config, data, name)
    if config.path is None:
        return _text_pairs(config, name)
    return _tsv_pairs(config, name) if _format(config, name) == ".tsv" else _jsonl_pairs(config, data, name)


def check_corpora(data: DataConfig) -> None:
    """Raises ValueError where a corpus of any split is missing, empty, of unknown format or of unequal sides.

    Warns of a language that is no language code.
    """
    for side in ("source", "target"):
        code = getattr(data, f"{side}_language")
        if not _LANGUAGE_CODE.fullmatch(code):
            warnings.warn(
                f"data.{side}_language={code}: is no language code such as zh, ja or de: BLEU may cut words wrongly",
                stacklevel=2,
            )
    for split in ("train", "valid", "test"):
        for name, corpus in getattr(data, split).items():
            check_corpus(corpus, data, f"data.{split}.{name}")


def check_corpus(config: CorpusConfig, data: DataConfig, name: str) -> None:
    """Raises ValueError, naming the corpus, where it is missing, empty, of unknown format or of unequal sides."""
    unused = {"dataset_config": config.dataset_config, "split": config.split if config.split != "train" else None}
    if config.dataset is not None:
        unused = {}
    elif config.path is None:
        unused |= {"source_field": config.source_field, "target_field": config.target_field}
    for setting, value in unused.items():
        if value is not None:
            raise ValueError(f"{name}.{setting}={value}: has no meaning for this kind of corpus: remove it")
    if config.dataset is not None:
        _load_dataset(config, data, name)
    elif config.path is not None:
        _check_file(f"{name}.path", config.path)
        if _format(config, name) == ".tsv":
            _tsv_columns(config, name)
        next(read_corpus(config, data, name))  # the first row has the fields
    else:
        counts = [_check_file(f"{name}.source", config.source), _check_file(f"{name}.target", config.target)]
        if counts[0] != counts[1]:
            raise ValueError(
                f"{name}: the sides differ in lines: {config.source} has {counts[0]}, {config.target} has {counts[1]}; "
                "line n of one must translate line n of the other"
            )


def corpus_fingerprint(config: CorpusConfig, data: DataConfig, name: str) -> str:
    """Returns a SHA-256 hex digest of the files' content (of a dataset: its own fingerprint) and the fields read."""
    if config.dataset is not None:
        parts = ["dataset", _load_dataset(config, data, name)._fingerprint, *_fields(config, data)]
    elif config.path is not None:
        fields = _fields(config, data) if _format(config, name) == ".jsonl" else map(str, _tsv_columns(config, name))
        parts = [_format(config, name), _file_digest(f"{name}.path", config.path), *fields]
    else:
        sides = (("source", config.source), ("target", config.target))
        parts = ["text", *(_file_digest(f"{name}.{side}", path) for side, path in sides)]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def read_lines(path: Path) -> Iterator[str]:
    """Yields the lines of a UTF-8 text file (.gz too), split at LF only.

    A byte order mark at the start and one CR at the end of a line are dropped. Raises ValueError with file and line for
    bytes that are not UTF-8 text, and for a file that cannot be read.
    """
    try:
        with _open(path) as file:
            number = 1  # of a block's first line
            while block := file.readlines(_LINES_BYTES):
                yield from _decode_block(block, str(path), number)
                number += len(block)
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"{path}: {_reason(error)}") from error


def _decode_block(block: list[bytes], name: str, number: int) -> Iterable[str]:
    """Returns the lines of a file from line `number` on: all at once where nothing about them is special."""
    try:
        text = b"".join(block).decode("utf-8")
    except UnicodeDecodeError:
        return decode_lines(block, name, number)
    if number == 1 or "\0" in text or "\r" in text:
        return decode_lines(block, name, number)
    return text.removesuffix("\n").split("\n")


def decode_lines(file: Iterable[bytes], name: str, first_number: int = 1) -> Iterator[str]:
    """Yields the lines of a binary stream, such as standard input, as `read_lines` does.

    `name` and the number of a line, of which the first is first_number, stand in messages.
    """
    for number, line in enumerate(file, first_number):
        if number == 1:
            line = line.removeprefix(_BOM)
        line = line.removesuffix(b"\n").removesuffix(b"\r")
        if b"\0" in line:
            raise ValueError(f"{name}, line {number}: has a NUL byte: must be UTF-8 text: convert the file")
        try:
            yield line.decode("utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{name}, line {number}: byte {error.start + 1} (0x{line[error.start]:02x}) is not valid UTF-8: "
                "convert the file"
            ) from error


def _open(path: Path) -> BinaryIO:
    if path.suffix.lower() == ".gz":
        return io.BufferedReader(gzip.open(path, "rb"))  # whose own lines come far more slowly
    return open(path, "rb")


def _reason(error: Exception) -> str:
    """Returns why a file could not be read."""
    return getattr(error, "strerror", None) or str(error)


def _check_file(setting: str, path: str) -> int:
    """Returns the number of lines. Raises ValueError, naming the setting, for a missing, unreadable or empty file."""
    if Path(path).exists() and not Path(path).is_file() and not Path(path).is_dir():
        raise ValueError(f"{setting}={path}: is a pipe or device, but corpora are read more than once: give a file")
    lines, last = 0, b""
    try:
        with _open(Path(path)) as file:
            while block := file.read(_BLOCK_BYTES):
                lines += block.count(b"\n")
                last = block
    except (OSError, EOFError, zlib.error, ValueError) as error:  # ValueError: the path has a NUL character
        raise ValueError(f"{setting}={path}: {_reason(error)}") from error
    if not last:
        raise ValueError(f"{setting}={path}: the file is empty")
    return lines + (not last.endswith(b"\n"))  # a last line without newline counts


def _file_digest(setting: str, path: str) -> str:
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ValueError(f"{setting}={path}: {_reason(error)}") from error


def _text_pairs(config: CorpusConfig, name: str) -> Iterator[tuple[str, str]]:
    sides = itertools.zip_longest(read_lines(Path(config.source)), read_lines(Path(config.target)))
    number = 0
    for number, (source, target) in enumerate(sides, start=1):
        if source is None or target is None:
            shorter = config.source if source is None else config.target
            raise ValueError(f"{name}: {shorter} ends after line {number - 1}, the other side goes on")
        yield source, target
    if number == 0:
        raise ValueError(f"{name}: {config.source} and {config.target} are empty")


def _format(config: CorpusConfig, name: str) -> str:
    """Returns ".tsv" or ".jsonl"."""
    suffix = Path(config.path.lower().removesuffix(".gz")).suffix
    if suffix not in (".tsv", ".jsonl"):
        raise ValueError(
            f"{name}.path={config.path}: unknown format {suffix or '(no extension)'}; known: .tsv, .jsonl, .tsv.gz, "
            ".jsonl.gz; for two text files set source and target"
        )
    return suffix


def _tsv_columns(config: CorpusConfig, name: str) -> list[int]:
    columns = []
    for setting, value in (("source_field", config.source_field or "0"), ("target_field", config.target_field or "1")):
        if not (value.isascii() and value.isdigit()):
            raise ValueError(f"{name}.{setting}={value}: must be a column number from 0 for a TSV file")
        columns.append(int(value))
    return columns


def _tsv_pairs(config: CorpusConfig, name: str) -> Iterator[tuple[str, str]]:
    """A quotation mark is a character like any other: fields are split at tabs and nothing else."""
    source_column, target_column = _tsv_columns(config, name)
    needed, expected, number = max(source_column, target_column) + 1, 0, 0
    for number, line in enumerate(read_lines(Path(config.path)), start=1):
        row = line.split("\t")
        expected = expected or len(row)
        if len(row) != expected or len(row) < needed:
            rule = f"at least {needed} are needed" if len(row) < needed else f"the first line has {expected}"
            raise ValueError(f"{config.path}, line {number}: has {len(row)} columns, but {rule} ({name})")
        yield row[source_column], row[target_column]
    if number == 0:
        raise ValueError(f"{name}.path={config.path}: the file is empty")


def _fields(config: CorpusConfig, data: DataConfig) -> tuple[str, str]:
    """Returns the keys of both sides in JSONL and datasets."""
    return config.source_field or data.source_language, config.target_field or data.target_language


def _field_text(row: dict[str, Any], field: str, setting: str, place: str) -> str:
    """Returns the text of a field of the row, or of the dict in its field "translation"."""
    translation = row.get("translation")
    if field not in row and isinstance(translation, dict):
        row = translation
    if field not in row:
        names = ", ".join(name.replace("\n", " ") for name in list(row)[:_FIELDS_SHOWN]) or "none"
        raise ValueError(f"{place}: no field {field!r}; there are {names}: set {setting}")
    text = row[field]
    if not isinstance(text, str):
        shown = "" if isinstance(text, dict | list) else f" {str(text)[:40]!r}"  # nested deeply, str would fail
        raise ValueError(f"{place}: field {field!r} must be text, got {type(text).__name__}{shown}")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError(f"{place}: field {field!r} has half a surrogate pair, which is not valid Unicode") from error
    return text


def _row_pair(row: dict[str, Any], fields: tuple[str, str], name: str, place: str) -> tuple[str, str]:
    return (
        _field_text(row, fields[0], f"{name}.source_field", place),
        _field_text(row, fields[1], f"{name}.target_field", place),
    )


def _jsonl_pairs(config: CorpusConfig, data: DataConfig, name: str) -> Iterator[tuple[str, str]]:
    fields, number = _fields(config, data), 0
    for number, line in enumerate(read_lines(Path(config.path)), start=1):
        place = f"{config.path}, line {number}"
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{place}: not valid JSON ({error})") from error
        if not isinstance(row, dict):
            raise ValueError(f'{place}: must be a JSON object such as {{"{fields[0]}": ..., "{fields[1]}": ...}}')
        yield _row_pair(row, fields, name, place)
    if number == 0:
        raise ValueError(f"{name}.path={config.path}: the file is empty")


def _load_dataset(config: CorpusConfig, data: DataConfig, name: str) -> Any:
    """Returns the datasets.Dataset of a corpus, with the columns that its fields need."""
    import datasets

    setting = f"{name}.dataset={config.dataset}"
    folder = Path(config.dataset)
    for file in folder.rglob("*") if folder.is_dir() else ():
        if ".tsv" in (suffix.lower() for suffix in file.suffixes):  # read as CSV, where quotation marks swallow lines
            raise ValueError(f"{setting}: holds {file.name}, which datasets cannot read safely: set path to it instead")
    try:
        if (folder / "state.json").exists() or (folder / "dataset_dict.json").exists():
            loaded = datasets.load_from_disk(config.dataset)
            if isinstance(loaded, datasets.DatasetDict):
                if config.split not in loaded:
                    raise ValueError(f"no split {config.split}; there are {', '.join(loaded)}")
                loaded = loaded[config.split]
        else:
            loaded = datasets.load_dataset(config.dataset, config.dataset_config, split=config.split)
    except (OSError, ValueError, RuntimeError, datasets.exceptions.DatasetsError) as error:
        message = " ".join(str(error).split())
        raise ValueError(f"{setting}, split {config.split}: cannot be loaded ({message[:300]})") from error
    if len(loaded) == 0:
        raise ValueError(f"{setting}, split {config.split}: has no rows")
    _row_pair(loaded[0], _fields(config, data), name, f"{setting}, row 1")
    return loaded


def _dataset_pairs(config: CorpusConfig, data: DataConfig, name: str) -> Iterator[tuple[str, str]]:
    rows, fields = _load_dataset(config, data, name), _fields(config, data)
    rows = rows.select_columns([column for column in rows.column_names if column in (*fields, "translation")])
    for start in range(0, len(rows), _DATASET_ROWS):
        columns = rows[start : start + _DATASET_ROWS]
        for offset, values in enumerate(zip(*columns.values(), strict=True)):
            row = dict(zip(columns, values, strict=True))
            yield _row_pair(row, fields, name, f"{name}.dataset={config.dataset}, row {start + offset + 1}")
