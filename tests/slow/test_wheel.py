"""A wheel finds its configs/ as an editable install does. Builds one, which fetches hatchling."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def packaged() -> list[Path]:
    """Returns the files of the package that are no Python."""
    files = [file.relative_to(ROOT) for file in (ROOT / "mt").rglob("*") if file.is_file()]
    return [file for file in files if file.suffix not in (".py", ".pyc")]


@pytest.mark.slow
def test_an_installed_wheel_composes(tmp_path: Path) -> None:
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(tmp_path), str(ROOT)]
    subprocess.run(pip, check=True)
    code = "import mt.compose as c; print(c.config_dir()); print(c.compose(['experiment=multi30k_en_de']).name)"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    shown = subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert shown.stdout.split() == [str(tmp_path / "mt" / "configs"), "multi30k_en_de"]
    missing = [file for file in packaged() if not (tmp_path / file).is_file()]
    assert missing == [], "what mt reads beside its Python files, such as evaluation/report.html"
