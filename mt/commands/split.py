"""mt split: a corpus of any format -> train, validation and test sets that share no source sentence."""

import json
import shlex
import sys
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

SPLITS = ("train", "valid", "test")
_CORPUS = typer.Argument(metavar="CORPUS", help="A file with both sides, a folder or a pattern; or the source side.")
_TARGET = typer.Argument(metavar="[TARGET]", help="The target side, where CORPUS is a text file of sources.")
_FIELD = typer.Option(help="Where its texts are, as data.train.NAME.source_field says it. [default: the format's]")
_OUTPUT = typer.Option(metavar="DIR", help="A new folder for train.jsonl, valid.jsonl and test.jsonl.")


def split(
    corpus: Annotated[str, _CORPUS],
    output: Annotated[Path, _OUTPUT],
    source_language: Annotated[str, typer.Option(help="A code such as en: the key of the source side.")],
    target_language: Annotated[str, typer.Option(help="A code such as zh: the key of the target side.")],
    target: Annotated[str | None, _TARGET] = None,
    source_field: Annotated[str | None, _FIELD] = None,
    target_field: Annotated[str | None, _FIELD] = None,
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
    check_corpus(config, data, "corpus")
    counts: Counter[str] = Counter()
    dropped: Counter[str] = Counter()
    with new_folder(output) as folder, ExitStack() as stack:
        files = {name: stack.enter_context(open(folder / f"{name}.jsonl", "w", encoding="utf-8")) for name in SPLITS}
        pairs = split_pairs(lambda: read_corpus(config, data, "corpus"), valid, test, seed, dropped)
        for name, (source, translation) in pairs:
            row = {source_language: source, target_language: translation}
            files[name].write(json.dumps(row, ensure_ascii=False) + "\n")
            counts[name] += 1
    told = ", ".join(f"{name} {counts[name]:,}" for name in SPLITS)
    left_out = f"; left out, as other translations: {dropped.total():,}" if dropped else ""
    print(f"{output}: {told} pairs{left_out}", file=sys.stderr)
    corpora = " ".join(f"data.{name}.main.path={shlex.quote(str(output / f'{name}.jsonl'))}" for name in SPLITS)
    print_lines([f"mt train data.source_language={source_language} data.target_language={target_language} {corpora}"])
