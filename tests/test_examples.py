"""The examples for clusters: what they start exists, and reads well. No cluster is here to run them on."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from mt.compose import compose

EXAMPLES = Path(__file__).parents[1] / "docs" / "examples"
SCRIPTS = sorted(EXAMPLES.glob("*.sh"))


def check_torchrun(arguments: list[str]) -> None:
    """Reads the arguments as torchrun and mt do."""
    from torch.distributed.run import get_args_parser

    parsed = get_args_parser().parse_args(arguments)
    assert parsed.module and parsed.training_script == "mt" and parsed.training_script_args[0] == "train"
    config = compose(parsed.training_script_args[1:])
    assert config.run_dir.startswith("/shared/") and config.data.cache_dir.startswith("/shared/")
    assert config.trainer.max_session_minutes is None and parsed.max_restarts > 0
    assert parsed.rdzv_backend == "c10d" and parsed.rdzv_endpoint and parsed.rdzv_id


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_scripts_start_what_exists(script):
    if shutil.which("bash"):
        subprocess.run(["bash", "-n", script], check=True)
    text = script.read_text(encoding="utf-8").replace("\\\n", " ")
    assert "export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1" in text
    command = re.search(r"torchrun (--.*?)(?:&|$)", text, re.MULTILINE)
    check_torchrun(shlex.split(command[1]))


def test_the_kubernetes_job_starts_what_exists():
    service, job = yaml.safe_load_all((EXAMPLES / "kubernetes.yaml").read_text(encoding="utf-8"))
    pod = job["spec"]["template"]["spec"]
    container = pod["containers"][0]
    assert container["command"] == ["torchrun"]
    assert {"name": "TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "value": "1"} in container["env"]
    check_torchrun(container["args"])
    assert f"--nnodes={job['spec']['completions']}" in container["args"]
    assert f"--rdzv-endpoint={job['metadata']['name']}-0.{service['metadata']['name']}:29400" in container["args"]
    assert pod["subdomain"] == service["metadata"]["name"]
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
