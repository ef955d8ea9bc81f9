import sys
from pathlib import Path

import pytest

from mt.__main__ import main
from mt.checkpoint import create_run
from mt.config import CorpusConfig, TokenizerConfig, TrainConfig
from mt.tokenizer import train_tokenizers

PAIRS = [(f"red tea {i}", f"roter Tee {i}") for i in range(30)]


@pytest.fixture
def run_mt(monkeypatch, tmp_path: Path, capfdbinary):
    """Runs a command in this process; returns exit code, standard output and standard error."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str | Path) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["mt", *map(str, arguments)])
        with pytest.raises(SystemExit) as stopped:
            main()
            sys.exit(0)
        sys.stdout.flush()
        out, err = capfdbinary.readouterr()
        return stopped.value.code or 0, out.decode(), err.decode()

    return call


@pytest.fixture
def settings(tmp_path: Path) -> list[str]:
    """An experiment's corpora: one pair is empty, one has an entity, one stands in validation."""
    damaged = [("", "leer"), ("tea &amp; rice\x1b[2J", "Tee und Reis"), ("Good day!", "Tag")]
    (tmp_path / "train.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in PAIRS + damaged))
    (tmp_path / "valid.tsv").write_text("good day\tGuten Tag\n")
    return ["data.train.main.path=train.tsv", "data.valid.main.path=valid.tsv", "data.cleaning.html_entities=repair"]


@pytest.fixture
def run_dir(tmp_path: Path, settings: list[str]) -> Path:
    config = TrainConfig(tokenizer=TokenizerConfig(vocabulary_size=400))
    config.data.source_language, config.data.target_language = "en", "de"
    config.data.train = {"main": CorpusConfig(path=str(tmp_path / "train.tsv"))}
    config.data.valid = {"main": CorpusConfig(path=str(tmp_path / "valid.tsv"))}
    with pytest.warns(UserWarning):
        tokenizers = train_tokenizers(PAIRS, config.tokenizer, 1)
    create_run(tmp_path / "run", config, tokenizers, [])
    return tmp_path / "run"


def test_an_experiment_before_anything_is_trained(run_mt, tmp_path: Path, settings: list[str]) -> None:
    before = set(tmp_path.rglob("*"))
    code, out, err = run_mt("data", "default", *settings)
    assert (code, err) == (0, "") and set(tmp_path.rglob("*")) == before
    lines = out.split("\n")
    assert lines[:4] == [
        "# data.train: 33 pairs read, 31 left",
        "step\trepaired_texts\tdropped_pairs\tleft_pairs\tleft_%",
        "read\t0\t0\t33\t100.00",
        "HTML entities\t1\t0\t33\t100.00",
    ]
    assert "held out\t0\t1\t31\t93.94" in lines and "source in valid\t1\t3.03" in lines
    assert lines[lines.index("# source in valid: 1 of 1") :][1:3] == ["  - Good day!", "    Tag"]
    assert lines[lines.index("# source HTML entities: 1 of 1") :][1:3] == [
        "  - tea &amp; rice\\x1b[2J", "    tea & rice\\x1b[2J",
    ]  # fmt: skip
    assert "no tokenizer yet" in out and "# lengths of what is left" in lines


def test_a_run_has_tokens_too(run_mt, run_dir: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    arguments = ["data", run_dir, "data.cleaning.max_tokens=12", "--png", tmp_path / "a.png", "--samples", "0"]
    code, out, err = run_mt(*arguments)
    assert (code, err) == (0, "")
    assert "HTML" not in out and "\ntokens\t0\t" in out and "\nsource\t" in out and " - " not in out
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert run_mt(*arguments)[1] == out


def test_another_runs_tokenizer(run_mt, run_dir: Path, settings: list[str]) -> None:
    code, out, _ = run_mt("data", "default", *settings, "--tokenizer", run_dir)
    assert code == 0 and "\ntokens\t" in out
    code, _, err = run_mt("data", run_dir, "--tokenizer", run_dir)
    assert code == 2 and "--tokenizer" in err and "has no meaning with a run" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["defautl"], "unknown experiment defautl; did you mean default?"),
        (["runs/none"], "runs/none: there is no such folder; give a run's folder or the name of an experiment"),
        (["default", "~data.train.main"], "data.train: no corpus given"),
        (["default", "data.train.main.path=none.tsv"], "data.train.main.path=none.tsv: No such file"),
        (["default", "data.cleaning.drop_held_out=off"], "data.cleaning.drop_held_out=off: must be one of either_side"),
        (["default", "data.cleaning.html_entity=repair"], "did you mean data.cleaning.html_entities?"),
        (["."], "config.yaml: No such file"),
        (["default", "--tokenizer", "none"], "none/tokenizer/source.model: cannot read the tokenizer"),
        (["default", "--png", "none/a.png"], "there is no folder"),
        (["default", "--samples", "-1"], "--samples"),
    ],
)
def test_errors_are_one_line(run_mt, arguments: list[str], message: str) -> None:
    code, out, err = run_mt("data", *arguments)
    assert (code, out) == (2, "") and message in err and err.count("\n") == 1 and err.startswith("error: ")


def test_missing_packages_are_named_before_any_work(run_mt, settings: list[str], monkeypatch) -> None:
    language = ["data.cleaning.min_language_confidence=0.5", "data.cleaning.language_model=lid.176.ftz"]
    for package, more in (("ftfy", ["data.cleaning.mojibake=repair"]), ("fasttext", language)):
        monkeypatch.setitem(sys.modules, package, None)
        code, out, err = run_mt("data", "default", *settings, *more)
        assert (code, out) == (2, "") and f"the package {package}" in err and "pip install 'mt[cleaning]'" in err


def test_scores_can_be_set_by_column(run_mt, tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("0.9\ttea\tTee\n0.1\trice\tReis\n")
    corpus = ["data.train.main={path: a.tsv, source_field: 1, target_field: 2}", "~data.valid.main"]
    code, out, err = run_mt("data", "default", *corpus, "data.cleaning.min_scores={0: 0.5}")
    assert (code, err) == (0, "") and "\nscores\t0\t1\t1\t50.00\n" in out and "score 0\t1\t50.00" in out
    experiment = tmp_path / "own" / "experiment" / "mine.yaml"
    experiment.parent.mkdir(parents=True)
    experiment.write_text(
        "# @package _global_\ndata:\n  train:\n    main: {path: a.tsv, source_field: 1, target_field: 2}\n"
        "  cleaning:\n    min_scores: {0: 0.5}\n"
    )
    assert run_mt("data", "mine", "--config-dir", "own") == (0, out, "")
