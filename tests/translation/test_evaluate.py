"""mt.translation.evaluate on real run folders: what is written where, and that its scores are those of training."""

import dataclasses
import json
import random
import warnings
from pathlib import Path

import pytest
from sacrebleu.metrics import BLEU

from mt.checkpoint import load_config, pointed, read_state
from mt.config import (
    CleaningConfig,
    CorpusConfig,
    DataConfig,
    DecodeConfig,
    ModelConfig,
    OptimConfig,
    TokenizerConfig,
    TrainConfig,
    TrainerConfig,
)
from mt.evaluation.metrics import Score
from mt.training.run import train
from mt.translation.evaluate import evaluate, evaluate_file
from mt.translation.translator import Translator

WORDS = "red tea rice good books day they read every morning drink love".split()
pytestmark = pytest.mark.filterwarnings("ignore")


def write_corpus(file: Path, count: int, seed: int) -> CorpusConfig:
    generator = random.Random(seed)
    lines = [" ".join(generator.choices(WORDS, k=generator.randint(1, 6))) for _ in range(count)]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(f"{line}\t{line}.\n" for line in lines), encoding="utf-8")
    return CorpusConfig(path=str(file))


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model trained for a few updates, with two test corpora whose files have the same name."""
    folder = tmp_path_factory.mktemp("evaluate")
    data = DataConfig(
        target_language="en",
        train={"main": write_corpus(folder / "train.tsv", 200, 0)},
        valid={"main": write_corpus(folder / "valid.tsv", 12, 1)},
        test={
            "spring": write_corpus(folder / "spring" / "test.tsv", 5, 2),
            "autumn": write_corpus(folder / "autumn" / "test.tsv", 7, 3),
        },
        cache_dir=str(folder / "cache"),
        cleaning=CleaningConfig(max_length_ratio=0),
    )
    config = TrainConfig(
        run_dir=str(folder / "run"),
        data=data,
        tokenizer=TokenizerConfig(vocabulary_size=300),
        model=ModelConfig(32, 64, 2, 1, 1, dropout=0.0),
        optim=OptimConfig(lr=1e-2, warmup_steps=5),
        trainer=TrainerConfig(max_steps=60, batch_tokens=500, validate_every_steps=30, tensorboard=False),
        decode=DecodeConfig(beam_size=2),
    )
    train(config, [])
    return folder / "run"


def test_each_test_corpus_has_results_of_its_own(run_dir: Path) -> None:
    results = evaluate(run_dir)
    assert {name: result.sentences for name, result in results.items()} == {"spring": 5, "autumn": 7}
    for name, result in results.items():
        assert result.translations_file == run_dir / "results" / f"{name}.hyp.txt"
        lines = result.translations_file.read_bytes().decode().split("\n")[:-1]
        record = json.loads(result.scores_file.read_bytes())
        assert len(lines) == record["sentences"] == result.sentences
        assert record["corpus"]["path"].endswith(f"{name}/test.tsv")
        assert set(result.scores) == {"bleu", "chrf", "chrf++", "ter"} <= set(record)
        score = result.bleu
        assert record["bleu"] == {"value": score.value, "signature": score.signature, **vars(score.interval)}


def test_bleu_in_training_equals_evaluate_on_the_same_text_and_sacrebleu_on_the_saved_lines(run_dir: Path) -> None:
    config = load_config(run_dir)
    sides = [[], []]
    for line in Path(config.data.valid["main"].path).read_text(encoding="utf-8").splitlines():
        for side, text in zip(sides, line.split("\t"), strict=True):
            side.append(text)
    for file, lines in zip(("valid.source", "valid.reference"), sides, strict=True):
        (run_dir.parent / file).write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    decode = dataclasses.replace(config.decode, beam_size=config.trainer.validation_beam_size)
    files = (run_dir.parent / "valid.source", run_dir.parent / "valid.reference")
    (result,) = evaluate(run_dir, *files, decode=decode).values()
    step = read_state(pointed(run_dir, "best"))["step"]
    events = [json.loads(line) for line in (run_dir / "log.jsonl").read_bytes().splitlines()]
    (in_training,) = [event for event in events if event["event"] == "valid" and event["step"] == step]
    assert result.bleu.value > 1, "a score of 0 would show nothing"
    assert result.bleu.value == pytest.approx(in_training["bleu"], abs=0.01)
    assert result.chrf.value == pytest.approx(in_training["chrf"], abs=0.01)
    saved = result.translations_file.read_bytes().decode().split("\n")[:-1]
    assert result.bleu.value == pytest.approx(BLEU(force=True).corpus_score(saved, [sides[1]]).score, abs=1e-6)
    record = json.loads(result.scores_file.read_bytes())
    assert record["decode"] == dataclasses.asdict(decode)


def test_the_bleu_tokenizer_can_be_chosen_and_a_wrong_one_is_refused_at_once(run_dir: Path, tmp_path: Path) -> None:
    results = evaluate(run_dir, bleu_tokenizer="char", output_dir=tmp_path / "out")
    assert all("tok:char" in result.bleu.signature for result in results.values())
    with pytest.raises(ValueError, match="BLEU tokenizer '14a': must be one of"):
        evaluate(run_dir, bleu_tokenizer="14a", output_dir=tmp_path / "none", checkpoint="not looked for")
    assert not (tmp_path / "none").exists()


def test_results_of_other_text_are_never_replaced(run_dir: Path, tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        for side in ("en", "de"):
            (tmp_path / folder / f"test.{side}").write_text(f"{folder} tea\nrice\n")
    out = tmp_path / "out"
    arguments = {folder: (run_dir, *(tmp_path / folder / f"test.{side}" for side in ("en", "de"))) for folder in "ab"}
    (first,) = evaluate(*arguments["a"], output_dir=out).values()
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    with pytest.raises(ValueError, match=r"test.en.json: was made from other text .*another --output-dir"):
        evaluate(*arguments["b"], output_dir=out)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    greedy = DecodeConfig(beam_size=1)  # the same text with other settings replaces, and says so in the file
    evaluate(*arguments["a"], output_dir=out, decode=greedy)
    assert json.loads(first.scores_file.read_bytes())["decode"]["beam_size"] == 1
    (out / "test.en.json").unlink()
    (out / "test.en.hyp.txt").write_text("somebody's own file\n")
    with pytest.raises(ValueError, match="test.en.hyp.txt: was made from other text"):
        evaluate(*arguments["a"], output_dir=out)


@pytest.fixture
def translated(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Returns a list of what the models are made to translate; the program counts as one whose files are committed."""
    seen: list[str] = []
    translate_n_best = Translator.translate_n_best

    def count(self: Translator, texts: list[str], *others: object) -> list:
        seen.extend(texts)
        return translate_n_best(self, texts, *others)

    monkeypatch.setattr(Translator, "translate_n_best", count)
    monkeypatch.setattr("mt.translation.evaluate.versions", lambda: {"mt": "1", "git_commit": "abc"})
    return seen


