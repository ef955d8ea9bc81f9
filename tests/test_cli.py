import errno
import gzip
import json
import os
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch

import mt
from mt.__main__ import _describe, main
from mt.config import DecodeConfig, ModelConfig, TokenizerConfig, TrainConfig
from mt.model.layout import Layout
from mt.model.transformer import Transformer
from mt.tokenizer import train_tokenizers
from tests.untrained_runs import save_untrained

ROOT = Path(__file__).parents[1]
SENTENCES = [f"the {size} {one} sees {two}" for size in ("old", "big") for one in ("ox", "cat") for two in ("me", "us")]


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder with a small untrained model, and a test corpus of its own."""
    folder = tmp_path_factory.mktemp("runs") / "small"
    corpus = folder.parent / "test.tsv"
    corpus.write_text("".join(f"{line}\t{line}\n" for line in SENTENCES))
    config = TrainConfig(
        model=ModelConfig(32, 64, 2, 1, 1),
        tokenizer=TokenizerConfig(vocabulary_size=400),
        decode=DecodeConfig(beam_size=3, max_length_ratio=1.0, max_length_offset=3),
    )
    config.data.target_language = "en"
    config.data.test = {"main": mt.config.CorpusConfig(path=str(corpus))}
    with pytest.warns(UserWarning):  # so little text gives fewer pieces
        tokenizers = train_tokenizers([(line, line) for line in SENTENCES], config.tokenizer, 1)
    torch.manual_seed(1)
    model = Transformer(config.model, tokenizers.source.size, tokenizers.target.size)
    save_untrained(folder, config, tokenizers, model)
    return folder


@pytest.fixture
def run_mt(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]):
    """Runs a command in this process, with bytes as standard input; returns exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str | Path, stdin: bytes = b"") -> tuple[int, bytes, str]:
        (tmp_path / ".stdin").write_bytes(stdin)
        with open(tmp_path / ".stdin", encoding="utf-8") as file:
            monkeypatch.setattr(sys, "stdin", file)
            monkeypatch.setattr(sys, "argv", ["mt", *map(str, arguments)])
            with pytest.raises(SystemExit) as stopped:
                main()
                sys.exit(0)
        sys.stdout.flush()
        out, err = capfdbinary.readouterr()
        return stopped.value.code or 0, out, err.decode()

    return call


def python(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, cwd=folder, env=environment, timeout=120
    )


def test_help_answers_in_half_a_second(tmp_path: Path) -> None:
    seconds = []  # of processor time, which other work on the machine does not stretch
    for _ in range(3):
        start = os.times()
        shown = python("-m", "mt", "--help", folder=tmp_path)
        end = os.times()
        seconds.append(end.children_user - start.children_user + end.children_system - start.children_system)
    assert shown.returncode == 0
    assert all(command in shown.stdout for command in ("train", "translate", "evaluate"))
    assert min(seconds) < 0.5


def test_an_unknown_setting_ends_without_traceback(tmp_path: Path) -> None:
    shown = python("-m", "mt", "train", "optim.lrr=1", folder=tmp_path)
    assert shown.returncode == 2
    assert shown.stderr == "error: unknown setting optim.lrr; did you mean optim.lr?\n"
    assert shown.stdout == "" and list(tmp_path.iterdir()) == []


