import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

from mt import checkpoint

SCRIPTS = Path(__file__).parents[2] / "scripts"


@pytest.fixture
def demo(tmp_path, monkeypatch) -> ModuleType:
    """The script, with an empty project folder and a data step that does nothing."""
    monkeypatch.syspath_prepend(str(SCRIPTS))
    spec = importlib.util.spec_from_file_location("demo", SCRIPTS / "demo.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module.get_tatoeba_en_zh, "main", lambda argv: None)
    return module


def save(run_dir: Path, step: int, finished: bool) -> None:
    run_dir.mkdir(parents=True, exist_ok=True)
    (run_dir / "config.yaml").write_text("name: demo\n")
    state = {"tokenizer_fingerprint": "", "metrics": {}, "finished": finished}
    path = checkpoint.save_checkpoint(run_dir, step, {"w": torch.zeros(1)}, {}, state)
    checkpoint.point(run_dir, "last", path)
    checkpoint.point(run_dir, "best", path)


def test_training_is_resumed_and_skipped_when_finished(demo, tmp_path, monkeypatch):
    run_dir = tmp_path / "runs" / "demo"
    commands = []

    class Process:
        def __init__(self, command, cwd):
            commands.append(command[2:])
            save(run_dir, len(commands), finished=len(commands) == 2)

        def wait(self) -> int:
            return 0

    monkeypatch.setattr(demo.subprocess, "Popen", Process)
    with pytest.raises(ValueError, match="start the demo again to go on"):
        demo.train(run_dir)
    demo.train(run_dir)
    demo.train(run_dir)
    start = ["mt", "train", "experiment=demo", "run_dir=runs/demo"]
    assert commands == [start, start]


def test_scores_are_computed_once_a_checkpoint_and_lines_are_paired(demo, tmp_path, monkeypatch, capsys):
    run_dir = tmp_path / "runs" / "demo"
    save(run_dir, 5, finished=True)
    evaluations = []

    def run_mt(arguments, standard_input=""):
        if arguments[0] == "evaluate":
            evaluations.append(arguments)
            return f"BLEU = {len(evaluations)}\n"
        return "".join(f"译{i}\n" for i, _ in enumerate(standard_input.strip().split("\n")))

    monkeypatch.setattr(demo, "run_mt", run_mt)
    demo.main()
    demo.main()
    assert len(evaluations) == 1
    save(run_dir, 6, finished=True)
    demo.main()
    assert len(evaluations) == 2
    printed = capsys.readouterr().out
    assert printed.count("BLEU = 1") == 2 and "BLEU = 2" in printed
    assert "I love china" + " " * 23 + "译0" in printed and "What time is it?" in printed


def test_a_failing_command_is_named(demo, monkeypatch):
    monkeypatch.setattr(sys, "executable", "false")
    with pytest.raises(ValueError, match="mt evaluate failed .exit code 1"):
        demo.run_mt(["evaluate", "x"])
