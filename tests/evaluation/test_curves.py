import json
from pathlib import Path

import pytest

from mt.evaluation.curves import HEIGHT, LEFT, TOP, WIDTH, chart, read_log, training_charts


def write_log(file: Path, events: list[dict]) -> Path:
    file.write_text("".join(json.dumps(event) + "\n" for event in events), encoding="utf-8")
    return file


def train(step: int, loss: float | None) -> dict:
    return {"event": "train", "step": step, "loss": loss, "learning_rate": step / 1000, "seconds": 1.0}


def test_what_a_resumed_run_did_again_counts_once(tmp_path: Path) -> None:
    valid = {"event": "valid", "step": 20, "loss": 3.0, "perplexity": 20.0, "bleu": 5.0, "chrf": 9.0, "samples": []}
    again = {**valid, "bleu": 6.0}
    events = [
        {"event": "message", "text": "x"},
        train(10, 5.0), train(20, 4.0), valid, train(30, 3.9), {**valid, "step": 30},
        train(15, 4.4), train(20, 4.1), again, train(25, 3.8), train(35, None), {"event": "stop", "step": 35},
    ]  # fmt: skip
    curves = read_log(write_log(tmp_path / "log.jsonl", events))
    assert curves["train.loss"] == [(10, 5.0), (15, 4.4), (20, 4.1), (25, 3.8)]
    assert curves["train.learning_rate"] == [(10, 0.01), (15, 0.015), (20, 0.02), (25, 0.025), (35, 0.035)]
    assert curves["valid.bleu"] == [(20, 6.0)] and curves["valid.chrf"] == [(20, 9.0)], "that of 30 was never reached"


def test_a_line_that_a_kill_cut_off_is_left_out_with_a_warning(tmp_path: Path) -> None:
    file = write_log(tmp_path / "log.jsonl", [train(10, 5.0), train(30, 3.0)])
    file.write_bytes(file.read_bytes().replace(b'\n{"event"', b'\n{"event": "tra\n[1]\n{"event"'))
    with pytest.warns(UserWarning) as warned:
        assert read_log(file)["train.loss"] == [(10, 5.0), (30, 3.0)]
    assert [str(w.message).split(":")[0][-6:] for w in warned] == ["line 2", "line 3"]


def test_whatever_else_stands_in_a_log_is_left_out(tmp_path: Path) -> None:
    """Logs of earlier versions, or of other programs; NaN and Infinity are what Python's json writes by default."""
    odd = '{"event": "train", "step": %s, "loss": %s, "learning_rate": 0.5}'
    lines = [odd % pair for pair in ((1, "NaN"), (2, "Infinity"), (3, '"high"'), (-4, "4.0"), ('"5"', "5.0"))]
    lines += ['{"event": ["train"], "step": 6, "loss": 6.0}', "[" * 100_000, b"\xff".decode("latin-1")]
    (tmp_path / "log.jsonl").write_text("\n".join(lines), encoding="latin-1")
    with pytest.warns(UserWarning) as warned:
        charts = training_charts(tmp_path / "log.jsonl", {})
    assert [str(one.message).split(":")[0][-6:] for one in warned] == ["line 7", "line 8"]
    assert [(one.title, len(one.lines[0].marks)) for one in charts] == [("Learning rate", 3)]


def test_charts_are_made_of_what_was_logged(tmp_path: Path) -> None:
    charts = training_charts(write_log(tmp_path / "log.jsonl", [train(10, 5.0), train(20, 4.0)]), {})
    assert [one.title for one in charts] == ["Loss", "Learning rate"]
    assert [len(line.marks) for line in charts[0].lines] == [2, 0]
    (tmp_path / "empty").write_bytes(b"")
    assert training_charts(tmp_path / "empty", {}) == []
    log = write_log(tmp_path / "log.jsonl", [{"event": "valid", "step": 9, "bleu": 20.0}])
    (scores,) = training_charts(log, {"bleu": "nrefs:1|tok:zh"})
    assert scores.note.endswith("bleu|nrefs:1|tok:zh"), "no score without its signature"


@pytest.mark.parametrize(
    ("points", "labels"),
    [
        ([(0, 0.0), (100, 10.0)], ["0", "2", "4", "6", "8", "10"]),
        ([(1, 9.37), (3000, 1.72)], ["0", "2", "4", "6", "8", "10"]),
        ([(50, 0.0021), (60, 0.0005)], ["0.0005", "0.001", "0.0015", "0.002", "0.0025"]),
        ([(7, 3.0)], ["1", "2", "3", "4", "5"]),
        ([(7, 0.0)], ["-0.6", "-0.4", "-0.2", "0", "0.2", "0.4", "0.6"]),
        ([(2, 0.4000000000000001), (3, 0.4)], ["0.2", "0.3", "0.4", "0.5", "0.6"]),
        ([(1, 2.00001), (2, 2.0)], ["1", "1.5", "2", "2.5", "3", "3.5"]),
        ([(1, 1e-13), (2, 3e-13)], ["1e-13", "1.5e-13", "2e-13", "2.5e-13", "3e-13"]),
    ],
)
def test_axes_are_in_round_numbers_and_hold_every_point(points: list[tuple[int, float]], labels: list[str]) -> None:
    made = chart("t", "", {"one": points})
    assert [tick.label for tick in made.y_ticks] == labels
    updates = [tick.label for tick in made.x_ticks]
    assert updates[0] == "0" and len(updates) == len(set(updates)), "there is no half of an update"
    (line,) = made.lines
    assert len(line.marks) == len(points)
    assert all(LEFT <= x <= WIDTH and TOP <= y <= HEIGHT for x, y, _ in line.marks)
    high = max(points, key=lambda point: point[1])
    assert min(line.marks, key=lambda mark: mark[1])[2] == f"update {high[0]:,}: {high[1]:.4g}"


def test_a_long_curve_is_thinned_and_keeps_its_end() -> None:
    (line,) = chart("t", "", {"one": [(x, float(x)) for x in range(10_000)]}).lines
    assert len(line.marks) <= 401 and line.marks[-1][2] == "update 9,999: 9999"
