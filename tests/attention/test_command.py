"""mt attention from the command line."""

import sys
from pathlib import Path

import pytest

from mt.__main__ import main


@pytest.fixture
def run_mt(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]):
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str | Path) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["mt", "attention", *map(str, arguments)])
        with pytest.raises(SystemExit) as stopped:
            main()
        sys.stdout.flush()
        out, err = capfdbinary.readouterr()
        return stopped.value.code or 0, out.decode(), err.decode()

    return call


def test_tables_of_all_kinds_and_layers(run_mt, run_dir: Path) -> None:
    code, out, err = run_mt(run_dir, "I love china", "--prefix", "我")
    assert (code, err) == (0, "")
    titles = [line for line in out.split("\n") if line.startswith("# ")]
    assert len(titles) == 2 + 3 + 3 + 1 and titles[0] == "# encoder self-attention, layer 1, mean of 3 heads"
    code, out, _ = run_mt(run_dir, "I love china", "--target", "我爱", "--kind", "encoder", "--each-head")
    assert code == 0 and out.count("# encoder") == 2 * 3 and "decoder" not in out


@pytest.mark.slow
def test_files_and_nothing_on_stdout(run_mt, run_dir: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    code, out, err = run_mt(run_dir, "I love china", "--target", "x", "--png", "a.png", "--html", "a.html")
    assert (code, out, err) == (0, "", "")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert "<title>Attention: I love china</title>" in (tmp_path / "a.html").read_text(encoding="utf-8")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.html", "a.png"]


def test_the_walk_through_goes_to_a_file_with_its_pictures(run_mt, run_dir: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    code, out, err = run_mt(run_dir, "--explain", "--output", "walk.md")
    assert (code, out) == (0, "") and ("no installed font has" in err or not err)
    names = ["walk.md", "walk_heads.png", "walk_softmax.png", "walk_translating.png"]
    assert sorted(file.name for file in tmp_path.iterdir()) == names
    text = (tmp_path / "walk.md").read_text(encoding="utf-8")
    assert all(f"({name})" in text for name in names[1:])
    code, out, _ = run_mt("--explain")
    assert code == 0 and out.startswith("# Attention, step by step\n") and "![" not in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give RUN and TEXT"),
        (["RUN"], "give RUN and TEXT"),
        (["RUN", "a", "--target", "b", "--prefix", "c"], "either --target or --prefix"),
        (["RUN", "a", "--each-head", "--head", "1"], "--head=1: is one head"),
        (["RUN", "a", "--output", "b.md"], "--output=b.md: is for --explain"),
        (["RUN", "a", "--target", "b", "--head", "4"], "--head=4: must be between 1 and 3"),
        (["RUN", "a", "--target", "b", "--kind", "all"], "--kind=all: must be one of"),
        (["RUN", " "], "nothing to look at"),
        (["RUN", "a", "--html", "no/b.html"], "there is no folder"),
        (["--explain", "RUN", "a"], "TEXT: has no meaning with --explain"),
        (["--explain", "--layer", "1"], "--layer: has no meaning with --explain"),
        (["--explain", "--output", "no/b.md"], "there is no folder"),
    ],
)
def test_errors_are_one_line(run_mt, run_dir: Path, arguments: list[str], message: str) -> None:
    code, out, err = run_mt(*(run_dir if argument == "RUN" else argument for argument in arguments))
    assert (code, out) == (2, "") and err.count("\n") == 1 and message in err
