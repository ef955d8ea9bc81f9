"""mt.translation.compare: which results of runs belong together, and what is refused."""

import json
import os
import threading
from dataclasses import asdict
from pathlib import Path

import pytest
import yaml

from mt.config import CorpusConfig, DataConfig, TrainConfig
from mt.mapping import to_mapping
from mt.translation.compare import compare_files, compare_runs
from mt.translation.results import Texts, write_results

SOURCES = [f"red tea {number}" for number in range(12)]
REFERENCES = [f"roter Tee {number} ist gut" for number in range(12)]


def write_lines(file: Path, lines: list[str]) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return file


def evaluated(run: Path, wrong: int, sets: tuple[str, ...] = ("main",), count: int = 12, language: str = "de") -> Path:
    """A run as mt evaluate leaves it, with so many wrong translations in each test set."""
    run.mkdir()
    files = [run.parent / f"{count}.{side}" for side in ("en", "de")]
    corpus = CorpusConfig(source=str(files[0]), target=str(files[1]))
    for file, lines in zip(files, (SOURCES, REFERENCES), strict=True):
        write_lines(file, lines[:count])
    config = TrainConfig(data=DataConfig(source_language="en", target_language=language))
    (run / "config.yaml").write_text(yaml.safe_dump(to_mapping(config)))
    translations = ["roter Kaffee"] * wrong + REFERENCES[wrong:count]
    texts = Texts(SOURCES[:count], [REFERENCES[:count]])
    record = {"sentences": count, "corpus": asdict(corpus), "more_references": [], "text": texts.fingerprint}
    for name in sets:
        write_results(run / "results", name, translations, record)
    return run


def test_runs_are_compared_on_the_test_sets_that_all_have_and_files_alike(tmp_path: Path) -> None:
    a = evaluated(tmp_path / "a", 9, ("autumn", "spring"))
    b = evaluated(tmp_path / "b", 1, ("spring", "summer"))
    (a / "results" / "notes.json").write_text("[]")  # somebody's own
    found = compare_runs([a, b])
    assert list(found) == ["spring"]
    one = found["spring"]
    assert one.texts.sources == SOURCES and list(one.systems) == [str(a), str(b)]
    bleu = one.comparisons[1]
    assert bleu.score.name == "BLEU" and bleu.difference > 10 and "tok:13a" in bleu.score.signature
    assert 0 < bleu.p_bootstrap < 0.05 and 0 < bleu.p_randomisation < 0.05
    files = [run / "results" / "spring.hyp.txt" for run in (a, b)]
    by_files = compare_files(files, [tmp_path / "12.de"], tmp_path / "12.en", "de")
    assert by_files.texts == one.texts
    assert [row.record() | {"system": ""} for row in by_files.comparisons] == [
        row.record() | {"system": ""} for row in one.comparisons
    ]


def test_different_text_is_refused_naming_both(tmp_path: Path) -> None:
    a, b = evaluated(tmp_path / "a", 1), evaluated(tmp_path / "b", 1, count=10)
    with pytest.raises(ValueError, match=r"main: .*/a and .*/b were evaluated on different text \(12 and 10 sent"):
        compare_runs([a, b])
    c = evaluated(tmp_path / "c", 1, sets=("other",))
    with pytest.raises(ValueError, match=r"no test set .*/a has main; .*/c has other"):
        compare_runs([a, c])
    d = evaluated(tmp_path / "d", 1, language="zh")
    with pytest.raises(ValueError, match=r"/a translates into de, .*/d into zh"):
        compare_runs([a, d])


def test_files_of_other_lengths_are_refused_naming_both(tmp_path: Path) -> None:
    files = [write_lines(tmp_path / name, REFERENCES[:count]) for name, count in (("a", 12), ("b", 11), ("r", 12))]
    with pytest.raises(ValueError, match=r"/b has 11 lines, .*/r has 12"):
        compare_files(files[:2], files[2:])
    with pytest.raises(ValueError, match=r"/a has 12 lines, .*/b has 11"):
        compare_files([files[0], files[2]], [files[1]])
    with pytest.raises(ValueError, match="/a: is given twice"):
        compare_files([files[0], files[0]], [files[2]])


def test_each_file_is_read_once(tmp_path: Path) -> None:
    """References may come from a pipe, such as <(zcat r.gz)."""
    files = [write_lines(tmp_path / name, REFERENCES) for name in "ab"]
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=write_lines, args=(pipe, REFERENCES), daemon=True)
    writer.start()
    found = compare_files(files, [pipe], target_language="de")
    assert found.texts.references == [REFERENCES] and found.target_language == "de"


def test_what_changed_since_the_evaluation_is_refused(tmp_path: Path) -> None:
    a, b = evaluated(tmp_path / "a", 9), evaluated(tmp_path / "b", 1)
    translations = b / "results" / "main.hyp.txt"
    content = translations.read_bytes()
    translations.write_bytes(content.replace(b"roter", b"Roter"))
    with pytest.raises(ValueError, match="main.hyp.txt: was changed after main.json was written"):
        compare_runs([a, b])
    translations.write_bytes(content)
    write_lines(tmp_path / "12.de", [*REFERENCES[:-1], "neu"])
    with pytest.raises(ValueError, match="main: its files were changed after .*/a was evaluated"):
        compare_runs([a, b])


@pytest.mark.slow
def test_results_of_a_run_that_was_trained_on_give_a_warning(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    names = ("main", "main.last", "main.step_00000001")
    a, b = evaluated(tmp_path / "a", 9, names), evaluated(tmp_path / "b", 1, names)
    for name in names:
        file = a / "results" / f"{name}.json"
        file.write_text(json.dumps({**json.loads(file.read_bytes()), "checkpoint": "step_00000001"}))
    compare_runs([a, b])
    assert not recwarn.list, "whose checkpoints were removed may be compared"
    for step, pointers in ((1, ("best", "last")), (2, ("last",))):
        (a / "checkpoints" / f"step_{step:08d}").mkdir(parents=True)
        for pointer in pointers:
            (a / "checkpoints" / f"{pointer}.json").write_text(json.dumps({"checkpoint": f"step_{step:08d}"}))
    compare_runs([a, b])
    (warned,) = recwarn.list
    assert "main.last.json is of step_00000001, but last is step_00000002 by now" in str(warned.message)


def test_a_run_without_results_is_named(tmp_path: Path) -> None:
    a, b = evaluated(tmp_path / "a", 9), evaluated(tmp_path / "b", 1)
    record = b / "results" / "main.json"
    old = {key: value for key, value in json.loads(record.read_bytes()).items() if key != "text"}
    record.write_text(json.dumps(old))  # of a version that kept no fingerprint
    with pytest.raises(ValueError, match="/b: was not evaluated yet: mt evaluate "):
        compare_runs([a, b])
