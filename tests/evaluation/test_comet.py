"""mt.evaluation.comet with a stand-in for comet-score: what it is asked, and what is said where it is missing."""

import sys
from pathlib import Path

import pytest

from mt.evaluation.comet import find_comet, score_comet

PROGRAM = f"""#!{sys.executable}
import json, os, sys
given = dict(zip(sys.argv[1::1], sys.argv[2::1]))
if open(given["--model"]).read() != "weights" or os.environ["HF_HUB_OFFLINE"] != "1":
    sys.exit("first line\\nnot these weights")
sides = [open(given[name]).readlines() for name in ("--sources", "--translations", "--references")]
assert {{"--quiet", "--only_system"}} <= set(sys.argv) and given["--gpus"] in ("0", "1")
assert len(set(map(len, sides))) == 1
rows = [dict(src=s, mt=t, ref=r, COMET=len(t.strip()) / 10 + int(given["--gpus"])) for s, t, r in zip(*sides)]
text = json.dumps({{given["--translations"]: rows}})
open(given["--to_json"], "w").write(os.environ.get("SCORES", text))
print("translations\\tscore: 0.3")
"""


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Puts a comet-score on PATH that scores by the length of the translation; returns the folder of its model."""
    for name, text in {"comet-score": PROGRAM, "python": "#!/bin/sh\necho 2.2.9\n"}.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    folder = tmp_path / "model"
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "checkpoints" / "model.ckpt").write_bytes(b"weights")
    return folder


def test_the_mean_of_the_sentences_with_signature_and_interval(model: Path) -> None:
    comet = find_comet(str(model))
    assert find_comet(str(model / "checkpoints" / "model.ckpt")).checkpoint == comet.checkpoint
    score = score_comet(comet, ["a\rb", "茶\u2028"], ["12", "1234"], ["x", "y"])
    assert score.value == pytest.approx(0.3)
    assert score.interval.mean == pytest.approx(0.3, abs=0.01)
    assert score.interval.half_width == pytest.approx(0.1)  # resamples hold 0.2, 0.3 or 0.4
    digest = "9a129038d9a00aed"  # printf weights | sha256sum
    assert score.signature == f"nrefs:1|bs:1000|seed:12345|model:{model}|sha256:{digest}|version:2.2.9"
    assert str(score).startswith("COMET|nrefs:1") and " = 0.3000 (μ = 0.2" in str(score)
    assert score_comet(comet, ["a"], ["12"], ["x"], on_gpu=True).value == pytest.approx(1.2)


def test_its_failure_is_told(model: Path) -> None:
    (model / "checkpoints" / "model.ckpt").write_bytes(b"damaged")
    with pytest.raises(ValueError, match="comet-score: failed with exit code 1: not these weights"):
        score_comet(find_comet(str(model)), ["a"], ["b"], ["c"])


@pytest.mark.parametrize(
    "written",
    ["", "[]", "{}", '{"a": []}', '{"a": [1]}', '{"a": [{"score": 1}]}', '{"a": [{"COMET": NaN}]}', '{"a": null}'],
)
def test_what_is_no_scores_is_told(model: Path, monkeypatch: pytest.MonkeyPatch, written: str) -> None:
    monkeypatch.setenv("SCORES", written)
    with pytest.raises(ValueError, match="comet-score: wrote no number for each sentence: is it unbabel-comet 2"):
        score_comet(find_comet(str(model)), ["a"], ["b"], ["c"])


def test_the_locale_does_not_matter(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """comet-score opens its files without naming their encoding."""
    monkeypatch.setenv("PYTHONCOERCECLOCALE", "0")
    monkeypatch.setenv("PYTHONUTF8", "0")
    monkeypatch.setenv("LC_ALL", "C")
    assert score_comet(find_comet(str(model)), ["a"], ["绿茶"], ["c"]).value == pytest.approx(0.2)


def test_a_missing_program_is_named_with_the_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ValueError, match="not on PATH: pipx install unbabel-comet"):
        find_comet("Unbabel/wmt22-comet-da")


@pytest.mark.parametrize("name", ["Unbabel/no-such-model", "no/such/file.ckpt", "."])
def test_a_missing_model_is_named_and_not_downloaded(
    model: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=f"--comet={name}: is no .ckpt file"):
        find_comet(name)
