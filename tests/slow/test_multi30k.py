"""A second corpus through the same commands: Multi30k English-German, 200 updates, then BLEU on its test set."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = [ROOT / "data" / "multi30k", ROOT / ".." / "shared" / "data" / "multi30k-en-de"]
FOLDER = next((folder for folder in FOLDERS if (folder / "train.en.gz").is_file()), None)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(FOLDER is None, reason="Multi30k is not in data/multi30k; data/README.md says where to get it"),
]


def test_200_updates_and_a_score(tmp_path):
    files = {"train": "train", "valid": "val", "test": "test_2016_flickr"}
    places = [
        f"data.{split}.main.{side}={FOLDER / name}.{language}.gz"
        for split, name in files.items()
        for side, language in (("source", "en"), ("target", "de"))
    ]
    run = tmp_path / "run"
    command = [sys.executable, "-m", "mt"]
    settings = [
        "experiment=multi30k_en_de",
        "trainer.max_steps=200",
        f"run_dir={run}",
        f"data.cache_dir={tmp_path}/cache",
    ]
    subprocess.run([*command, "train", *settings, *places], cwd=tmp_path, check=True)
    printed = subprocess.run([*command, "evaluate", str(run)], cwd=tmp_path, check=True, stdout=subprocess.PIPE).stdout
    result = json.loads((run / "results" / "main.json").read_text(encoding="utf-8"))
    assert result["sentences"] == 1000
    assert "tok:13a" in result["bleu"]["signature"] and result["bleu"]["signature"] in printed.decode()
    losses = [json.loads(line) for line in (run / "log.jsonl").open() if '"train"' in line]
    assert losses[-1]["loss"] < losses[0]["loss"] - 1
    assert result["bleu"]["value"] > 0.5 and result["chrf"]["value"] > 10
    hypotheses = (run / "results" / "main.hyp.txt").read_text(encoding="utf-8")
    references = subprocess.run(
        ["gzip", "-dc", str(FOLDER / "test_2016_flickr.de.gz")], check=True, stdout=subprocess.PIPE
    ).stdout
    (tmp_path / "reference").write_bytes(references)
    (tmp_path / "hypotheses").write_text(hypotheses, encoding="utf-8")
    scored = subprocess.run(
        [
            sys.executable,
            "-m",
            "sacrebleu",
            str(tmp_path / "reference"),
            "-i",
            str(tmp_path / "hypotheses"),
            "-b",
            "-w",
            "4",
        ],
        check=True,
        stdout=subprocess.PIPE,
    )
    assert float(scored.stdout) == pytest.approx(result["bleu"]["value"], abs=1e-3)
