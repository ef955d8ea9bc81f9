"""Scores of a trained folder on a test set: translate everything, score it, keep both."""

import dataclasses
import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mt.checkpoint import load_config, pointed, read_state
from mt.config import CorpusConfig, DataConfig, DecodeConfig
from mt.data.corpus import check_corpus, read_corpus
from mt.evaluation.metrics import Score, make_bleu, score_corpus
from mt.translation.output import open_output
from mt.translation.translator import Translation, load_translator
from mt.versions import versions


@dataclass(frozen=True)
class Evaluation:
    """Corpus scores and where the translations (one a line) and the JSON result were written."""

    bleu: Score
    chrf: Score
    sentences: int
    translations_file: Path
    scores_file: Path


def changed(
    decode: DecodeConfig,
    beam_size: int | None,
    length_penalty: float | None,
    no_repeat_ngram_size: int | None = None,
) -> DecodeConfig:
    """Returns the search settings with what is not None replaced. Raises ValueError for a value out of range."""
    given = {
        "beam_size": beam_size,
        "length_penalty": length_penalty,
        "no_repeat_ngram_size": no_repeat_ngram_size,
    }
    return dataclasses.replace(decode, **{name: value for name, value in given.items() if value is not None})


def evaluate(
    run_dir: Path | str,
    source: Path | str | None = None,
    reference: Path | str | None = None,
    device: str = "auto",
    checkpoint: str = "best",
    decode: DecodeConfig | None = None,
    output_dir: Path | str | None = None,
    progress: Callable[[int, int], None] | None = None,
    bleu_tokenizer: str | None = None,
) -> dict[str, Evaluation]:
    """Returns BLEU and chrF by name: of two text files, or else of each of the run's own test corpora (data.test).

    Writes NAME.hyp.txt and NAME.json below output_dir (default: results/ in the run), NAME being the source file's name
    or that of the corpus in data.test, followed by the checkpoint's where that is not "best". `progress` is called with
    the sentences done and their total. `bleu_tokenizer` replaces the one that follows from the target language. Raises
    ValueError, before the model is loaded, for files that are missing, empty or of unequal length, and where NAME would
    replace what was made from other text.
    """
    run_dir = Path(run_dir)
    config = load_config(run_dir)
    corpora = _test_corpora(config.data, run_dir, source, reference)
    if bleu_tokenizer is not None:
        make_bleu(bleu_tokenizer)  # raises now what scoring would raise after the translation
    labels = {name: "evaluate" if source is not None else f"data.test.{name}" for name in corpora}
    for name, corpus in corpora.items():
        check_corpus(corpus, config.data, labels[name])
    pairs = {name: list(read_corpus(corpus, config.data, labels[name])) for name, corpus in corpora.items()}
    folder = run_dir / "results" if output_dir is None else Path(output_dir)
    suffix = "" if checkpoint == "best" else f".{checkpoint}"
    for name in corpora:
        _check_replaces_only_its_own(folder, name + suffix, _fingerprint(pairs[name]))
    translator = load_translator(run_dir, device, checkpoint, decode or config.decode)
    saved = pointed(run_dir, checkpoint)
    made_by = {"checkpoint": saved.name, "step": read_state(saved)["step"], "decode": asdict(translator.decode)}

    folder.mkdir(parents=True, exist_ok=True)
    total, done = sum(map(len, pairs.values())), 0
    results = {}
    for name, corpus in corpora.items():
        start = time.monotonic()
        report = None if progress is None else lambda count, before=done: progress(before + count, total)
        found = translator.translate_n_best([source for source, _ in pairs[name]], 1, report)
        translations = [best for best, *_ in found]
        scores = score_corpus(
            [translation.text for translation in translations],
            [target for _, target in pairs[name]],
            config.data.target_language,
            bleu_tokenizer,
        )
        record = {
            **{key: {"value": score.value, "signature": score.signature} for key, score in scores.items()},
            "sentences": len(translations),
            "corpus": asdict(corpus),
            "text": _fingerprint(pairs[name]),
            **made_by,
            "truncated_sources": sum(translation.source_truncated for translation in translations),
            "unfinished_translations": sum(translation.unfinished for translation in translations),
            "seconds": round(time.monotonic() - start, 3),
            "versions": versions(),
        }
        results[name] = _write(folder, name + suffix, translations, scores, record)
        done += len(translations)
    return results


def _test_corpora(
    data: DataConfig, run_dir: Path, source: Path | str | None, reference: Path | str | None
) -> dict[str, CorpusConfig]:
    """Returns the corpora to translate by the names of their results."""
    if (source is None) != (reference is None):
        missing = "reference" if reference is None else "source"
        raise ValueError(f"evaluate: {missing} is missing: give both --source and --reference, or neither")
    if source is not None:
        return {Path(source).name.removesuffix(".gz"): CorpusConfig(source=str(source), target=str(reference))}
    if not data.test:
        raise ValueError(f"{run_dir}: the run has no data.test: give --source FILE and --reference FILE")
    return data.test


def _fingerprint(pairs: list[tuple[str, str]]) -> str:
    """Returns a SHA-256 of the text of a test corpus, both sides."""
    return hashlib.sha256(json.dumps(pairs).encode()).hexdigest()


def _check_replaces_only_its_own(folder: Path, name: str, fingerprint: str) -> None:
    """Raises ValueError where a file of this name is not the result of an earlier evaluation on the same text."""
    scores_file, translations_file = folder / f"{name}.json", folder / f"{name}.hyp.txt"
    if not scores_file.exists() and not translations_file.exists():
        return
    try:
        before = json.loads(scores_file.read_bytes())
        same_text = before["text"] == fingerprint
    except (OSError, ValueError, KeyError, TypeError):  # no such file, or one that we did not write
        same_text = False
    if not same_text:
        existing = scores_file if scores_file.exists() else translations_file
        raise ValueError(
            f"{existing}: was made from other text than this test corpus {name!r} and stays as it is; choose another "
            "--output-dir, or remove it"
        )


def _write(
    folder: Path, name: str, translations: list[Translation], scores: dict[str, Score], record: dict[str, Any]
) -> Evaluation:
    """Writes the translations, one a line, and the record."""
    sentences = len(translations)
    result = Evaluation(scores["bleu"], scores["chrf"], sentences, folder / f"{name}.hyp.txt", folder / f"{name}.json")
    with open_output(result.translations_file) as file:
        file.writelines(f"{translation.text}\n".encode() for translation in translations)
    with open_output(result.scores_file) as file:
        file.write((json.dumps(record, ensure_ascii=False, indent=2) + "\n").encode())
    return result
