"""Scores on a test set: of a trained folder (translate everything, score it, keep both), or of any translations."""

import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import yaml

from mt.checkpoint import MODEL, load_config, pointed, read_state
from mt.config import CorpusConfig, DataConfig, DecodeConfig, decode_without_effect
from mt.data.files import read_lines
from mt.data.test_sets import known_test_set
from mt.evaluation.comet import find_comet, score_comet
from mt.evaluation.metrics import Score, bleu_tokenizer, check_seed, make_bleu, score_with_intervals
from mt.mapping import from_mapping
from mt.model.device import resolve_device
from mt.translation.results import (
    Texts,
    check_lines,
    check_replaces_only_its_own,
    kept_translations,
    make_folder,
    read_record,
    read_texts,
    write_results,
)
from mt.translation.translator import Translator, load_translator
from mt.versions import program_sha256, versions


@dataclass(frozen=True)
class Evaluation:
    """Corpus scores by bleu, chrf, chrf++, ter and, where asked for, comet, and what they are scores of.

    `tokenizer` is BLEU's. `record` is what stands in scores_file: JSON values; of a file of translations, which has no
    scores_file, it is empty. `reused` says that the translations are those of an earlier evaluation.
    """

    scores: dict[str, Score]
    translations: list[str] = field(repr=False)
    texts: Texts = field(repr=False)
    tokenizer: str
    record: dict[str, Any] = field(repr=False)
    translations_file: Path
    scores_file: Path | None
    reused: bool
    target_language: str = "und"

    @property
    def bleu(self) -> Score:
        return self.scores["bleu"]

    @property
    def chrf(self) -> Score:
        return self.scores["chrf"]

    @property
    def sentences(self) -> int:
        return len(self.translations)


def changed(
    decode: DecodeConfig,
    beam_size: int | None = None,
    length_penalty: float | None = None,
    no_repeat_ngram_size: int | None = None,
    others: Sequence[str] = (),
    tags: str | None = None,
) -> DecodeConfig:
    """Returns the search settings with what is not None replaced, and then others, each NAME=VALUE.

    Raises ValueError for an unknown name or a value out of range.
    """
    given = {
        "beam_size": beam_size,
        "length_penalty": length_penalty,
        "no_repeat_ngram_size": no_repeat_ngram_size,
        "tags": tags,
    }
    changes = {name: value for name, value in given.items() if value is not None}
    for setting in others:
        name, equals, value = setting.partition("=")
        if not equals:
            raise ValueError(f"--decode {setting!r}: expected NAME=VALUE, such as repetition_penalty=1.2")
        changes[name] = value if name == "tags" else yaml.safe_load(value)  # whose <, > and & mean something in YAML
    result = from_mapping(DecodeConfig, {**dataclasses.asdict(decode), **changes}, "decode")
    if "diversity_penalty" in changes and (messages := decode_without_effect(result)):
        raise ValueError(messages[0])
    return result


