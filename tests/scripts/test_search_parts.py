"""The table of what the search's parts do: what is asked for is there, and what is forbidden is not."""

import argparse
import sys
from pathlib import Path

import pytest

from tests.export.small_runs import MODEL, TARGET_WORDS, WORDS, make_tokenizers, random_model, save_run, sentences

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))  # where the benchmarks find one another

import search_parts


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*are unfinished.*")
def test_parts_hold_what_they_say(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(search_parts, "SAMPLES", 2)
    translation = dict(zip(WORDS, TARGET_WORDS, strict=False))
    files = {}
    for name, count, seed in (("test", 6, 1), ("train", 60, 2)):
        lines = sentences(count, WORDS[: len(TARGET_WORDS)], seed)
        files[name] = tmp_path / f"{name}.en", tmp_path / f"{name}.de"
        for file, text in zip(
            files[name], (lines, [" ".join(translation[word] for word in line.split()) for line in lines]), strict=True
        ):
            file.write_text("".join(f"{line}\n" for line in text), encoding="utf-8")
    tokenizers = make_tokenizers(joint=True)
    short = {"max_length_ratio": 0.5, "max_length_offset": 5}
    run = save_run(tmp_path / "run", random_model(MODEL, tokenizers), tokenizers, **short)
    (source, reference), (train_source, train_target) = files["test"], files["train"]
    search_parts.main(
        argparse.Namespace(
            run=run, source=source, reference=reference, train_source=train_source, train_target=train_target,
            sentences=4, checkpoints=["step_00000005"], parts=search_parts.PARTS,
        )
    )  # fmt: skip
    rows = [line.strip("|").split(" | ") for line in capsys.readouterr().out.splitlines() if line.startswith("| ")][2:]
    remarks = {row[0].strip(): row[-1].strip() for row in rows}
    assert len(remarks) == 19 and "nothing asked for" not in remarks.values()
    held = [remark for remark in remarks.values() if "there:" in remark]
    assert len(held) == 2 and all(remark.endswith("100.0% with it") for remark in held)
    (forbidden,) = (remark for name, remark in remarks.items() if name.startswith("--forbid"))
    assert forbidden.endswith(", now 0") and not forbidden.startswith("they stood 0 ")
    scores = {row[0].strip(): row[1:3] for row in rows}
    assert scores["beam 3"] == scores["--checkpoint step_00000005"] == scores["ensemble of these 2"]
    assert float(scores["beam 10: the nearest to the reference"][1]) >= float(scores["beam 10: the first"][1])
