"""Every command of docs/recipes.md runs, section by section, on a dozen pairs with a small model."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mt.__main__ import main

pytestmark = pytest.mark.slow
PAGE = (Path(__file__).parents[1] / "docs" / "recipes.md").read_text(encoding="utf-8")
SMALL = {
    "device": "cpu", "model.d_model": 16, "model.d_ff": 32, "model.n_heads": 2, "model.encoder_layers": 1,
    "model.decoder_layers": 1, "trainer.max_steps": 5, "trainer.save_every_steps": 1, "trainer.max_epochs": "null",
    "trainer.tensorboard": "false", "decode.max_length_ratio": 1, "decode.max_length_offset": 2, "optim.lr": 0.01,
    "data.cleaning.drop_held_out": "none",  # one small corpus stands for all
}  # fmt: skip
PAIRS = [
    (f"The {size} {animal} sees {count} trees.", f"{count} Bäume sieht: {animal} ({size}).")
    for size in ("old", "young")
    for animal in ("dog", "horse", "bird")
    for count in (2, 3)
]


def sections() -> dict[str, list[str]]:
    """Returns the commands below each heading; indented lines are commands, and go on after a backslash."""
    found = {}
    for section in re.split(r"^##? ", PAGE, flags=re.MULTILINE)[1:]:
        title, text = section.split("\n", 1)
        code = "\n".join(line.strip() for line in text.split("\n") if line.startswith("    "))
        commands = code.replace("\\\n", " ").split("\n")
        if commands != [""]:
            found[title] = commands
    return found


SECTIONS = sections()


def run(command: str) -> None:
    """Runs a command in the working directory: mt's in this process, made small; others by the shell."""
    program, *arguments = shlex.split(command)
    if program != "mt":
        subprocess.run(command, shell=True, check=True)
        return
    if arguments[0] == "train":
        given = {argument.split("=")[0] for argument in arguments}
        arguments += [f"{key}={value}" for key, value in SMALL.items() if key not in given]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["mt", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
    assert ended.value.code == 0, command


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the corpus, German text, and the run that the page's first command makes."""
    folder = tmp_path_factory.mktemp("recipes")
    corpus = folder / "data" / "tatoeba_en_de"
    corpus.mkdir(parents=True)
    for split in ("train", "valid", "test"):
        (corpus / f"{split}.tsv").write_text("".join(f"{s}\t{t}\n" for s, t in PAIRS), encoding="utf-8")
    (folder / "data" / "mono.de").write_text("".join(f"{t}\n" for _, t in PAIRS[::2]), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for command in SECTIONS["Recipes"]:
            run(command)
    return folder


@pytest.fixture
def work_folder(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of that folder, so that sections do not depend on each other."""
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def corpus_pairs(run_dir: Path) -> int:
    """Returns how many pairs a run was trained on, from its log."""
    return int(re.search(r"([\d,]+) training pairs", (run_dir / "log.jsonl").read_text()).group(1).replace(",", ""))


CHAINS = "Back-translation", "Distillation"  # several commands that build on each other; the others are slow together
TITLES = [
    pytest.param(title, marks=() if title.startswith(CHAINS) else pytest.mark.slow)
    for title in SECTIONS
    if title != "Recipes"
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("title", TITLES)
def test_every_command_of_the_section_runs(work_folder: Path, title: str) -> None:
    for command in SECTIONS[title]:
        run(command)
    if title.startswith("Back-translation"):
        assert (work_folder / "data" / "mono.en").read_bytes().count(b"\n") == 6
        reverse = (work_folder / "runs/tatoeba_de_en/config.yaml").read_text()
        assert "source_language: de" in reverse and "source_field: '1'" in reverse
        made_up = corpus_pairs(work_folder / "runs/back_translation") - 12  # without those of an empty translation
        assert 0 <= made_up <= 6
        settings = (work_folder / "runs/back_translation/config.yaml").read_text()
        assert "tags: <back>" in settings and settings.count("weight: 1.0") == 2
        assert "from_step: 20000" in (work_folder / "runs/back_translation_staged/config.yaml").read_text()
    if title.startswith("Distillation"):
        assert (work_folder / "data" / "train.distilled.de").read_bytes().count(b"\n") == 12
        assert "tatoeba_en_de/train.tsv" not in (work_folder / "runs/student/config.yaml").read_text()
        assert "bleu" in json.loads((work_folder / "runs/student/results/tatoeba.json").read_bytes())
