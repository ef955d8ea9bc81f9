from pathlib import Path

import pytest


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["score", "RUN", "--source", "a.en", "--target", "b.en"], "mt score.source=a.en: No such file or directory"),
        (["score", "nowhere", "--source", "a.en", "--target", "b.en"], "a.en: No such file or directory"),
    ],
)
def test_errors_are_one_line_and_exit_code_2(run_mt, run_dir: Path, arguments: list[str], message: str) -> None:
    code, out, err = run_mt(*(run_dir if argument == "RUN" else argument for argument in arguments))
    assert (code, out) == (2, b"") and message in err
    errors = [line for line in err.splitlines() if not line.startswith("warning: ")]
    assert len(errors) == 1 and errors[0].startswith("error: ")


def test_what_scoring_cuts_is_told(run_mt, run_dir, tmp_path):
    (tmp_path / "source").write_text("the ox\n" + "the ox " * 3000 + "\n")
    (tmp_path / "target").write_text("the ox\nthe ox\n")
    code, out, err = run_mt("score", run_dir, "--source", "source", "--target", "target")
    assert code == 0 and out.count(b"\n") == 2
    assert "of 2 pairs 1 are longer than 1024 source or 1027 target tokens and were cut" in err
