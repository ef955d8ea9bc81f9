"""Who may know whom: parses every import under mt/ and fails on an arrow that docs/architecture.md does not have."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "mt"
FILES = sorted(PACKAGE.rglob("*.py"))

# A room may import rooms of a lower level, and itself; rooms of one level do not know each other.
LEVELS = [
    {"config", "durable", "languages", "mapping", "processes", "rows", "threads", "versions", "tensors"},
    {"tokenizer", "model", "evaluation", "documents"},
    {"data", "checkpoint"},
    {"translation", "averaging"},
    {"attention"},
    {"training", "compose", "export"},
    {"serve"},
    {"commands"},
    {"__init__", "__main__"},
]
LEVEL = {room: level for level, rooms in enumerate(LEVELS) for room in rooms}


def room_of(file: Path) -> str:
    return file.relative_to(PACKAGE).with_suffix("").parts[0]


def imported_modules(source: str) -> set[str]:
    """Returns the absolute names of all modules that a source text imports, at its top or inside functions."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            names.add(node.module)
            if node.module == "mt":  # from mt import checkpoint
                names |= {f"mt.{alias.name}" for alias in node.names}
    return names


def wrong_arrows(room: str, source: str) -> list[str]:
    rooms = {name.split(".")[1] for name in imported_modules(source) if name.startswith("mt.")}
    return sorted(other for other in rooms if other != room and not LEVEL[other] < LEVEL[room])


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(PACKAGE)))
def test_imports_point_downwards(file: Path) -> None:
    room = room_of(file)
    assert room in LEVEL, f"{room}: a new room needs its level here and in docs/architecture.md"
    assert wrong_arrows(room, file.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("room", "source", "wrong"),
    [
        ("model", "from mt.tokenizer import PAD_ID", ["tokenizer"]),
        ("data", "def f():\n    from mt import checkpoint", ["checkpoint"]),
        ("training", "import mt.compose", ["compose"]),
        ("translation", "from mt.training.trainer import Trainer", ["training"]),
        ("training", "from mt.translation.translator import Translator", []),
    ],
)
def test_a_wrong_arrow_is_found(room: str, source: str, wrong: list[str]) -> None:
    assert wrong_arrows(room, source) == wrong


def test_only_compose_knows_hydra() -> None:
    who = [room_of(f) for f in FILES if imported_modules(f.read_text(encoding="utf-8")) & {"hydra", "omegaconf"}]
    assert who == ["compose"]


@pytest.mark.parametrize("file", ["mapping.py", *(f"config/{file.name}" for file in (PACKAGE / "config").glob("*.py"))])
def test_settings_need_only_the_standard_library(file: str) -> None:
    names = imported_modules((PACKAGE / file).read_text(encoding="utf-8"))
    others = {name.split(".")[0] for name in names if not name.startswith("mt.config.")}
    assert others <= sys.stdlib_module_names


def test_the_search_knows_no_model() -> None:
    names = imported_modules((PACKAGE / "translation" / "beam.py").read_text(encoding="utf-8"))
    assert not any(name.startswith("mt.model") for name in names)


def test_the_command_line_imports_heavy_modules_late() -> None:
    heavy = "torch", "hydra", "datasets", "sacrebleu", "sentencepiece", "rich", "numpy"
    heavy += "sentencex", "markdown_it", "ctranslate2", "transformers", "matplotlib", "fastapi", "uvicorn", "pydantic"
    code = f"import sys, mt.__main__; print([name for name in {heavy} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert found.strip() == "[]"