def evaluate(
    run_dir: Path | str,
    source: Path | str | None = None,
    reference: Path | str | list[Path] | None = None,
    device: str = "auto",
    checkpoint: str = "best",
    decode: DecodeConfig | None = None,
    output_dir: Path | str | None = None,
    progress: Callable[[int, int], None] | None = None,
    bleu_tokenizer: str | None = None,
    comet: str | None = None,
    precision: str = "float32",
    test_set: str | None = None,
    tags: str | None = None,
) -> dict[str, Evaluation]:
    """Returns all scores by name: of a source file with its reference, or else of each of the run's data.test.

    Or of `test_set`, by a name that sacreBLEU knows (wmt14), with all its references.

    `reference` may be several files, one for each reference translation. Writes NAME.hyp.txt and NAME.json below
    output_dir (default: results/ in the run), NAME being the source file's name or that of the corpus in data.test,
    followed by the checkpoint's where that is not "best". Translations that stand there and were made by the same
    program from the same checkpoint, settings and text are scored as they are. `progress` is called with the sentences
    translated and their total. `bleu_tokenizer` replaces the one that follows from the target language; `comet` is a
    COMET model's name or file; `precision`: see load_translator. Sources stand behind `tags`, or those of their corpus
    in data.test, or decode's. Raises ValueError, before the model is loaded, for files that are missing, empty or of
    unequal length, and where NAME would replace what was made from other text; before translating for an output_dir
    that cannot be written; and where COMET fails, after all else was written.
    """
    run_dir = Path(run_dir)
    config = load_config(run_dir)
    corpora = _test_corpora(config.data, run_dir, source, reference, test_set)
    kind = str(resolve_device(device))
    language = config.data.target_language
    languages = {name: corpus.target_language or language for name, (_, corpus, _) in corpora.items()}
    by_language = {code: _Scorer(code, bleu_tokenizer, comet, kind) for code in dict.fromkeys(languages.values())}
    scorers = {name: by_language[code] for name, code in languages.items()}
    texts = {name: read_texts(*corpus, config.data, label) for name, (label, *corpus) in corpora.items()}
    folder = run_dir / "results" if output_dir is None else Path(output_dir)
    suffix = "" if checkpoint == "best" else f".{checkpoint}"
    for name in corpora:
        check_replaces_only_its_own(folder, name + suffix, texts[name].fingerprint)
        scorers[name].check(texts[name])
    decode = decode or config.decode
    searches = {name: _search(decode, corpus, tags) for name, (_, corpus, _) in corpora.items()}
    common = {**_made_by(run_dir, checkpoint, decode, kind), "precision": precision}
    made_by = {name: {**common, "decode": asdict(search)} for name, search in searches.items()}
    kept = {name: kept_translations(folder, name + suffix, made_by[name], texts[name].fingerprint) for name in corpora}
    missing = [name for name in corpora if kept[name] is None]
    translator = load_translator(run_dir, device, checkpoint, decode, precision=precision) if missing else None
    make_folder(folder)
    total, done = sum(len(texts[name].sources) for name in missing), 0
    results = {}
    for name, (_, corpus, more_references) in corpora.items():
        if kept[name] is None:
            report = None if progress is None else lambda count, before=done: progress(before + count, total)
            tagged = translator.with_tags(searches[name].tags)
            translations, facts = _translate(tagged, texts[name].sources, report)
            done += len(translations)
        else:
            before = read_record(folder / f"{name + suffix}.json")
            translations, facts = kept[name], {key: before[key] for key in _FACTS}
        made = {
            "sentences": len(translations),
            "corpus": asdict(corpus),
            "more_references": more_references,
            "text": texts[name].fingerprint,
            **made_by[name],
            **facts,
        }
        for scores in scorers[name].stages(translations, texts[name]):
            found = {key: score.record() for key, score in scores.items()}
            record = write_results(folder, name + suffix, translations, {**found, **made})
        files = folder / f"{name + suffix}.hyp.txt", folder / f"{name + suffix}.json"
        told = scorers[name].tokenizer, record, *files, kept[name] is not None, scorers[name].language
        results[name] = Evaluation(scores, translations, texts[name], *told)
    return results


def evaluate_file(
    hypotheses: Path,
    references: list[Path],
    source: Path | None = None,
    target_language: str = "und",
    bleu_tokenizer: str | None = None,
    comet: str | None = None,
    device: str = "auto",
) -> Evaluation:
    """Returns all scores of a file of translations by whatever system, one a line; writes nothing.

    `target_language` (und: not told) says how words are cut, unless bleu_tokenizer does; `comet` needs the source.
    Raises ValueError, naming the files, where they are missing or differ in lines.
    """
    scorer = _Scorer(target_language, bleu_tokenizer, comet, str(resolve_device(device)))
    (translations,), texts = read_files([hypotheses], references, source)
    scorer.check(texts)
    *_, scores = scorer.stages(translations, texts)
    return Evaluation(scores, translations, texts, scorer.tokenizer, {}, hypotheses, None, False, target_language)


def read_files(hypotheses: list[Path], references: list[Path], source: Path | None) -> tuple[list[list[str]], Texts]:
    """Returns the translations of each system and their test set; each file, which may be a pipe, is read once.

    Raises ValueError, naming both files, where they differ in lines.
    """
    others = [*references, *([source] if source else [])]
    lines = {file: list(read_lines(file)) for file in dict.fromkeys([*hypotheses, *others])}
    for file in hypotheses:
        for other in others:
            check_lines(file, len(lines[file]), other, len(lines[other]))
        if not lines[file]:
            raise ValueError(f"{file}: the file is empty")
    texts = Texts(lines[source] if source else None, [lines[file] for file in references])
    return [lines[file] for file in hypotheses], texts


