"""Scores of a trained folder on a test set: translate everything, score it, keep both."""

import dataclasses
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from mt.checkpoint import load_config, pointed, read_state
from mt.config import CorpusConfig, DataConfig, DecodeConfig
from mt.data.corpus import check_corpus, read_corpus
from mt.evaluation.metrics import Score, score_corpus
from mt.translation.output import open_output
from mt.translation.translator import load_translator
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
) -> Evaluation:
    """Returns BLEU and chrF on two text files, or else on the run's own data.test.

    Writes NAME.hyp.txt and NAME.json below output_dir (default: results/ in the run), NAME being the source file's name
    or "test". `progress` is called with the sentences done and their total. Raises ValueError, before the model is
    loaded, for files that are missing, empty or of unequal length.
    """
    run_dir = Path(run_dir)
    config = load_config(run_dir)
    name, corpora = _test_corpora(config.data, run_dir, source, reference)
    for label, corpus in corpora.items():
        check_corpus(corpus, config.data, label)
    pairs = [pair for label, corpus in corpora.items() for pair in read_corpus(corpus, config.data, label)]
    sources, references = [source for source, _ in pairs], [target for _, target in pairs]
    decode = decode or config.decode
    translator = load_translator(run_dir, device, checkpoint, decode)

    start = time.monotonic()
    report = None if progress is None else lambda done: progress(done, len(sources))
    translations = [found[0] for found in translator.translate_n_best(sources, 1, report)]
    seconds = time.monotonic() - start
    texts = [translation.text for translation in translations]
    scores = score_corpus(texts, references, config.data.target_language)

    folder = run_dir / "results" if output_dir is None else Path(output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    result = Evaluation(scores["bleu"], scores["chrf"], len(texts), folder / f"{name}.hyp.txt", folder / f"{name}.json")
    saved = pointed(run_dir, checkpoint)
    record = {
        **{key: {"value": score.value, "signature": score.signature} for key, score in scores.items()},
        "sentences": len(texts),
        "corpora": {key: dataclasses.asdict(corpus) for key, corpus in corpora.items()},
        "checkpoint": saved.name,
        "step": read_state(saved)["step"],
        "decode": dataclasses.asdict(decode),
        "truncated_sources": sum(translation.source_truncated for translation in translations),
        "unfinished_translations": sum(translation.unfinished for translation in translations),
        "seconds": round(seconds, 3),
        "versions": versions(),
    }
    with open_output(result.translations_file) as file:
        file.writelines(f"{text}\n".encode() for text in texts)
    with open_output(result.scores_file) as file:
        file.write((json.dumps(record, ensure_ascii=False, indent=2) + "\n").encode())
    return result


def _test_corpora(
    data: DataConfig, run_dir: Path, source: Path | str | None, reference: Path | str | None
) -> tuple[str, dict[str, CorpusConfig]]:
    """Returns the name of the results, and the corpora to translate by what they are called in messages."""
    if (source is None) != (reference is None):
        missing = "reference" if reference is None else "source"
        raise ValueError(f"evaluate: {missing} is missing: give both --source and --reference, or neither")
    if source is not None:
        files = CorpusConfig(source=str(source), target=str(reference))
        return Path(source).name.removesuffix(".gz"), {"evaluate": files}
    if not data.test:
        raise ValueError(f"{run_dir}: the run has no data.test: give --source FILE and --reference FILE")
    return "test", {f"data.test.{name}": corpus for name, corpus in data.test.items()}