def test_nothing_is_translated_twice_in_the_same_way(run_dir: Path, tmp_path: Path, translated: list[str]) -> None:
    first = evaluate(run_dir, output_dir=tmp_path)
    assert len(translated) == 12 and not first["spring"].reused
    again = evaluate(run_dir, output_dir=tmp_path, bleu_tokenizer="char")
    assert len(translated) == 12 and again["spring"].reused and again["autumn"].reused
    assert again["spring"].translations == first["spring"].translations
    assert "tok:char" in json.loads(again["spring"].scores_file.read_bytes())["bleu"]["signature"]
    assert again["spring"].record["seconds"] == first["spring"].record["seconds"]


@pytest.mark.slow
def test_whatever_is_not_the_same_is_translated_again(
    run_dir: Path, tmp_path: Path, translated: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def sentences_translated(**arguments: object) -> int:
        before = len(translated)
        evaluate(run_dir, output_dir=tmp_path, **arguments)
        return len(translated) - before

    assert (sentences_translated(), sentences_translated()) == (12, 0)
    assert sentences_translated(decode=DecodeConfig(beam_size=1)) == 12
    assert sentences_translated() == 12
    file = tmp_path / "spring.hyp.txt"
    content = file.read_bytes()
    file.write_bytes(content.replace(b"e", b"E", 1))
    assert (sentences_translated(), sentences_translated()) == (5, 0)
    assert file.read_bytes() == content
    file.unlink()
    assert sentences_translated() == 5
    record = json.loads((tmp_path / "autumn.json").read_bytes())
    (tmp_path / "autumn.json").write_text(json.dumps({**record, "weights": "other"}))
    assert sentences_translated() == 7
    for versions, translated_again in (
        ({"mt": "2", "git_commit": "abc"}, 12),
        ({"mt": "2", "git_commit": "abc-dirty"}, 0),
        ({"mt": "2", "git_commit": None}, 0),
        ({"mt": "3", "git_commit": None}, 12),
    ):
        monkeypatch.setattr("mt.translation.evaluate.versions", lambda made=versions: made)
        assert sentences_translated() == translated_again
    monkeypatch.setattr("mt.translation.evaluate.program_sha256", lambda: "other files, whatever their commit")
    assert (sentences_translated(), sentences_translated()) == (12, 0)


def test_several_references_are_one_test_set(run_dir: Path, tmp_path: Path) -> None:
    for name, text in {"src": "tea\nrice\n", "one": "tea.\nx\n", "two": "y\nrice.\n", "short": "tea.\n"}.items():
        (tmp_path / name).write_text(text)
    references = [tmp_path / "one", tmp_path / "two"]
    (result,) = evaluate(run_dir, tmp_path / "src", references, output_dir=tmp_path / "out").values()
    assert result.texts.references == [["tea.", "x"], ["y", "rice."]]
    assert all("nrefs:2|" in score.signature for score in result.scores.values())
    assert result.record["more_references"] == [str(tmp_path / "two")]
    with pytest.raises(ValueError, match="/one has 2 lines, .*/short has 1"):
        evaluate(run_dir, tmp_path / "src", [tmp_path / "one", tmp_path / "short"], output_dir=tmp_path / "other")


def test_a_file_scores_as_the_run_that_wrote_it(run_dir: Path, tmp_path: Path) -> None:
    result = evaluate(run_dir, output_dir=tmp_path)["spring"]
    for name, lines in {"src": result.texts.sources, "ref": result.texts.references[0]}.items():
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    found = evaluate_file(result.translations_file, [tmp_path / "ref"], tmp_path / "src", "en")
    assert (found.scores, found.translations, found.texts) == (result.scores, result.translations, result.texts)
    with pytest.raises(ValueError, match=r"spring.hyp.txt has 5 lines, .*autumn.hyp.txt has 7"):
        evaluate_file(result.translations_file, [tmp_path / "autumn.hyp.txt"])
    (tmp_path / "empty").write_text("")
    with pytest.raises(ValueError, match="empty: the file is empty"):
        evaluate_file(tmp_path / "empty", [tmp_path / "empty"])


def test_comet_is_one_more_score_where_it_can_be(
    run_dir: Path, tmp_path: Path, translated: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def score(comet: str, sources: list[str], hypotheses: list[str], references: list[str], on_gpu: bool) -> Score:
        assert (comet, len(sources), len(references)) == ("found m", len(hypotheses), len(hypotheses)) and not on_gpu
        return Score("COMET", 0.5, "model:m")

    monkeypatch.setattr("mt.translation.evaluate.find_comet", lambda model: f"found {model}")
    monkeypatch.setattr("mt.translation.evaluate.score_comet", score)
    results = evaluate(run_dir, output_dir=tmp_path, device="cpu", comet="m")
    for result in results.values():
        assert list(result.scores) == ["bleu", "chrf", "chrf++", "ter", "comet"]
        assert json.loads(result.scores_file.read_bytes())["comet"] == {"value": 0.5, "signature": "model:m"}
    file = tmp_path / "spring.hyp.txt"
    with pytest.raises(ValueError, match="--comet: needs the source sentences: give --source"):
        evaluate_file(file, [file], comet="m")
    with pytest.raises(ValueError, match="--comet: reads one reference, not 2"):
        evaluate_file(file, [file, file], file, comet="m")


def test_where_comet_fails_all_else_is_kept(
    run_dir: Path, tmp_path: Path, translated: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*sides: object, on_gpu: bool) -> Score:
        raise ValueError("comet-score: failed")

    monkeypatch.setattr("mt.translation.evaluate.find_comet", lambda model: model)
    monkeypatch.setattr("mt.translation.evaluate.score_comet", fail)
    with pytest.raises(ValueError, match="comet-score: failed"):
        evaluate(run_dir, output_dir=tmp_path, comet="m")
    record = json.loads((tmp_path / "spring.json").read_bytes())
    assert len(translated) == 5 and "bleu" in record and "comet" not in record
    results = evaluate(run_dir, output_dir=tmp_path)
    assert results["spring"].reused and len(translated) == 12


def test_a_folder_that_cannot_hold_results_is_refused_before_translating(
    run_dir: Path, tmp_path: Path, translated: list[str]
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"/file: cannot hold results \(File exists\): choose another --output-dir"):
        evaluate(run_dir, output_dir=tmp_path / "file")
    assert translated == []


def test_progress_counts_over_all_corpora(run_dir: Path, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    with warnings.catch_warnings(action="ignore"):
        evaluate(run_dir, output_dir=tmp_path, progress=lambda done, total: seen.append((done, total)))
    assert seen == sorted(seen) and seen[-1] == (12, 12)
