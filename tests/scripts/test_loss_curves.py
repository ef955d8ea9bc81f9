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


def curves_table(folder, capsys, **changes):
    """The names of the columns, and the rows of numbers."""
    for name, lines in (("t.en", SOURCE), ("t.de", TARGET)):
        (folder / name).write_text("".join(line + "\n" for line in lines * 30), encoding="utf-8")
    settings = dict(dropout=0.0, updates=6, every=3, batch_tokens=300, threads=2) | changes
    loss_curves.main(argparse.Namespace(source=folder / "t.en", target=folder / "t.de", work=folder, **settings))
    head, _, *rows = capsys.readouterr().out.strip().split("\n")
    names = [cell.strip() for cell in head.split("|")[2:-1]]
    return names, [[float(cell) for cell in row.split("|")[2:-1]] for row in rows]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:tokenizer")
def test_every_part_of_ours_follows_the_plain_path(tmp_path, capsys):
    names, (first, second, mean, largest) = curves_table(tmp_path, capsys)
    assert names == ["plain", "attention", "loss", "AdamW", "lanes", "all"]
    assert second[0] < first[0] - 0.1  # it learns, so that updates count
    assert max(largest) < 1e-4 and max(mean) < 5e-5
    assert largest[1] > 0 and largest[2] > 0 and largest[4] > 0  # these columns are not the plain path again


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:tokenizer")
def test_with_dropout_the_masks_make_the_difference(tmp_path, capsys):
    names, (_, _, largest) = curves_table(tmp_path, capsys, dropout=0.3, updates=3)
    difference = dict(zip(names, largest, strict=True))
    for name in ("plain, other masks", "dropout", "lanes", "all"):
        assert 1e-4 < difference[name] < 0.1
    for name in ("attention", "loss", "AdamW"):  # the same masks as the plain path's
        assert difference[name] < 1e-4
