"""Corpora of every format as (source, target) strings, and their checks before any work is done."""

import hashlib
import itertools
import re
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from mt.config import CorpusConfig, DataConfig
from mt.data.files import (
    COMPRESSIONS,
    READ_ERRORS,
    check_file,
    file_digest,
    files_of,
    open_file,
    read_lines,
    reason,
    suffixes,
)
from mt.data.readers.dataset import dataset_fingerprint, dataset_pairs
from mt.data.readers.formats import SEEKING, STREAMED
from mt.data.readers.text import line_pairs
from mt.data.readers.tsv import tsv_columns
from mt.data.sides import Pair, Reader, Sides
from mt.data.test_sets import known_test_set

# Two or three letters and subtags (zh, cmn, zh-Hans, pt_BR); cn and jp are countries, often taken for languages.
_LANGUAGE_CODE = re.compile(r"(?!(cn|jp)\b)[a-z]{2,3}([-_][a-z0-9]+)*", re.IGNORECASE)
_WITH_FUZZY = (".po", ".xlf", ".xliff", ".zip")


def read_corpora(
    corpora: dict[str, CorpusConfig], data: DataConfig, split: str, skipped: Counter[str] | None = None
) -> Iterator[Pair]:
    """Returns the pairs of all corpora of a split ("train"), one corpus after the other, as `read_corpus` does."""
    return itertools.chain.from_iterable(
        read_corpus(corpus, data, f"data.{split}.{name}", skipped) for name, corpus in corpora.items()
    )


def read_corpus(
    config: CorpusConfig, data: DataConfig, name: str, skipped: Counter[str] | None = None
) -> Iterator[Pair]:
    """Yields the (source, target) strings of one corpus in order.

    `name` ("data.train.main") stands in the messages. What a file holds without a translation, such as a fuzzy entry of
    gettext, is added to `skipped` under its reason. Raises ValueError for everything that is not text in pairs, with
    the file and line, and for a corpus without a pair.
    """
    sides = Sides.of(config, data, name, skipped)
    before, empty = Counter(sides.skipped), True
    for pair in _pairs(config, data, sides):
        empty = False
        yield pair
    if empty:
        kinds = config.source, config.target, config.path, config.dataset, config.test_set
        places = [value for value in kinds if value is not None]
        counts = ", ".join(f"{why}: {count}" for why, count in (sides.skipped - before).items())
        raise ValueError(f"{name}: {' and '.join(places)}: there is no pair of texts ({counts or 'nothing is there'})")


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
            try:
                check_corpus(corpus, data, f"data.{split}.{name}")
            except ValueError as error:
                if isinstance(error.__cause__, FileNotFoundError):
                    raise ValueError(f"{error}{_where_from(split, name)}") from error
                raise


def _where_from(split: str, name: str) -> str:
    """Returns what to do where a file is not there."""
    if split == "train":
        return "; data/README.md says how to get the corpora of the experiments"
    made = "; mt split takes validation and test sets out of a corpus"
    return f"{made}, and '~data.valid.{name}' trains without validation" if split == "valid" else made


def check_corpus(config: CorpusConfig, data: DataConfig, name: str) -> None:
    """Raises ValueError, naming the corpus, where it is missing, empty, of unknown format or of unequal sides."""
    for setting, value in _unused(config, name):
        raise ValueError(f"{name}.{setting}={value}: has no meaning for this kind of corpus: remove it")
    sides = Sides.of(config, data, name)
    texts = text_files(config, data, name)
    if texts is not None:
        settings = ("source", "target") if config.test_set is None else ("test_set", "test_set")
        counts = [check_file(f"{name}.{setting}", str(file)) for setting, file in zip(settings, texts, strict=True)]
        if counts[0] != counts[1]:
            raise ValueError(
                f"{name}: the sides differ in lines: {texts[0]} has {counts[0]}, {texts[1]} has {counts[1]}; "
                "line n of one must translate line n of the other"
            )
        return
    files = [] if config.path is None else _files(config, name)
    if config.include_fuzzy and not any(suffixes(file.name)[0] in _WITH_FUZZY for file in files):
        raise ValueError(f"{name}.include_fuzzy=True: has a meaning for {', '.join(_WITH_FUZZY)} alone: remove it")
    for path in files:
        check_file(f"{name}.path", str(path), count_lines=False)
        next(_file_pairs(path, sides), None)  # the first row has the fields
    next(read_corpus(config, data, name))


