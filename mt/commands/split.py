"""mt split: a corpus of any format -> train, validation and test sets that share no source sentence."""

import json
import re
import shlex
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated

import typer

from mt.durable import NO_ROOM

SPLITS = ("train", "valid", "test")
_OPTIONS = {
    "corpus.source_field": "--source-field", "corpus.target_field": "--target-field", "corpus.source": "CORPUS",
    "corpus.path": "CORPUS", "corpus.target": "TARGET",
}  # fmt: skip
_CORPUS = typer.Argument(metavar="CORPUS", help="A file with both sides, a folder or a pattern; or the source side.")
_TARGET = typer.Argument(metavar="[TARGET]", help="The target side, where CORPUS is a text file of sources.")
_SOURCE_FIELD = typer.Option(
    help="Where its sources are, as data.train.NAME.source_field says it. [default: the format's]"
)
_TARGET_FIELD = typer.Option(help="The same of its targets.")
_OUTPUT = typer.Option(metavar="DIR", help="A new folder for train.jsonl, valid.jsonl and test.jsonl.")


def split(
    corpus: Annotated[str, _CORPUS],
    output: Annotated[Path, _OUTPUT],
    source_language: Annotated[str, typer.Option(help="A code such as en: the key of the source side.")],
    target_language: Annotated[str, typer.Option(help="A code such as zh: the key of the target side.")],
    target: Annotated[str | None, _TARGET] = None,
    source_field: Annotated[str | None, _SOURCE_FIELD] = None,
    target_field: Annotated[str | None, _TARGET_FIELD] = None,
    valid: Annotated[int, typer.Option(min=1, help="Pairs to validate on.")] = 1000,
    test: Annotated[int, typer.Option(min=0, help="Pairs to test on.")] = 1000,
    seed: Annotated[int, typer.Option(help="Another one holds out other sentences.")] = 1,
) -> None:
    """Take validation and test sets out of a corpus, by source sentence: none stands in two of them.

    Sentences that differ in case, punctuation and spaces only are one. The same corpus and seed give the same files.
    Prints how to train on them.
    """
    from mt.commands.tables import print_lines
    from mt.config import CorpusConfig, DataConfig
    from mt.data.corpus import check_corpus, read_corpus
    from mt.data.hold_out import split_pairs
    from mt.export.whole import new_folder
    from mt.translation.output import check_folder

    if source_language == target_language:
        raise ValueError(f"--source-language={source_language}, --target-language: must differ, as they name the sides")
    fields = {"source_field": source_field, "target_field": target_field}
    if target is None:
        config = CorpusConfig(path=corpus, **fields)
    else:
        config = CorpusConfig(source=corpus, target=target, **fields)
    data = DataConfig(source_language, target_language)
    if output.exists():
        raise ValueError(f"--output={output}: is there already: remove it, or name another folder")
    check_folder(output)
    counts, dropped, skipped = Counter[str](), Counter[str](), Counter[str]()

    def read() -> Iterator[tuple[str, str]]:
        skipped.clear()  # the corpus is read more than once
        return read_corpus(config, data, "corpus", skipped)

    with _naming_options(), new_folder(output) as folder, ExitStack() as stack:
        check_corpus(config, data, "corpus")
        files = {name: stack.enter_context(open(folder / f"{name}.jsonl", "w", encoding="utf-8")) for name in SPLITS}
        pairs = split_pairs(read, valid, test, seed, dropped)
        for name, (source, translation) in pairs:
            row = {source_language: source, target_language: translation}
            files[name].write(json.dumps(row, ensure_ascii=False) + "\n")
            counts[name] += 1
    told = ", ".join(f"{name} {counts[name]:,}" for name in SPLITS)
    left_out = f"; left out, as other translations: {dropped.total():,}" if dropped else ""
    left_out += "".join(f"; not read, {why}: {count:,}" for why, count in skipped.items())
    print(f"{output}: {told} pairs{left_out}", file=sys.stderr)
    paths = {f"data.{name}.main.path": str(output / f"{name}.jsonl") for name in SPLITS if counts[name]}
    settings = {"data.source_language": source_language, "data.target_language": target_language, **paths}
    print_lines([shlex.join(["mt", "train", *(f"{key}={_quoted(value)}" for key, value in settings.items())])])


def _quoted(value: str) -> str:
    """Returns a value as a command line has it, where commas, brackets and the like mean something."""
    from mt.compose.composing import quote

    return value if re.fullmatch(r"[\w./-]*", value) else quote(value)


@contextmanager
def _naming_options() -> Iterator[None]:
    """Names what the user gave, where a message names a setting; and the folder, where a disk is full."""
    try:
        yield
    except ValueError as error:
        text = str(error)
        for setting, option in _OPTIONS.items():
            text = text.replace(setting, option)
        raise ValueError(text) from error
    except OSError as error:
        if error.errno in NO_ROOM:
            raise ValueError(
                f"--output: cannot be written ({error.strerror}): make room, or name another disk"
            ) from error
        raise
