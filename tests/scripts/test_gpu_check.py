"""The check for GPUs as a dry run on a CPU: every part at tiny sizes, by the code that a GPU runs."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))  # where the scripts find one another

import gpu_check

ROOT = Path(__file__).parents[2]
WITHOUT_PACKAGES = """
import json, sys
sys.path.insert(0, "scripts")
sys.modules["sentencepiece"] = sys.modules["pyarrow"] = None
import gpu_check
options = gpu_check.parse(["--device", "cpu"])
parts = ("feeding", "demo", "speed base")
print(json.dumps([result for part in parts for result in gpu_check.run_part(part, options)]))
"""


def part(name):
    return list(gpu_check.run_part(name, gpu_check.parse(["--device", "cpu"])))


def test_kernels_and_speed():
    assert part("device")[0]["attention"] == "attend_varlen"
    assert [result["equal"] for result in part("kernels")] == [True, True, True]
    (result,) = part("speed base")
    assert result["tokens_per_second"] > 0 and result["peak_tflops"] is None and result["mode"] == "not compiled"
    (result,) = part("feeding")[:1]
    assert result["tokens_per_second"] > 0


@pytest.mark.slow
def test_a_missing_package_is_named_and_costs_only_the_parts_that_need_it():
    command, environment = [sys.executable, "-c", WITHOUT_PACKAGES], {"PYTHONPATH": ".", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT, env=environment)
    *skipped, speed = json.loads(done.stdout)
    assert skipped == [{"part": part, "skipped": "needs the package sentencepiece"} for part in ("feeding", "demo")]
    assert speed["tokens_per_second"] > 0


@pytest.mark.slow
def test_the_whole_script_prints_a_line_for_each_part():
    command = ["sh", str(ROOT / "scripts" / "gpu_check.sh"), "--device", "cpu"]
    environment = {"PYTHON": sys.executable, "PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert {line["part"] for line in lines} == set(gpu_check.PARTS) and not [line for line in lines if "failed" in line]
    by_part = {line["part"]: line for line in lines}
    assert by_part["graphs"]["one_graph"] and by_part["graphs"]["batches"] == 30
    assert by_part["speed big compiled"]["mode"] == "default"
