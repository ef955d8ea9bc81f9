"""mt.evaluation.significance against sacreBLEU's command line, same files and seed."""

import json
import random
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
    """Scores, means, intervals and both p-values of all metrics; the command line knows one kind of chrF a call."""
    systems, references = text
    for name, lines in {**systems, "references": references}.items():
        (tmp_path / name).write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    command = [sys.executable, "-m", "sacrebleu", "references", "-i", *systems, "-f", "json"]
    calls = ["-m", "bleu", "chrf", "ter"], ["-m", "chrf", "-cw", "2"]
    expected: dict[str, list[dict[str, dict]]] = {"--paired-bs": [], "--paired-ar": []}
    for test, shown in expected.items():
        for call in calls:
            run = subprocess.run([*command, *call, test], cwd=tmp_path, capture_output=True, text=True, check=True)
            shown.append(json.loads(run.stdout[: run.stdout.rindex("]") + 1]))
    names = ["BLEU", "chrF2", "chrF2++", "TER"]
    assert [(one.score.name, one.system) for one in found] == [(name, system) for name in names for system in systems]
    for one in found:
        place = list(systems).index(one.system)
        bootstrap, randomisation = (
            next(rows[place][one.score.name] for rows in expected[test] if one.score.name in rows[place])
            for test in expected
        )
        assert one.score.value == pytest.approx(bootstrap["score"], abs=1e-9)
        assert one.score.interval.mean == pytest.approx(bootstrap["mean"], abs=1e-9)
        assert one.score.interval.half_width == pytest.approx(bootstrap["ci"], abs=1e-9)
        assert (one.p_bootstrap, one.p_randomisation) == (bootstrap["p_value"], randomisation["p_value"])
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


def test_one_system_and_other_lengths_are_refused(text) -> None:
    systems, references = text
    with pytest.raises(ValueError, match="at least two systems"):
        compare_systems({"a": systems["first"]}, [references], "en")
    with pytest.raises(ValueError, match="59 hypotheses but 60 references"):
        compare_systems({"a": systems["first"], "b": systems["alike"][1:]}, [references], "en")
