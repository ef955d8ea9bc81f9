"""Two or more systems on one test set: runs that were evaluated on it, or files of translations."""

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mt.checkpoint import load_config, pointed
from mt.config import CorpusConfig, TrainConfig
from mt.evaluation.metrics import bleu_tokenizer
from mt.evaluation.significance import Comparison, compare_systems
from mt.mapping import from_mapping
from mt.translation.evaluate import read_files
from mt.translation.results import Texts, read_record, read_texts, read_translations


@dataclass(frozen=True)
class ComparedSet:
    """The systems' translations of one test set, by the systems' names, and how they compare."""

    texts: Texts
    systems: dict[str, list[str]]
    comparisons: list[Comparison]
    target_language: str


def compare_runs(run_dirs: list[Path], tokenizer: str | None = None) -> dict[str, ComparedSet]:
    """Returns by name each test set on which all runs were evaluated: every NAME.json that all have in results/.

    `tokenizer` is BLEU's and replaces the one that follows from the target language. Raises ValueError where a run was
    not evaluated, where no name is in all of them, and where one name means different text in two of them. Warns of
    results that are of another checkpoint than the run's best by now.
    """
    configs = {str(folder): load_config(folder) for folder in run_dirs}
    _check_distinct(list(map(str, run_dirs)))
    _check_same_language(configs)
    records = {name: _records(Path(name)) for name in configs}
    first, *others = configs
    names = [name for name in records[first] if all(name in records[other] for other in others)]
    if not names:
        have = "; ".join(f"{run} has {', '.join(found)}" for run, found in records.items())
        raise ValueError(f"no test set was translated by all runs: {have}; mt compare FILE FILE --reference FILE can")
    return {
        name: _compared({run: found[name] for run, found in records.items()}, name, configs[first], tokenizer)
        for name in names
    }


def compare_files(
    files: list[Path],
    references: list[Path],
    source: Path | None = None,
    target_language: str = "und",
    tokenizer: str | None = None,
) -> ComparedSet:
    """Returns how files of translations, one a line, compare. Raises ValueError where files differ in lines."""
    _check_distinct(list(map(str, files)))
    translations, texts = read_files(files, references, source)
    systems = dict(zip(map(str, files), translations, strict=True))
    comparisons = compare_systems(systems, texts.references, target_language, tokenizer)
    return ComparedSet(texts, systems, comparisons, target_language)


def _records(run_dir: Path) -> dict[str, dict[str, Any]]:
    """Returns what the evaluations of a run left in its results/, by the names of the test sets."""
    found = {file.stem: read_record(file) for file in sorted((run_dir / "results").glob("*.json"))}
    records = {name: record for name, record in found.items() if record is not None}
    if not records:
        raise ValueError(f"{run_dir}: was not evaluated yet: mt evaluate {run_dir}")
    return records


def _compared(records: dict[str, dict[str, Any]], name: str, config: TrainConfig, tokenizer: str | None) -> ComparedSet:
    """Returns how runs compare on the test set of this name, given the record of each by its folder's name."""
    first, *others = records
    for other in others:
        counts = records[first]["sentences"], records[other]["sentences"]
        if records[first]["text"] != records[other]["text"]:
            raise ValueError(
                f"test set {name}: {first} and {other} were evaluated on different text ({counts[0]} and {counts[1]} "
                "sentences): evaluate both on the same files"
            )
    record = records[first]
    corpus, more = from_mapping(CorpusConfig, record["corpus"]), record.get("more_references", [])
    texts = read_texts(corpus, more, config.data, f"{first}: results/{name}.json: corpus")
    if texts.fingerprint != record["text"]:
        raise ValueError(
            f"test set {name}: its files were changed after {first} was evaluated: evaluate all runs again"
        )
    for run, found in records.items():
        _warn_if_outdated(run, name, found)
    systems = {run: read_translations(Path(run) / "results", name, found) for run, found in records.items()}
    language = corpus.target_language or config.data.target_language
    return ComparedSet(texts, systems, compare_systems(systems, texts.references, language, tokenizer), language)


def _warn_if_outdated(run: str, name: str, record: dict[str, Any]) -> None:
    """Warns where the checkpoint that NAME stands for, the best or the last, is another since the evaluation."""
    checkpoint, pointer = record.get("checkpoint"), "last" if name.endswith(".last") else "best"
    if checkpoint is None or name.endswith(f".{checkpoint}"):
        return
    try:
        now = pointed(Path(run), pointer).name
    except ValueError:  # removed since: the results are there still
        return
    if now != checkpoint:
        warnings.warn(
            f"{run}: results/{name}.json is of {checkpoint}, but {pointer} is {now} by now: evaluate the run again",
            stacklevel=2,
        )


def _check_distinct(names: list[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{name}: is given twice; compare different systems")


def _check_same_language(configs: dict[str, TrainConfig]) -> None:
    (first, config), *others = configs.items()
    for name, other in others:
        if bleu_tokenizer(other.data.target_language) != bleu_tokenizer(config.data.target_language):
            raise ValueError(
                f"{first} translates into {config.data.target_language}, {name} into {other.data.target_language}: "
                "they have no test set in common"
            )
