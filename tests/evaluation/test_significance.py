"""mt.evaluation.significance against sacreBLEU's command line, same files and seed."""

import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

from mt.evaluation.significance import Comparison, compare_systems

WORDS = "red tea rice good books day they read every morning drink love green".split()


def noisy(lines: list[str], share: float, generator: random.Random) -> list[str]:
    """Returns the lines with about this share of the words replaced."""
    return [" ".join(w if generator.random() > share else generator.choice(WORDS) for w in s.split()) for s in lines]


@pytest.fixture(scope="module")
def text() -> tuple[dict[str, list[str]], list[str]]:
    generator = random.Random(5)
    references = [" ".join(generator.choices(WORDS, k=generator.randint(2, 12))) for _ in range(60)]
    shares = {"first": 0.3, "alike": 0.3, "better": 0.15}
    return {name: noisy(references, share, generator) for name, share in shares.items()}, references


@pytest.fixture(scope="module")
def found(text: tuple[dict[str, list[str]], list[str]]) -> list[Comparison]:
    return compare_systems(text[0], [text[1]], "en")


def test_equals_the_command_line(text, found: list[Comparison], tmp_path: Path) -> None:
    """Scores, means, intervals and both p-values of all metrics, in all printed digits.

    The command line knows one kind of chrF a call, and its JSON of paired tests fails with numpy 2: LaTeX is read.
    """
    systems, references = text
    for name, lines in {**systems, "references": references}.items():
        (tmp_path / name).write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    command = [sys.executable, "-m", "sacrebleu", "references", "-i", *systems, "-f", "latex", "-w", "4", "-nc", "-q"]
    printed: dict[tuple[str, str, str], str] = {}  # test, system, metric: cell
    for call in (["-m", "bleu", "chrf", "ter"], ["-m", "chrf", "-cw", "2"]):
        for test in ("--paired-bs", "--paired-ar"):
            run = subprocess.run([*command, *call, test], cwd=tmp_path, capture_output=True, text=True, check=True)
            rows = [line.removesuffix("\\\\").split("&") for line in run.stdout.splitlines() if "&" in line]
            names = [cell.split()[0].replace("\\", "") for cell in rows[0]]
            for row in rows[1:]:
                system = row[0].strip().removeprefix("Baseline: ")
                printed |= {(test, system, name): cell for name, cell in zip(names[1:], row[1:], strict=True)}
    names = ["BLEU", "chrF2", "chrF2++", "TER"]
    assert [(one.score.name, one.system) for one in found] == [(name, system) for name in names for system in systems]
    for one in found:
        interval = one.score.interval
        bootstrap, randomisation = (
            re.findall(r"\d+\.\d+", printed[test, one.system, one.score.name])
            for test in ("--paired-bs", "--paired-ar")
        )
        p_values = [[] if p is None else [f"{p:.4f}"] for p in (one.p_bootstrap, one.p_randomisation)]
        numbers = one.score.value, interval.mean, interval.half_width
        assert bootstrap == [f"{number:.4f}" for number in numbers] + p_values[0]
        assert randomisation == [f"{one.score.value:.4f}"] + p_values[1]
        assert "bs:1000|ar:10000|seed:12345" in one.score.signature


def test_a_wide_difference_is_significant_and_noise_is_not(found: list[Comparison]) -> None:
    for one in found:
        if one.system == "first":
            assert (one.difference, one.p_bootstrap, one.p_randomisation) == (None, None, None)
        else:
            assert (one.p_bootstrap < 0.05) == (one.p_randomisation < 0.05) == (one.system == "better")
            assert one.system == "alike" or (one.difference > 0) == (one.score.name != "TER")


def test_the_same_translations_do_not_differ(text) -> None:
    """sacreBLEU's count of differences above 0 gives such systems the smallest p-value that there is."""
    systems, references = text
    (*_, one) = compare_systems({"a": systems["first"], "b": list(systems["first"])}, [references], "en")
    assert (one.difference, one.p_bootstrap, one.p_randomisation) == (0.0, 1.0, 1.0)


@pytest.mark.parametrize(("unlike", "smallest"), [(1, 1.0), (2, 0.5), (4, 0.125)])
def test_few_sentences_that_differ_show_little(text, unlike: int, smallest: float) -> None:
    """All or none of them exchanged are the systems themselves: sacreBLEU leaves that out, and says p = 0.0001."""
    systems, references = text
    better = [*references[:unlike], *systems["first"][unlike:]]
    rows = compare_systems({"first": systems["first"], "better": better}, [references], "en")
    compared = [one for one in rows if one.difference is not None]
    assert len(compared) == 4 and all(one.difference for one in compared)
    assert all(smallest <= one.p_randomisation < smallest + 0.001 or one.p_randomisation == 1 for one in compared)


def test_one_system_and_other_lengths_are_refused(text) -> None:
    systems, references = text
    with pytest.raises(ValueError, match="at least two systems"):
        compare_systems({"a": systems["first"]}, [references], "en")
    with pytest.raises(ValueError, match="59 hypotheses but 60 references"):
        compare_systems({"a": systems["first"], "b": systems["alike"][1:]}, [references], "en")
