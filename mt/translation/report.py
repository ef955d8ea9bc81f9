"""What `mt evaluate` and `mt compare` found, as HTML; and what an evaluation says in detail."""

import warnings
from dataclasses import dataclass
from pathlib import Path

from mt.checkpoint import load_config, read_states
from mt.data.corpus import read_corpora
from mt.evaluation.curves import Chart, training_charts
from mt.evaluation.details import FrequencyBucket, LengthBucket, by_frequency, by_length
from mt.evaluation.report import Section, best_and_worst, most_different, render
from mt.translation.compare import ComparedSet
from mt.translation.evaluate import Evaluation


@dataclass(frozen=True)
class Details:
    """Scores by source length and words by training frequency; a list is empty where the text for it is not here."""

    lengths: list[LengthBucket]
    frequencies: list[FrequencyBucket]
    missing: list[str]  # why a list is empty


def detail(result: Evaluation, run_dir: Path | None) -> Details:
    """Returns the details of an evaluation, with the training text of the run; what is missing gives a warning."""
    lengths, frequencies, missing = [], [], []
    texts = result.texts
    if texts.sources is None:
        missing.append("scores by source length are left out: they need --source FILE")
    else:
        lengths = by_length(texts.sources, result.translations, texts.references, result.tokenizer)
    data = None if run_dir is None else load_config(run_dir).data
    if data is None or not data.train:
        missing.append("words by training frequency are left out: they need a run with its training text, data.train")
    else:
        training = (target for _, target in read_corpora(data.train, data, "train"))
        try:
            frequencies = by_frequency(result.translations, texts.references[0], training, result.tokenizer)
        except ValueError as error:  # the training text is not here
            missing.append(f"words by training frequency are left out: {error}")
    for reason in missing:
        warnings.warn(reason, stacklevel=2)
    return Details(lengths, frequencies, missing)


def evaluation_report(results: dict[str, Evaluation], details: dict[str, Details], run_dir: Path | None) -> bytes:
    """Returns one page about evaluations, by the names of the test sets, and the run's training, where there is one."""
    sections = []
    for name, result in results.items():
        texts, found = result.texts, details[name]
        lists, signature = best_and_worst(texts.sources, result.translations, texts.references)
        sections.append(
            Section(
                name,
                _facts(result),
                scores=list(result.scores.values()),
                lengths=found.lengths,
                frequencies=found.frequencies,
                notes=found.missing,
                chrf_signature=signature,
                lists=lists,
            )
        )
    if run_dir is None:
        language = next(iter(results.values())).target_language
        return render(f"Evaluation of {', '.join(results)}", language, [], sections)
    data = load_config(run_dir).data
    title = f"Evaluation of {run_dir} ({data.source_language} to {data.target_language})"
    return render(title, data.target_language, _charts(run_dir), sections)


def comparison_report(compared: dict[str, ComparedSet]) -> bytes:
    """Returns one page about comparisons, by the names of the test sets."""
    sections = []
    for name, one in compared.items():
        lists, signature = most_different(one.texts.sources, one.systems, one.texts.references)
        facts = {"Sentences": f"{len(one.texts.references[0]):,}", **_several(len(one.texts.references))}
        sections.append(Section(name, facts, comparisons=one.comparisons, chrf_signature=signature, lists=lists))
    first = next(iter(compared.values()))
    return render(f"Comparison of {', '.join(first.systems)}", first.target_language, [], sections)


def _charts(run_dir: Path) -> list[Chart]:
    log = run_dir / "log.jsonl"
    if not log.is_file():
        return []
    found = [state.get("signatures") for state in read_states(run_dir).values()]
    (*_, signatures) = [{}, *(one for one in found if isinstance(one, dict))]
    return training_charts(log, signatures)


def _facts(result: Evaluation) -> dict[str, str]:
    """Returns what stands above the scores, by its name."""
    record = result.record
    facts = {
        "Translations": str(result.translations_file),
        "Sentences": f"{result.sentences:,}",
        **_several(len(result.texts.references)),
    }
    if record:
        decode, made = record["decode"], record["versions"]
        facts |= {
            "Checkpoint": f"{record['checkpoint']} (update {record['step']:,})",
            "Search": ", ".join(f"{name} {value}" for name, value in decode.items()),
            "Unfinished translations": f"{record['unfinished_translations']:,}",
            "Sources cut": f"{record['truncated_sources']:,}",
            "Translated in": f"{record['seconds']:,.1f} seconds on {record['device']}",
            "Made by": f"mt {made['mt']}, commit {made['git_commit'] or 'unknown'}, torch {made['torch']}",
        }
    return facts


def _several(references: int) -> dict[str, str]:
    return {"References": f"{references} for each sentence"} if references > 1 else {}