def test_the_console_script_is_main() -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["project"]["scripts"]["mt"] == "mt.__main__:main"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train"], "data.train.main.path=data/train.tsv: No such file or directory; data/README.md says how to get"),
        (
            ["train", "~data.train.main", "+data.valid.more.path=no.tsv"],
            "data.valid.main.path=data/valid.tsv: No such file",
        ),
        (["train", "--config", "no.yaml"], "no.yaml: No such file or directory"),
        (["train", "--config", "no.yaml", "-m"], "-m has no meaning with --config"),
        (["translate", "nowhere", "hi"], "nowhere is not a run folder"),
        (["evaluate", "nowhere"], "nowhere is not a run folder"),
        (["translate", "RUN", "hi", "--input", "a.txt"], "give either TEXT or --input"),
        (["translate", "RUN", "--input", "a.txt"], "a.txt: No such file or directory"),
        (["translate", "RUN", "hi", "--output", "no/b.txt"], "there is no folder"),
        (["translate", "RUN", "hi", "--output", "."], "is a folder, not a file"),
        (["translate", "RUN", "hi", "--beam-size", "0"], "decode.beam_size=0: must be between 1 and 1000"),
        (["translate", "RUN", "hi", "--n-best", "9"], "n_best=9: must be between 1 and decode.beam_size=3"),
        (["translate", "RUN", "hi", "--n-best", "0"], "--n-best=0: must be at least 1"),
        (["translate", "RUN", "hi", "--checkpoint", "worst"], "checkpoint=worst: not in"),
        (["translate", "RUN", "hi", "--device", "tpu"], "device=tpu: must be auto or one that this machine has"),
        (["trian"], "No such command 'trian'"),
        (["translate"], "Missing argument 'RUN'; "),
        (["evaluate"], "give RUN, a trained folder, or --hypotheses FILE"),
        (["evaluate", "--hypotheses", "a.txt"], "--hypotheses needs --reference FILE"),
        (["evaluate", "RUN", "--hypotheses", "a.txt"], "RUN has no meaning with --hypotheses"),
        (["evaluate", "--hypotheses", "a.txt", "--beam-size", "2"], "--beam-size has no meaning with --hypotheses"),
        (["evaluate", "RUN", "--target-language", "zh"], "--target-language has no meaning without --hypotheses"),
        (["evaluate", "--hypotheses", "a.txt", "--reference", "b.txt"], "a.txt: No such file"),
        (["evaluate", "RUN", "--report", "no/a.html"], "there is no folder"),
        (["evaluate", "RUN", "--report", "."], "is a folder, not a file"),
        (["evaluate", "RUN", "--comet", "no-such-model"], "--comet"),
        (["compare"], "Missing argument 'SYSTEM'; "),
        (["compare", "FILE"], "need --reference FILE"),
        (["compare", "FILE", "--reference", "b.txt"], "py: is one system; give two or more"),
        (["compare", "FILE", "b.txt", "--reference", "c.txt"], "b.txt: No such file"),
        (["compare", "FILE", "/dev/null", "--reference", "c.txt"], "c.txt: No such file"),
        (["compare", "RUN", "typo"], "typo: No such file or folder"),
        (["compare", "RUN", "FILE", "--reference", "b.txt"], "is a run, others are files"),
        (["compare", "RUN", ".", "--reference", "b.txt"], "--reference is for files of translations"),
        (["compare", "RUN", "."], ". is not a run folder"),
        (["evaluate", "RUN", "more"], "unexpected extra argument"),
        (["translate", "RUN", "--bea-size", "3"], "No such option: --bea-size"),
        (["translate", "RUN", "--beam-size", "x"], "Invalid value for '--beam-size'"),
        (["train", "--config"], "'--config' requires an argument"),
        (["--verbose"], "No such option: --verbose"),
        (["translate", "RUN", "hi", "--no-repeat-ngram-size", "-1"], "decode.no_repeat_ngram_size=-1: must be"),
        (["translate", "RUN", "hi", "--format", "po"], "--format=po: is of a file: give --input or standard input"),
        (["translate", "RUN", "hi", "--format", "pdf"], "--format=pdf: must be one of text, jsonl, tsv"),
        (["translate", "RUN", "--input", "a.po"], "a.po: No such file or directory"),
        (["translate", "RUN", "--format", "po"], "standard input: the file is empty"),
        (["translate", "RUN", "hi", "--field", "en"], "--field and --new-field are of jsonl, tsv and csv"),
        (["translate", "RUN", "hi", "--protect", "--scores"], "no meaning with --split-sentences and --protect"),
        (["translate", "RUN", "--format", "srt", "--json"], "--json has no meaning with format srt"),
        (["translate", "RUN", "hi", "--protect", "--sample", "2"], "--sample has no meaning with --split-sentences"),
        (["evaluate", "RUN", "--source", "a.en"], "give both --source and --reference"),
        (["evaluate", "RUN", "--source", "a.en", "--reference", "b.en"], "evaluate.source=a.en: No such file"),
    ],
)
def test_errors_are_one_line_and_exit_code_2(run_mt, run_dir: Path, arguments: list[str], message: str) -> None:
    there = {"RUN": run_dir, "FILE": Path(__file__)}
    code, out, err = run_mt(*[there.get(argument, argument) for argument in arguments])
    assert (code, out) == (2, b"")
    assert err.startswith("error: ") and message in err and err.count("\n") == 1


