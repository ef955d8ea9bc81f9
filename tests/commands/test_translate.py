"""Options of mt translate that hold translations to something, or draw them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mt.__main__ import main
from mt.checkpoint import point, pointed, read_state, read_weights, save_checkpoint

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["translate", "RUN", "hi", "--n-best", "4"], "n_best=4: must be between 1 and decode.beam_size=3"),
        (
            ["translate", "RUN", "hi", "--n-best", "4", "--phrase", "me"],
            "n_best=4: must be between 1 and decode.beam_size",
        ),
        (["translate", "RUN", "", "--n-best", "4"], "n_best=4: must be between 1 and decode.beam_size=3"),
        (["translate", "RUN", "hi", "--n-best", "4", "--decode", "coverage_penalty=1"], "n_best=4: must be between"),
        (["translate", "RUN", "hi", "--sample", "0"], "--sample=0: must be at least 1"),
        (["translate", "RUN", "hi", "--sample", "-1"], "--sample=-1: must be at least 1"),
        (["translate", "RUN", "hi", "--consensus", "0"], "--consensus=0: must be at least 1"),
        (["translate", "RUN", "hi", "--alternatives", "0"], "--alternatives=0: must be at least 1"),
        (["translate", "RUN", "hi", "--sample", "1", "--seed", "-1"], "--seed=-1: must be at least 0"),
        (["translate", "RUN", "hi", "--sample", "1", "--temperature", "0"], "temperature=0.0: must be greater than 0"),
        (["translate", "RUN", "hi", "--sample", "1", "--top-p", "0"], "top_p=0.0: must be above 0"),
        (["translate", "RUN", "hi", "--sample", "1", "--consensus", "2"], "--sample and --consensus: give one of them"),
        (["translate", "RUN", "hi", "--sample", "1", "--phrase", "me"], "--phrase: has no meaning with --sample"),
        (
            ["translate", "RUN", "hi", "--consensus", "2", "--n-best", "2"],
            "--n-best=2: has no meaning with --consensus",
        ),
        (["translate", "RUN", "hi", "--alternatives", "2", "--forbid", "me"], "--forbid: has no meaning with --altern"),
        (["translate", "RUN", "hi", "--alternatives", "2", "--scores"], "--scores: has no meaning with --alternatives"),
        (["translate", "RUN", "hi", "--alternatives", "2", "--json", "--details"], "--details: has no meaning with"),
        (["translate", "RUN", "hi", "--seed", "3"], "--seed need --sample or --consensus"),
        (["translate", "RUN", "hi", "--top-k", "3"], "need --sample or --consensus"),
        (["translate", "RUN", "hi", "--details"], "--details needs --json"),
        (["translate", "RUN", "hi", "--phrase", "see me", "--forbid", "me"], "'see me': must be in a translation, but"),
        (["translate", "RUN", "hi", "--phrase", ""], "'': no pieces of the target tokenizer write this text"),
        (["translate", "RUN", "hi", "--phrase", "me", "--phrase", ""], "'': no pieces of the target tokenizer write"),
        (["translate", "RUN", "hi", "--forbid", " "], "' ': no pieces of the target tokenizer write this text"),
        (["translate", "RUN", "hi", "--precision", "fp8"], "precision=fp8: must be one of float32, bf16, int8"),
        (["translate", "RUN", "hi", "--glossary", "no.tsv"], "no.tsv: No such file or directory"),
        (["translate", "RUN", "hi", "--decode", "beam_groups"], "--decode 'beam_groups': expected NAME=VALUE"),
        (["translate", "RUN", "hi", "--decode", "max_length_ratio=1e300"], "decode.max_length_ratio=1e+300: must be"),
        (["translate", "RUN", "hi", "--decode", "diversity_penalty=1"], "diversity_penalty=1.0 has no effect with"),
        (["translate", "RUN", "hi", "--decode", "beam_groups=2"], "decode.beam_size=3 must be a multiple of decode.b"),
    ],
)
def test_errors_are_one_line_and_exit_code_2(run_mt, run_dir: Path, arguments: list[str], message: str) -> None:
    code, out, err = run_mt(*(run_dir if argument == "RUN" else argument for argument in arguments))
    assert (code, out) == (2, b"") and message in err
    errors = [line for line in err.splitlines() if not line.startswith("warning: ")]
    assert len(errors) == 1 and errors[0].startswith("error: ")


def test_a_closed_standard_input_is_told(run_dir, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", None)
    monkeypatch.setattr(sys, "argv", ["mt", "translate", str(run_dir)])
    with pytest.raises(SystemExit, match="2"):
        main()
    assert capsys.readouterr().err == "error: standard input is closed: give TEXT or --input FILE\n"


def test_a_files_name_given_as_text_is_told(run_mt, run_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "film.srt").write_text("the ox\n")
    code, out, err = run_mt("translate", run_dir, str(tmp_path / "film.srt"), "the ox", "x" * 5000)
    assert code == 0 and out.count(b"\n") == 3
    assert f"film.srt is translated as text; --input {tmp_path}/film.srt translates the file" in err
    assert err.count("is translated as text") == 1


@pytest.mark.slow
def test_a_reader_that_has_seen_enough_is_no_error(run_dir, tmp_path):
    reader, writer = os.pipe()
    os.close(reader)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "mt", "translate", str(run_dir), "the ox", "the cat"]
    ended = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, env=environment, timeout=120)
    os.close(writer)
    assert ended.returncode == 1  # as click has it
    assert all(line.startswith("warning: ") for line in ended.stderr.splitlines())


def test_what_a_translation_is_held_to(run_mt, run_dir: Path, tmp_path: Path) -> None:
    def translated(*options: str) -> list[str]:
        code, out, err = run_mt("translate", run_dir, "the ox", "the cat sees us", *options)
        assert code == 0, err
        return out.decode().split("\n")[:-1]

    assert all(line.startswith("big ox") for line in translated("--prefix", "big ox"))
    assert all("old me" in line and "us" in line for line in translated("--phrase", "old me", "--phrase", "us"))
    (tmp_path / "terms.tsv").write_text("cat\tbig zebra\n")
    first, second = translated("--glossary", "terms.tsv")
    assert "big zebra" in second and first == translated()[0]
    drawn = [line.split("\t")[1] for line in translated("--sample", "4")]
    used = next(word for line in drawn for word in line.split() if word.isalpha())
    again = [line.split("\t")[1] for line in translated("--sample", "4", "--forbid", used)]
    assert any(again) and not any(f" {line}".count(f" {used}") for line in again)
    found = [line.split("\t") for line in translated("--prefix", "the", "--alternatives", "2")]
    assert [number for number, *_ in found] == ["1", "1", "2", "2"]
    assert all(translation.startswith("the" + word) for _, _, word, translation in found)


def test_an_ensemble_and_fewer_bits(run_mt, run_dir: Path, tmp_path: Path) -> None:
    def scored(run: Path, *options: object) -> list[str]:
        code, out, err = run_mt("translate", run, "the ox", "the cat sees us", "--scores", *options)
        assert code == 0, err
        return out.decode().split("\n")[:-1]

    other = shutil.copytree(run_dir, tmp_path / "other")
    weights = {name: 0.9 * tensor for name, tensor in read_weights(pointed(run_dir, "best")).items()}
    point(other, "best", save_checkpoint(other, 9999, weights, None, read_state(pointed(run_dir, "best"))))
    together = scored(run_dir, "--with", other)
    assert together == scored(other, "--with", run_dir) and together not in (scored(run_dir), scored(other))
    eight, sixteen = scored(run_dir, "--precision", "int8"), scored(run_dir, "--precision", "bf16")
    assert len(eight) == len(sixteen) == 2 and len({*map(tuple, (eight, sixteen, scored(run_dir)))}) == 3


def test_drawn_translations(run_mt, run_dir: Path) -> None:
    def drawn(*options: str) -> list[str]:
        code, out, err = run_mt("translate", run_dir, "the ox", "", "the cat", *options)
        assert code == 0, err
        return out.decode().split("\n")[:-1]

    one, three = drawn("--sample", "1"), drawn("--sample", "3")
    assert len(one) == 3 and one[1] == ""
    assert [line.split("\t")[0] for line in three] == [*"1112333"]
    assert three == drawn("--sample", "3", "--decode", "batch_tokens=1") != drawn("--sample", "3", "--seed", "2")
    assert all(line.startswith("big") for line in drawn("--sample", "1", "--prefix", "big") if line)
    consensus = drawn("--consensus", "3")
    samples = [line.split("\t")[1] for line in three]
    assert consensus[0] in samples[:3] and consensus[1] == "" and consensus[2] in samples[4:]


def test_a_file_in_parts(run_mt, run_dir: Path, tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "in.txt").write_text("the ox\n\nthe cat sees us\n")

    def written(name: str, *options: str) -> bytes:
        code, out, err = run_mt("translate", run_dir, "--input", "in.txt", "--output", name, "--json", *options)
        assert code == 0 and out == b"", err
        return (tmp_path / name).read_bytes()

    assert written("a") == written("b", "--resume") and not (tmp_path / "b.parts").exists()
    monkeypatch.setenv("WORLD_SIZE", "2")
    for wrong in (["hi"], ["--input", "in.txt"], ["--input", "in.txt", "--output", "c", "--alternatives", "2"]):
        code, _, err = run_mt("translate", run_dir, *wrong)
        assert code == 2 and "--resume and torchrun are for lines of text" in err
    assert "--alternatives: has no meaning here" in err
    monkeypatch.setenv("WORLD_SIZE", "1")
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")  # torchrun's one process uses parts, and removes them
    (tmp_path / "d.parts").mkdir()
    assert written("d") == written("a") and not (tmp_path / "d.parts").exists()


def test_the_input_is_not_overwritten(run_mt, run_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("the ox\n")
    (tmp_path / "link.txt").symlink_to("in.txt")
    for name in ("in.txt", "link.txt"):
        code, _, err = run_mt("translate", run_dir, "--input", "in.txt", "--output", name)
        assert code == 2 and f"--output={name}: is the input" in err
    assert (tmp_path / "in.txt").read_text() == "the ox\n"
