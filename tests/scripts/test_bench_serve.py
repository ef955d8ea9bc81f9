"""The load on a server: bounded, counted, compared."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.export.small_runs import sentences

pytest.importorskip("uvicorn", reason="needs mt's extra serve")
from tests.serve.small_server import make_run

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_each_load_is_one_line(tmp_path):
    run = make_run(tmp_path / "small")
    source = tmp_path / "source.tsv"
    source.write_text("".join(f"{text}\tsomething\n" for text in sentences(15)) + "\n", encoding="utf-8")
    options = ["--requests", "24", "--slow-requests", "6", "--clients", "1", "6", "--beam-size", "2"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    shown = subprocess.run(
        [sys.executable, ROOT / "scripts" / "bench_serve.py", run, "--source", source, *options],
        capture_output=True, text=True, env=environment, timeout=300,
    )  # fmt: skip
    assert shown.returncode == 0, shown.stderr
    *found, gain = [json.loads(line) for line in shown.stdout.splitlines()]
    assert gain["batches_gain"] > 0 and gain["clients"] == 6
    assert [(each["batch_sentences"], each["clients"], each["requests"]) for each in found] == [
        (1, 1, 6), (1, 6, 6), (64, 1, 6), (64, 6, 24),
    ]  # fmt: skip
    assert all(each["wrong"] == each["failed"] == 0 and each["p50_milliseconds"] > 0 for each in found)