def test_a_closed_stderr_puts_no_message_among_the_results(run_mt, run_dir: Path, monkeypatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    code, out, _ = run_mt("translate", run_dir, "--checkpoint", "none", "hi")
    assert (code, out) == (2, b"")


def test_a_full_quota_is_told_as_a_full_disk() -> None:
    for number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        assert "a.bin: " in (text := _describe(OSError(number, os.strerror(number), "a.bin"))) and "make room" in text


def test_ctrl_c_exits_with_130(run_mt, run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("mt.translation.translator.load_translator", interrupt)
    assert run_mt("translate", run_dir, "hi")[0] == 130


def test_text_arguments_give_a_line_each(run_mt, run_dir: Path) -> None:
    texts = ["the dog", "", 'a "cat", (我爱中国) 100%', "two\nlines"]
    code, out, _ = run_mt("translate", run_dir, *texts)
    lines = out.decode().split("\n")
    assert code == 0 and len(lines) == 6 and lines[1] == "" and lines[-1] == ""
    assert lines[:3] == mt.load(run_dir).translate(texts[:3])


@pytest.mark.parametrize("at_once", [1, 3, 2000])
def test_one_line_out_for_one_line_in(run_mt, run_dir: Path, monkeypatch, at_once: int) -> None:
    monkeypatch.setattr("mt.commands.translate.LINES_AT_ONCE", at_once)
    lines = ["the dog", "", " \u3000", "a\x0bb\x85c\u2028d", "\u200b", "the old man", "last"]
    code, out, _ = run_mt("translate", run_dir, stdin="\n".join(lines).encode())
    found = out.decode().split("\n")
    assert code == 0 and found.pop() == ""
    assert found == mt.load(run_dir).translate(lines)
    assert found[1] == found[2] == found[4] == ""


@pytest.mark.parametrize(("stdin", "expected"), [(b"", b""), (b"\n", b"\n"), (b"\r\n\n", b"\n\n")])
def test_empty_in_empty_out(run_mt, run_dir: Path, stdin: bytes, expected: bytes) -> None:
    assert run_mt("translate", run_dir, stdin=stdin)[:2] == (0, expected)


def test_input_and_output_files(run_mt, run_dir: Path, tmp_path: Path) -> None:
    source, output = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_bytes(b"the dog\r\n\nthe cat\n")
    code, out, _ = run_mt("translate", run_dir, "--input", source, "--output", output)
    assert (code, out) == (0, b"")
    before = output.read_bytes()
    assert before.count(b"\n") == 3 and before.decode().split("\n")[1] == ""
    source.write_bytes(b"the dog\n\xff\n")  # fails on the way: the old output stays
    code, _, err = run_mt("translate", run_dir, "--input", source, "--output", output)
    assert code == 2 and "in.txt, line 2: byte 1 (0xff) is not valid UTF-8" in err
    assert output.read_bytes() == before
    assert {path.name for path in tmp_path.iterdir()} == {"in.txt", "out.txt", ".stdin"}


def test_a_document_keeps_its_format(run_mt, run_dir: Path, tmp_path: Path) -> None:
    source, output = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    source.write_text('{"en": "the dog", "x": 1}\n{"en": ""}\n')
    code, out, _ = run_mt("translate", run_dir, "--input", source, "--output", output, "--new-field", "new")
    assert (code, out) == (0, b"")
    first, second = map(json.loads, output.read_text().splitlines())
    assert first == {"en": "the dog", "x": 1, "new": mt.load(run_dir).translate(["the dog"])[0].strip()}
    assert second == {"en": "", "new": ""}
    code, out, _ = run_mt("translate", run_dir, "--format", "jsonl", "--new-field", "new", stdin=source.read_bytes())
    assert (code, out) == (0, output.read_bytes())


def test_a_broken_document_leaves_the_old_output(run_mt, run_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "a.tmx").write_text("<tmx><body>")
    (tmp_path / "b.tmx").write_text("old")
    code, out, err = run_mt("translate", run_dir, "--input", "a.tmx", "--output", "b.tmx")
    assert (code, out) == (2, b"") and err == "error: a.tmx, line 1: is not XML (no element found)\n"
    assert (tmp_path / "b.tmx").read_text() == "old"
    assert {path.name for path in tmp_path.iterdir()} == {"a.tmx", "b.tmx", ".stdin"}


@pytest.mark.parametrize(
    "data",
    [gzip.compress(b"the dog\n" * 9)[:-9], gzip.compress(b"\n")[:10] + b"\xff", b"no gz"],
    ids=["cut off", "damaged", "no gz"],  # gzip writes the time, which would be in the test's name
)
def test_a_damaged_gz_is_named(run_mt, run_dir: Path, tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a.txt.gz").write_bytes(data)
    code, out, err = run_mt("translate", run_dir, "--protect", "--input", "a.txt.gz")
    assert (code, out) == (2, b"") and err.startswith("error: a.txt.gz: ") and err.count("\n") == 1


@pytest.mark.parametrize("options", [[], ["--format", "po"]])
def test_a_closed_standard_input_is_told(run_mt, run_dir: Path, monkeypatch, options: list[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["mt", "translate", str(run_dir), *options])
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2


def test_split_sentences_gives_one_line_for_each(run_mt, run_dir: Path) -> None:
    lines = ["the dog", "", " \u3000", "The ox sees me. The cat sees us.", "the old man"]
    code, out, _ = run_mt("translate", run_dir, "--split-sentences", stdin="\n".join(lines).encode())
    found = out.decode().split("\n")
    expected = mt.load(run_dir).translate(["the dog", "The ox sees me.", "The cat sees us.", "the old man"])
    assert code == 0 and found == [expected[0], "", " \u3000", f"{expected[1]} {expected[2]}", expected[3], ""]
    assert run_mt("translate", run_dir, *lines, "--split-sentences")[1] == out
    kept = run_mt("translate", run_dir, "the {ox} sees", "--protect")[1].decode()
    assert kept.count("{ox}") == 1


def test_scores_and_n_best(run_mt, run_dir: Path) -> None:
    with warnings.catch_warnings(action="ignore"):  # an untrained model does not finish
        expected = mt.load(run_dir).translate_n_best(["the dog", ""], 3)
    _, out, _ = run_mt("translate", run_dir, "the dog", "", "--scores", "--n-best", "3")
    lines = [f"{n}\t{t.score:.4f}\t{t.text}" for n, found in enumerate(expected, 1) for t in found]
    assert len(lines) > 2 and out.decode().splitlines() == lines
    _, out, _ = run_mt("translate", run_dir, "the dog", "--scores")
    assert out.decode() == f"{expected[0][0].score:.4f}\t{expected[0][0].text}\n"


def test_search_flags_override_the_run(run_mt, run_dir: Path) -> None:
    decode = DecodeConfig(beam_size=1, length_penalty=0.0, max_length_ratio=1.0, max_length_offset=3)
    _, out, _ = run_mt("translate", run_dir, "the dog", "--beam-size", "1", "--length-penalty", "0", "--scores")
    best = mt.load(run_dir, decode=decode).translate_n_best(["the dog"], 1)[0][0]
    assert out.decode() == f"{best.score:.4f}\t{best.text}\n"


def test_no_repeat_ngram_size_reaches_the_search(run_mt, run_dir: Path) -> None:
    arguments = ("translate", run_dir, "the dog", "--beam-size", "1")
    decode = DecodeConfig(beam_size=1, max_length_ratio=1.0, max_length_offset=3, no_repeat_ngram_size=1)
    with warnings.catch_warnings(action="ignore"):
        (found,) = mt.load(run_dir, decode=decode).translate_n_best(["the dog"], 1)
    assert len(set(found[0].tokens)) == len(found[0].tokens)
    assert run_mt(*arguments, "--no-repeat-ngram-size", "1")[1].decode() == f"{found[0].text}\n"
    assert run_mt(*arguments)[1].decode() != f"{found[0].text}\n"


def test_without_a_command_help_is_shown(run_mt) -> None:
    code, out, err = run_mt()
    assert (code, err) == (0, "") and b"Commands:" in out


def test_several_test_corpora_are_named_in_front(run_mt, run_dir: Path, tmp_path: Path) -> None:
    copy = tmp_path / "run"
    shutil.copytree(run_dir, copy)
    config = (copy / "config.yaml").read_text()
    start = config.index("  test:\n    main:\n") + len("  test:\n")
    end = config.index("  cleaning:\n")
    (copy / "config.yaml").write_text(config[:end] + config[start:end].replace("main:", "more:") + config[end:])
    code, out, _ = run_mt("evaluate", copy, "--bleu-tokenizer", "char")
    lines = out.decode().splitlines()
    assert code == 0 and [line.split("|")[0] for line in lines] == [
        f"{name}\t{score}" for name in ("main", "more") for score in ("BLEU", "chrF2", "chrF2++", "TER")
    ]
    assert "tok:char" in lines[0] and {p.name for p in (copy / "results").glob("m*.json")} == {"main.json", "more.json"}


def test_evaluate_the_runs_own_test_corpora(run_mt, run_dir: Path) -> None:
    code, out, err = run_mt("evaluate", run_dir)
    assert code == 0
    bleu, *others = out.decode().splitlines()
    assert bleu.startswith("BLEU|nrefs:1|bs:1000|seed:12345|") and "tok:13a" in bleu
    assert [line.split("|")[0] for line in others] == ["chrF2", "chrF2++", "TER"]
    hypotheses = (run_dir / "results" / "main.hyp.txt").read_bytes().decode().split("\n")
    assert hypotheses == [*mt.load(run_dir).translate(SENTENCES), ""]
    record = json.loads((run_dir / "results" / "main.json").read_bytes())
    shown = record["bleu"]
    interval = f"(μ = {shown['mean']:.2f} ± {shown['half_width']:.2f})"
    assert bleu == f"BLEU|{shown['signature']} = {shown['value']:.2f} {interval}"
    assert (record["sentences"], record["decode"]["beam_size"], record["step"]) == (len(SENTENCES), 3, 1)


def test_evaluate_two_files(run_mt, run_dir: Path, tmp_path: Path) -> None:
    source, reference = tmp_path / "a.en", tmp_path / "b.en"
    source.write_text("the dog\n\nthe cat\n")
    reference.write_text("the dog\nx\nthe cat\n")
    arguments = ("evaluate", run_dir, "--source", source, "--reference", reference, "--output-dir", tmp_path / "out")
    code, out, _ = run_mt(*arguments)
    assert code == 0 and len(out.splitlines()) == 4
    assert (tmp_path / "out" / "a.en.hyp.txt").read_bytes().count(b"\n") == 3
    (result,) = mt.evaluate(run_dir, source, reference).values()
    assert str(result.bleu) == out.decode().splitlines()[0] and result.sentences == 3
    reference.write_text("the dog\n")
    code, out, err = run_mt(*arguments)
    assert (code, out) == (2, b"") and "a.en has 3" in err and "b.en has 1" in err


def test_evaluate_a_file_with_two_references_details_and_report(run_mt, tmp_path: Path) -> None:
    texts = {"hyp": "the dog\nbig ox\n", "a.en": "the dog\na big ox\n", "b.en": "a dog\nbig ox\n", "src": "x y\nz\n"}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    arguments = ("evaluate", "--hypotheses", "hyp", "--reference", "a.en", "--reference", "b.en")
    code, out, err = run_mt(*arguments)
    lines = out.decode().splitlines()
    assert code == 0 and len(lines) == 4 and all("|nrefs:2|bs:1000|" in line for line in lines)
    assert lines[1].startswith("chrF2|") and " = 100.00 (" in lines[1]
    code, out, err = run_mt(*arguments, "--source", "src", "--details", "--report", "report.html")
    details = out.decode().splitlines()[4:]
    assert details[:2] == ["# hyp: by length of the source", "source_words\tsentences\tBLEU\tchrF2"]
    assert details[2].startswith("1-5\t2\t") and details[3].startswith("# BLEU|nrefs:2|case:mixed")
    assert err.count("\n") == 2 and "words by training frequency are left out: they need a run with" in err
    assert "<h1>Evaluation of hyp</h1>" in (tmp_path / "report.html").read_text()
    assert run_mt(*arguments, "--target-language", "ja-JP", "--report", "report.html")[0] == 0
    assert 'lang="ja-JP"' in (tmp_path / "report.html").read_text()


def test_evaluate_a_run_with_details_and_report(run_mt, run_dir: Path, tmp_path: Path) -> None:
    copy = tmp_path / "run"
    shutil.copytree(run_dir, copy, ignore=shutil.ignore_patterns("results"))
    config = (copy / "config.yaml").read_text()
    test, train = run_dir.parent / "test.tsv", tmp_path / "train.tsv"
    assert "  train: {}\n" in config
    (copy / "config.yaml").write_text(config.replace("  train: {}\n", f"  train: {{main: {{path: {train}}}}}\n"))
    arguments = ("evaluate", copy, "--details", "--report", "report.html")
    code, out, err = run_mt(*arguments)
    assert code == 0 and "train.tsv: No such file or directory" in err and "(new)" in err
    train.write_bytes(test.read_bytes())
    (copy / "log.jsonl").write_text('{"event": "train", "step": 5, "loss": 2.5, "learning_rate": 0.1}\n')
    code, out, err = run_mt(*arguments)
    rows = [line.split("\t") for line in out.decode().splitlines()]
    at = rows.index(["# main: words by their frequency in training"])
    assert rows[at + 1][:4] == ["in_training", "in_references", "in_output", "right"]
    assert rows[at + 2][:2] == ["0", "0"] and rows[at + 5][:2] == ["5-9", str(2 * len(SENTENCES))], "the, sees"
    page = (tmp_path / "report.html").read_text()
    assert "training, last at update 5: 2.5" in page and "beam_size 3" in page and "step_00000001" in page


def test_names_of_files_need_not_be_utf_8(run_mt, run_dir: Path, tmp_path: Path) -> None:
    odd = os.fsdecode(b"caf\xe9")
    (tmp_path / odd).write_text("the dog\nthe cat\n")
    (tmp_path / "b").write_text("the cat\nthe cat\n")
    arguments = ("--source", odd, "--reference", odd, "--output-dir", "out", "--report", "a.html")
    assert run_mt("evaluate", run_dir, *arguments)[0] == 0
    assert json.loads((tmp_path / "out" / f"{odd}.json").read_bytes())["corpus"]["source"] == odd
    code, out, err = run_mt("compare", odd, "b", "--reference", odd, "--report", "b.html")
    assert code == 0 and b"\ncaf\\udce9\tBLEU\t" in out
    assert "Comparison of caf\\udce9, b" in (tmp_path / "b.html").read_text()


def test_compare_two_files_as_json_with_a_report(run_mt, tmp_path: Path) -> None:
    for name, text in {"a": "the dog\nox\n", "b": "the dog\nbig ox\n", "r": "the dog\na big ox\n"}.items():
        (tmp_path / name).write_text(text)
    code, out, err = run_mt("compare", "a", "b", "--reference", "r", "--json", "--report", "report.html")
    found = json.loads(out)["test_sets"]["r"]
    assert (code, err, found["sentences"]) == (0, "", 2)
    rows = found["comparisons"]
    assert [(row["system"], row["metric"]) for row in rows] == [
        (system, metric) for metric in ("BLEU", "chrF2", "chrF2++", "TER") for system in ("a", "b")
    ]
    assert all("bs:1000|ar:10000|seed:12345" in row["signature"] for row in rows)
    assert rows[3]["difference"] == pytest.approx(rows[3]["value"] - rows[2]["value"]) and rows[3]["difference"] > 1
    assert rows[2]["p_bootstrap"] is None and 0 < rows[3]["p_bootstrap"] <= 1
    page = (tmp_path / "report.html").read_text()
    assert "b better than a" in page and 'lang="und"' in page
    assert run_mt("compare", "a", "b", "--reference", "r", "--target-language", "zh", "--report", "report.html")[0] == 0
    assert 'lang="zh"' in (tmp_path / "report.html").read_text(), "by which a browser chooses the forms of characters"


def test_compare_runs_that_were_evaluated_as_a_table(run_mt, run_dir: Path, tmp_path: Path) -> None:
    shutil.copytree(run_dir, tmp_path / "other", ignore=shutil.ignore_patterns("results"))
    for run, beam_size in ((run_dir, "3"), ("other", "1")):
        assert run_mt("evaluate", run, "--beam-size", beam_size)[0] == 0
    code, out, _ = run_mt("compare", run_dir, "other")
    title, header, *lines = out.decode().splitlines()
    assert code == 0 and title == f"# main: {len(SENTENCES)} sentences"
    rows = [dict(zip(header.split("\t"), line.split("\t"), strict=True)) for line in lines[:8]]
    assert [row["system"] for row in rows] == [str(run_dir), "other"] * 4
    assert [row["metric"] for row in rows[::2]] == ["BLEU", "chrF2", "chrF2++", "TER"]
    assert rows[0]["difference"] == rows[0]["p_bootstrap"] == "" and 0 < float(rows[1]["p_randomisation"]) <= 1
    assert [line.split("|")[0] for line in lines[8:]] == ["# BLEU", "# chrF2", "# chrF2++", "# TER"]


def test_python_api_names_the_version() -> None:
    assert mt.__version__
    with pytest.raises(AttributeError):
        mt.nothing  # noqa: B018


def test_scores_of_given_translations_are_those_of_the_model(run_mt, run_dir, tmp_path):
    (tmp_path / "source").write_text("the old ox sees me\n\nthe big cat sees us\n")
    (tmp_path / "target").write_text("me\nus\nthe big ox\n")
    code, out, err = run_mt("score", run_dir, "--source", "source", "--target", "target", "--json")
    assert code == 0 and "perplexity" in err
    first, empty, last = map(json.loads, out.splitlines())
    assert (empty["log_probability"], empty["tokens"], empty["pieces"]) == (0, 0, [])
    translator = mt.load(run_dir)
    model, sides = translator.model, translator.tokenizers
    for one, source, target in ((first, "the old ox sees me", "me"), (last, "the big cat sees us", "the big ox")):
        ids = [*sides.target.encode([target])[0], 3]
        inputs = torch.tensor([*sides.source.encode([source])[0], 3]), torch.tensor([2, *ids[:-1]])
        layouts = [Layout.from_lengths([len(stream)]) for stream in inputs]
        with torch.no_grad():
            logits = model.logits(model(inputs[0], layouts[0], inputs[1], layouts[1]))
        loss = torch.nn.functional.cross_entropy(logits, torch.tensor(ids), reduction="sum")
        assert one["log_probability"] == pytest.approx(-float(loss), abs=1e-3)
        assert len(one["log_probabilities"]) == one["tokens"] == len(ids) == len(one["pieces"]) + 1
        assert one["log_probability"] == pytest.approx(sum(one["log_probabilities"]))
    code, out, _ = run_mt("score", run_dir, "--source", "source", "--target", "target")
    columns = [line.split(b"\t") for line in out.splitlines()]
    expected = [one["log_probability"] for one in (first, empty, last)]
    assert [float(column[0]) for column in columns] == pytest.approx(expected, abs=1e-4)
    assert [int(column[1]) for column in columns] == [first["tokens"], 0, last["tokens"]]


def test_scoring_refuses_sides_of_unequal_length_and_leaves_no_file(run_mt, run_dir, tmp_path):
    (tmp_path / "source").write_text("the old ox\nthe cat\n")
    (tmp_path / "target").write_text("the old ox\n")
    code, out, err = run_mt("score", run_dir, "--source", "source", "--target", "target", "--output", "scores")
    assert (code, out) == (2, b"") and "lines" in err and err.count("\n") == 1
    assert not (tmp_path / "scores").exists()
