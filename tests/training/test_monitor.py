import io
import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest

from mt.training import monitor
from mt.training.monitor import Monitor


def records(run_dir: Path) -> list[dict]:
    lines = (run_dir / "log.jsonl").read_bytes().split(b"\n")
    return [json.loads(line, parse_constant=pytest.fail) for line in lines[:-1]]


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def test_the_log_has_one_object_a_line_in_order(tmp_path, capsys):
    with Monitor(tmp_path, tensorboard=False) as run:
        run.message("下一行\u2028 [bold]")
        run.train(50, {"loss": 2.5, "tokens_per_second": 12345.6}, 0.1)
        run.train(100, {"loss": math.nan}, 0.2)
        run.validation(100, {"bleu": 12.25}, [("tea\x1b[2J", "红茶", "茶\u2028")])
        run.event("save", {"step": 100, "checkpoint": "step_00000100"})
    log = records(tmp_path)
    assert [record["event"] for record in log] == ["message", "train", "train", "valid", "save"]
    assert log[0]["text"] == "下一行\u2028 [bold]" and "下一行".encode() in (tmp_path / "log.jsonl").read_bytes()
    assert (log[1]["step"], log[1]["loss"]) == (50, 2.5) and log[2]["loss"] is None
    assert log[3]["samples"] == [{"source": "tea\x1b[2J", "reference": "茶\u2028", "translation": "红茶"}]
    captured = capsys.readouterr()
    assert captured.out == ""
    lines = captured.err.split("\n")
    assert lines[0] == "下一行\u2028 [bold]"
    assert lines[1] == " 10%  step 50  loss 2.5  tokens/s 12,346  left ?"
    assert lines[4].split() == ["source", "tea", "[2J"] and "\x1b" not in captured.err  # no control of the terminal
    assert lines[3] == "step 100  validation: bleu 12.25" and lines[5].split() == ["translation", "红茶"]


def test_a_resumed_run_appends_after_a_half_written_line(tmp_path):
    with Monitor(tmp_path, tensorboard=False) as run:
        run.train(1, {}, 0.1)
    with (tmp_path / "log.jsonl").open("ab") as log:
        log.write(b'{"event": "tr')
    with Monitor(tmp_path, tensorboard=False) as run:
        run.train(2, {}, 0.2)
    lines = (tmp_path / "log.jsonl").read_bytes().split(b"\n")
    assert [json.loads(lines[i])["step"] for i in (0, 2)] == [1, 2]
    assert lines[1] == b'{"event": "tr' and lines[3:] == [b""]


def test_time_left_counts_from_where_this_session_began(tmp_path, capsys, monkeypatch):
    seconds = iter([100.0, 160.0, 220.0])
    monkeypatch.setattr(monitor.time, "monotonic", lambda: next(seconds))
    with Monitor(tmp_path, tensorboard=False) as run:
        for step, progress in ((50, 0.5), (60, 0.6), (100, 1.0)):
            run.train(step, {}, progress)
    left = [line.rsplit("left ", 1)[1] for line in capsys.readouterr().err.strip().split("\n")]
    assert left == ["?", "0:04:00", "0:00:00"]


def test_a_terminal_gets_a_bar_on_stderr(tmp_path, monkeypatch, capsys):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "150")
    with Monitor(tmp_path, tensorboard=False) as run:
        run.message("[red]plain[/red] :smile:")
        run.train(50, {"loss": 2.5}, 0.25)
    shown = terminal.getvalue()
    assert "[red]plain[/red] :smile:" in shown and "25%" in shown and "loss 2.5" in shown and "━" in shown
    assert capsys.readouterr().out == ""
    run.close()


def test_tensorboard_has_scalars_and_hides_what_a_resumed_run_repeats(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for steps in ((1, 2, 3), (2, 3, 4)):
        with Monitor(tmp_path, tensorboard=True) as run:
            for step in steps:
                run.train(step, {"loss": float(step + 10 * steps[0])}, step / 10)
            run.validation(step, {"bleu": 1.0}, [("tea", "*茶*", "茶")])
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert {(e.step, e.value) for e in events.Scalars("train/loss")} == {(1, 11.0), (2, 22.0), (3, 23.0), (4, 24.0)}
    assert [e.step for e in events.Scalars("valid/bleu")] == [4]
    assert "*茶*" in events.Tensors("valid/samples/text_summary")[0].tensor_proto.string_val[0].decode()


def test_without_tensorboard_it_says_so_once(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with Monitor(tmp_path, tensorboard=True) as run:
        run.train(1, {}, 0.1)
        run.train(2, {}, 0.2)
    assert capsys.readouterr().err.count("pip install tensorboard") == 1
    assert not (tmp_path / "tensorboard").exists()


def test_tensorboard_has_images(tmp_path):
    pytest.importorskip("tensorboard")
    pytest.importorskip("matplotlib")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    pixels = np.linspace(0, 1, 4 * 6 * 4, dtype=np.float32).reshape(4, 6, 4)
    with Monitor(tmp_path, tensorboard=True) as run:
        assert not run.shows_images
        run.train(1, {"loss": 1.0}, 0.1)
        assert run.shows_images
        run.image(1, "valid/attention_1", pixels)
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    (image,) = events.Images("valid/attention_1")
    assert (image.step, image.height, image.width) == (1, 4, 6)


def test_without_matplotlib_there_are_curves_and_no_images(tmp_path, monkeypatch, capsys):
    pytest.importorskip("tensorboard")
    monkeypatch.setattr(monitor.importlib.util, "find_spec", lambda name: None)
    with Monitor(tmp_path, tensorboard=True) as run:
        run.train(1, {}, 0.1)
        run.train(2, {}, 0.2)
        assert not run.shows_images
    assert capsys.readouterr().err.count("pip install matplotlib") == 1 and (tmp_path / "tensorboard").exists()