def corpus_fingerprint(config: CorpusConfig, data: DataConfig, name: str) -> str:
    """Returns a SHA-256 hex digest of the files as they are stored (a dataset: its own fingerprint) and the sides."""
    sides = Sides.of(config, data, name)
    if config.dataset is not None:
        parts = ["dataset", dataset_fingerprint(config, sides), *sides.fields]
    elif config.path is None:
        parts = ["text", *(file_digest(name, file) for file in text_files(config, data, name))]
    else:
        parts = ["files"]
        for path in _files(config, name):
            format = suffixes(path.name)[0]
            fields = [str(column) for column in tsv_columns(sides)] if format == ".tsv" else sides.fields
            parts += [*suffixes(path.name), file_digest(f"{name}.path", path), *fields, str(config.include_fuzzy)]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def text_files(config: CorpusConfig, data: DataConfig, name: str) -> tuple[Path, Path] | None:
    """Returns the two text files of a corpus, those of a public test set too; None for a corpus of another kind."""
    if config.test_set is not None:
        source, references = known_test_set(config.test_set, Sides.of(config, data, name).fields, f"{name}.test_set")
        return source, references[0]
    return None if config.source is None else (Path(config.source), Path(config.target))


def _pairs(config: CorpusConfig, data: DataConfig, sides: Sides) -> Iterator[Pair]:
    if config.dataset is not None:
        return dataset_pairs(config, sides)
    texts = text_files(config, data, sides.name)
    if texts is not None:
        return line_pairs(*map(read_lines, texts), *map(str, texts), sides.name)
    return itertools.chain.from_iterable(_file_pairs(path, sides) for path in _files(config, sides.name))


def _file_pairs(path: Path, sides: Sides) -> Iterator[Pair]:
    """Yields the pairs of one file. Raises ValueError, naming it."""
    read = _reader(path, sides.name)
    try:
        with open_file(path) as file:
            yield from read(file, str(path), sides)
    except READ_ERRORS as error:
        raise ValueError(f"{path}: {reason(error)}") from error


def _files(config: CorpusConfig, name: str) -> list[Path]:
    """Returns the files of a corpus, each of a known format."""
    files = files_of(config.path, f"{name}.path", (*STREAMED, *SEEKING))
    for file in files:
        _reader(file, name)
    return files


def _reader(path: Path, name: str) -> Reader:
    format, compression = suffixes(path.name)
    if format in STREAMED or (format in SEEKING and not compression):
        return (STREAMED | SEEKING)[format]
    raise ValueError(
        f"{name}.path={path}: unknown format {format + compression or '(no extension)'}; known: {', '.join(STREAMED)}, "
        f"each with {', '.join(COMPRESSIONS)} too, {', '.join(SEEKING)}; for two text files set source and target"
    )


def _unused(config: CorpusConfig, name: str) -> Iterator[tuple[str, object]]:
    """Yields the settings that are set and mean nothing for this kind of corpus, with their values."""
    own = {"split": config.split != "train", "dataset_config": config.dataset_config, "streaming": config.streaming}
    unused = {} if config.dataset is not None else own
    if config.source is not None or config.test_set is not None:
        unused |= {"source_field": config.source_field, "target_field": config.target_field}
    if config.path is None:
        unused["include_fuzzy"] = config.include_fuzzy or None
    for setting, value in unused.items():
        if value not in (None, False):
            yield setting, getattr(config, setting)
