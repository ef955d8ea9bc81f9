"""The benchmark of feeding makes the corpus it says, and its stages measure what they name."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))  # where the benchmarks find one another

import bench_feeding

SOURCE = ["a red cup of tea", "rice", "they drink tea every day", ""]
TARGET = ["eine rote Tasse Tee", "Reis", "sie trinken jeden Tag Tee", ""]


@pytest.fixture
def texts(tmp_path) -> tuple[Path, Path]:
    paths = tmp_path / "t.en", tmp_path / "t.de"
    for path, lines in zip(paths, (SOURCE, TARGET), strict=True):
        path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return paths


def test_corpus_repeats_the_lines_with_at_most_one_word_replaced_and_is_the_same_each_time(tmp_path, texts):
    made = []
    for folder in (tmp_path / "1", tmp_path / "2"):
        folder.mkdir()
        bench_feeding.make_corpus(*texts, folder, 10)
        made.append([(folder / f"corpus.{side}").read_text(encoding="utf-8") for side in ("source", "target")])
    assert made[0] == made[1]
    for text, lines in zip(made[0], (SOURCE, TARGET), strict=True):
        rows = text.split("\n")[:-1]
        assert len(rows) == 10
        for i, row in enumerate(rows):
            before, after = lines[i % 4].split(" "), row.split(" ")
            assert len(before) == len(after) and sum(a != b for a, b in zip(before, after, strict=True)) <= 1


@pytest.mark.filterwarnings("ignore:tokenizer")
def test_stages_in_their_order(tmp_path, texts, monkeypatch):
    bench_feeding.make_corpus(*texts, tmp_path, 200)
    (tmp_path / "pairs").write_text("200")
    command = ["bench_feeding.py", "--source", str(texts[0]), "--target", str(texts[1]), "--batch-tokens", "64"]
    monkeypatch.setattr(sys, "argv", command)
    config = bench_feeding.make_config(tmp_path, bench_feeding.parsed())
    found = {stage.__name__: stage(config, tmp_path) for stage in bench_feeding.STAGES[:-1]}
    assert all(times["seconds"] > 0 for times in found.values())
    assert list((tmp_path / "cache").glob("*/00-00000.arrow"))
    assert found["encode_killed"]["shards"] == 1 and found["encode_killed"]["repeated"] == 0
    end = found["end_of_epoch"]
    assert end["pairs"] > 0 and end["median_wait_seconds"] <= end["longest_wait_seconds"] <= end["seconds"]