class _Scorer:
    """What to score with; everything that may be missing is looked for at once, before anything is translated."""

    def __init__(self, language: str, tokenizer: str | None, comet: str | None, device: str) -> None:
        self.language, self.given, self.device = language, tokenizer, device
        self.tokenizer = tokenizer or bleu_tokenizer(language)
        make_bleu(self.tokenizer)
        check_seed()
        self.comet = None if comet is None else find_comet(comet)

    def check(self, texts: Texts) -> None:
        """Raises ValueError where COMET is asked for and cannot read this test set."""
        if self.comet and texts.sources is None:
            raise ValueError("--comet: needs the source sentences: give --source FILE")
        if self.comet and len(texts.references) > 1:
            raise ValueError(f"--comet: reads one reference, not {len(texts.references)}: leave one --reference")

    def stages(self, translations: list[str], texts: Texts) -> Iterator[dict[str, Score]]:
        """Yields the scores, and again with COMET's, whose program may fail when all else is there."""
        scores = score_with_intervals(translations, texts.references, self.language, self.given)
        yield scores
        if self.comet:
            sides = texts.sources, translations, texts.references[0]
            yield {**scores, "comet": score_comet(self.comet, *sides, on_gpu=self.device.startswith("cuda"))}


_FACTS = ("truncated_sources", "unfinished_translations", "seconds")  # of a translation, as it happened


def _translate(
    translator: Translator, sources: list[str], progress: Callable[[int], None] | None
) -> tuple[list[str], dict[str, float]]:
    """Returns the best translations and the facts about them; seconds are those of translating."""
    start = time.monotonic()
    found = translator.translate_best(sources, progress)
    truncated, unfinished = sum(t.source_truncated for t in found), sum(t.unfinished for t in found)
    values = truncated, unfinished, round(time.monotonic() - start, 3)
    return [t.text for t in found], dict(zip(_FACTS, values, strict=True))


def _search(decode: DecodeConfig, corpus: CorpusConfig, tags: str | None) -> DecodeConfig:
    """Returns the search settings for a corpus, with the given tags or its own."""
    own = corpus.tags if tags is None else tags
    return decode if own is None else dataclasses.replace(decode, tags=own)


def _made_by(run_dir: Path, checkpoint: str, decode: DecodeConfig, device: str) -> dict[str, Any]:
    """Returns all that translations depend on beside the text, as JSON values."""
    saved = pointed(run_dir, checkpoint)
    state = read_state(saved)
    return {
        "checkpoint": saved.name,
        "step": state["step"],
        "weights": state.get("sha256", {}).get(MODEL),
        "tokenizer": state["tokenizer_fingerprint"],
        "decode": asdict(decode),
        "device": device,
        "versions": versions(),
        "program": program_sha256(),
    }


def _test_corpora(
    data: DataConfig,
    run_dir: Path,
    source: Path | str | None,
    reference: Path | str | list[Path] | None,
    test_set: str | None,
) -> dict[str, tuple[str, CorpusConfig, list[str]]]:
    """Returns by the names of their results: a label for messages, the corpus, and the files of further references."""
    references = reference if isinstance(reference, list) else [] if reference is None else [reference]
    if (source is None) != (not references):
        missing = "reference" if source is not None else "source"
        raise ValueError(f"evaluate: {missing} is missing: give both --source and --reference, or neither")
    if test_set is not None:
        if source is not None:
            raise ValueError(f"--test-set={test_set}: has a source and references of its own: leave --source out")
        languages = data.source_language, data.target_language
        source, references = known_test_set(test_set, languages, "--test-set")
    if source is not None:
        first, *more = map(str, references)
        return {
            Path(source).name.removesuffix(".gz"): ("evaluate", CorpusConfig(source=str(source), target=first), more)
        }
    if not data.test:
        raise ValueError(f"{run_dir}: the run has no data.test: give --source FILE and --reference FILE")
    return {name: (f"data.test.{name}", corpus, []) for name, corpus in data.test.items()}
