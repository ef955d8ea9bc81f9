"""Each optimisation alone, and all together, make the same updates as the plain path."""

import argparse
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))  # where the benchmarks find one another

import loss_curves

SOURCE = ["a red cup of tea", "rice", "they drink tea every day", "two dogs run over a field of grass"]
TARGET = [
    "eine rote Tasse Tee",
    "Reis",
    "sie trinken jeden Tag Tee",
    "zwei Hunde rennen über ein weites Feld voll Gras",
]


@pytest.mark.filterwarnings("ignore:tokenizer")
def test_every_part_of_ours_follows_the_plain_path(tmp_path, capsys):
    for name, lines in (("t.en", SOURCE), ("t.de", TARGET)):
        (tmp_path / name).write_text("".join(line + "\n" for line in lines * 30), encoding="utf-8")
    loss_curves.main(
        argparse.Namespace(
            source=tmp_path / "t.en", target=tmp_path / "t.de", work=tmp_path, dropout=0.0, updates=6, every=3,
            batch_tokens=300, threads=2,
        )
    )  # fmt: skip
    head, _, *rows = capsys.readouterr().out.strip().split("\n")
    names = [cell.strip() for cell in head.split("|")[2:-1]]
    assert names == ["plain", "attention", "loss", "AdamW", "lanes", "all"]
    first, second, mean, largest = ([float(cell) for cell in row.split("|")[2:-1]] for row in rows)
    assert second[0] < first[0] - 0.1  # it learns, so that updates count
    assert max(largest) < 1e-4 and max(mean) < 5e-5
    assert largest[1] > 0 and largest[2] > 0 and largest[4] > 0  # these columns are not the plain path again
