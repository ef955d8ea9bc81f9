import gzip
import importlib.util
from collections import Counter
from pathlib import Path

import pytest

from mt.config import CleaningConfig, DataConfig
from mt.data.clean import Cleaner

ROOT = Path(__file__).parents[2]
SPEC = importlib.util.spec_from_file_location("plant_noise", ROOT / "scripts" / "plant_noise.py")
plant_noise = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(plant_noise)

PAIRS = [(f"A dog runs, number {i}, behind the red house.", f"Ein Hund läuft, Nummer {i}, hinter dem roten Haus.")
         for i in range(100, 300)]  # fmt: skip
REPAIRED = {"entities", "mojibake", "invisible characters"}


def test_a_share_is_damaged_and_told(tmp_path: Path, capsys) -> None:
    for side, ending in ((0, "en"), (1, "de")):
        (tmp_path / f"a.{ending}").write_text("".join(pair[side] + "\n" for pair in PAIRS), encoding="utf-8")
    for name in ("one", "two"):
        plant_noise.main(["--source", str(tmp_path / "a.en"), "--target", str(tmp_path / "a.de"),
                          "--output", str(tmp_path / name), "--share", "0.2"])  # fmt: skip
    assert capsys.readouterr().out.count("\n") == 2 * len(plant_noise.KINDS)
    sides = [gzip.decompress((tmp_path / "one" / f"train.{side}.gz").read_bytes()) for side in ("source", "target")]
    damaged = list(zip(*(side.decode().split("\n")[:-1] for side in sides), strict=True))
    rows = [line.split("\t") for line in (tmp_path / "one" / "planted.tsv").read_text().splitlines()]
    changed = {i for i, pair in enumerate(damaged) if pair != PAIRS[i]}
    assert len(damaged) == 200 and changed == {int(line) - 1 for line, _ in rows} and len(rows) == 40
    for file in (tmp_path / "one").iterdir():
        assert file.read_bytes() == (tmp_path / "two" / file.name).read_bytes()


@pytest.mark.parametrize("share", [-0.1, 1.5])
def test_a_share_is_no_more_than_all(tmp_path: Path, share: float) -> None:
    (tmp_path / "a").write_text("a\nb\n")
    with pytest.raises(ValueError, match="--share from 0 to 1"):
        plant_noise.main(["--source", str(tmp_path / "a"), "--target", str(tmp_path / "a"),
                          "--output", str(tmp_path / "out"), "--share", str(share)])  # fmt: skip


def test_cleaning_finds_each_kind_but_wrong_alignment() -> None:
    pytest.importorskip("ftfy")
    damaged, planted = plant_noise.plant(PAIRS, 0.5, 3)
    assert set(Counter(planted.values())) == set(plant_noise.KINDS)
    cleaning = CleaningConfig(
        html_entities="repair", mojibake="repair", control_characters="repair", max_length_ratio=2.5,
        drop_identical=True, drop_replacement_characters=True, min_script_share=0.9, drop_duplicates=True,
    )  # fmt: skip
    kept = list(Cleaner(DataConfig("en", "de", cleaning=cleaning)).clean(damaged))
    for place, kind in planted.items():
        repaired = PAIRS[place][0], PAIRS[place][1]
        if kind in REPAIRED:
            assert repaired in [(source, target.strip()) for source, target in kept], kind
        elif kind not in ("misaligned", "repeated"):
            assert damaged[place] not in kept, kind
    assert len(kept) < len(PAIRS)
