"""Line n of the output belongs to line n of the input, whatever the lines hold: end to end, through the commands."""

import gzip
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from mt import checkpoint as folder
from mt.__main__ import main
from mt.config import DecodeConfig, ModelConfig, TokenizerConfig, TrainConfig
from mt.data.files import read_lines
from mt.model.transformer import Transformer
from mt.tokenizer import EOS_ID, train_tokenizers
from mt.translation.translator import load_translator

SEPARATORS = ["\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029", "\r"]
BLANKS = ["", "   ", "\u200b", "\u3000", "\u2028", "\t", "\ufeff\u200d", "\x0b\x85"]
WORDS = "soup bread salt pepper onion garlic honey milk cheese apple".split()
SIDES = (("source", "en"), ("target", "de"))
SMALL = ["model.d_model=16", "model.d_ff=16", "model.n_heads=2", "model.encoder_layers=1", "model.decoder_layers=1"]
BRIEF = ["trainer.max_steps=1", "trainer.tensorboard=false", "device=cpu"]

pytestmark = pytest.mark.filterwarnings("ignore:.*(requested|unfinished).*")


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory) -> Path:
    """A run with an untrained model, which reads at most 64 tokens and writes at most 8."""
    place = tmp_path_factory.mktemp("runs") / "untrained"
    decode = DecodeConfig(beam_size=2, max_source_tokens=64, max_length_ratio=0, max_length_offset=8)
    config = TrainConfig(
        model=ModelConfig(16, 16, 2, 1, 1, tying="none"), tokenizer=TokenizerConfig(vocabulary_size=400), decode=decode
    )
    lines = [f"{a} {b}" for a in WORDS for b in WORDS]
    tokenizers = train_tokenizers(zip(lines, lines, strict=True), config.tokenizer, 1)
    torch.manual_seed(3)
    model = Transformer(config.model, tokenizers.source.size, tokenizers.target.size)
    with torch.no_grad():
        model.output_table[EOS_ID] = 0  # seldom the likeliest: there is something to see
    folder.create_run(place, config, tokenizers, [])
    state = {"tokenizer_fingerprint": tokenizers.fingerprint, "metrics": {}, "finished": True}
    folder.point(place, "best", folder.save_checkpoint(place, 1, model.state_dict(), {}, state))
    return place


@pytest.fixture
def run_mt(monkeypatch, tmp_path, capfdbinary):
    """Runs a command in this process; returns exit code, standard output and standard error."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str | Path, stdin: bytes = b"") -> tuple[int, str, str]:
        (tmp_path / ".stdin").write_bytes(stdin)
        with open(tmp_path / ".stdin", encoding="utf-8") as file, monkeypatch.context() as patch:
            patch.setattr(sys, "stdin", file)
            patch.setattr(sys, "argv", ["mt", *map(str, arguments)])
            with pytest.raises(SystemExit) as stopped:
                main()
                sys.exit(0)
        sys.stdout.flush()
        out, err = capfdbinary.readouterr()
        return stopped.value.code or 0, out.decode(), err.decode()

    return call


NO_VALIDATION = "~data.valid.main"


def train(run_mt, *settings: str) -> tuple[int, str, str]:
    return run_mt("train", "data.target_language=de", "run_dir=run", *SMALL, *BRIEF, *settings)


def log_of(run: Path) -> str:
    return "\n".join(json.loads(line).get("text", "") for line in read_lines(run / "log.jsonl"))


@pytest.mark.parametrize("separator", SEPARATORS, ids=ascii)
def test_a_line_break_of_other_tools_gives_no_line_of_output(run_mt, run_dir, tmp_path, separator) -> None:
    text = f"salt{separator}honey\nmilk\n".encode()
    (tmp_path / "in.txt").write_bytes(text)
    (tmp_path / "in.txt.gz").write_bytes(gzip.compress(text))
    ways = [
        run_mt("translate", run_dir, "--input", "in.txt"),
        run_mt("translate", run_dir, "--input", "in.txt.gz"),
        run_mt("translate", run_dir, stdin=text),
        run_mt(
            "translate", run_dir, *text.decode().splitlines() if separator == "\n" else text.decode()[:-1].split("\n")
        ),
    ]
    for code, out, _ in ways:
        assert code == 0 and out == ways[0][1]
        assert out.count("\n") == 2 and not set(out) & set(SEPARATORS)


def test_a_corpus_with_line_breaks_of_other_tools_is_trained_on_and_scored_line_by_line(run_mt, tmp_path) -> None:
    sources = [line for s in SEPARATORS for line in (f"salt{s}honey", "milk")]
    targets = ["SALZ" if line != "milk" else "MILCH" for line in sources]
    for name, lines, end in (("a.en", sources, "\r\n"), ("a.de", targets, "\n")):
        (tmp_path / name).write_bytes("".join(line + end for line in lines).encode())
    pairs = list(zip(sources, targets, strict=True))
    (tmp_path / "a.tsv").write_bytes("".join(f"{s}\t{t}\r\n" for s, t in pairs).encode())
    rows = [json.dumps({"en": s, "de": t}, ensure_ascii=False) for s, t in pairs]
    (tmp_path / "a.jsonl").write_bytes("\r\n".join(rows).encode())
    corpora = ("main.source=a.en", "main.target=a.de", "main.path=null", "b.path=a.tsv", "c.path=a.jsonl")
    every = [f"data.{split}.{setting}" for split in ("train", "test") for setting in corpora]
    settings = [*every, NO_VALIDATION, "data.cleaning.drop_held_out=none"]
    code, _, err = train(run_mt, *settings, "decode.max_length_ratio=0", "decode.max_length_offset=3")
    assert code == 0, err
    assert "54 training pairs (dropped: none)" in log_of(tmp_path / "run")
    tokenizer = folder.load_tokenizers(tmp_path / "run").source
    assert not set("".join(tokenizer.pieces(list(range(tokenizer.size))))) & set(SEPARATORS)
    assert run_mt("evaluate", "run")[0] == 0
    written = b"".join(path.read_bytes() for path in (tmp_path / "run" / "results").rglob("*.hyp.txt")).decode()
    assert written.count("\n") == 54 and not set(written) & set(SEPARATORS)


@pytest.mark.parametrize("split", ["train", "valid", "test"])
def test_sides_of_unequal_length_stop_the_run_before_any_work(run_mt, tmp_path, split) -> None:
    for name, text in (
        ("a.en", "x\ny\n"),
        ("a.de", "X\nY"),
        ("b.en", "x\ny\nz\n"),
        ("b.de", "X\nY\n"),
        ("c.tsv", "x\tX"),
    ):
        (tmp_path / name).write_text(text)
    settings = [f"data.{kind}.main.path=c.tsv" for kind in ("train", "valid", "test")]
    settings += [f"data.{split}.{name}.{side}={name[0]}.{suffix}" for name in ("a", "b_web") for side, suffix in SIDES]
    code, _, err = train(run_mt, *settings)
    assert code == 2 and err.count("\n") == 1
    for part in (f"data.{split}.b_web", "b.en has 3", "b.de has 2"):
        assert part in err
    assert not (tmp_path / "run").exists() and not (tmp_path / "data").exists()


@pytest.mark.parametrize("at_once", [1, 10, 33])
def test_blank_lines_keep_their_place(run_mt, run_dir, tmp_path, monkeypatch, at_once) -> None:
    lines = []
    for i in range(40):
        lines += [f"{WORDS[i % 10]} {i}", BLANKS[i % len(BLANKS)]]
    (tmp_path / "in.txt").write_bytes(("\n".join(lines) + "\n").encode())
    monkeypatch.setattr("mt.commands.translate.LINES_AT_ONCE", at_once)
    code, _, _ = run_mt("translate", run_dir, "--input", "in.txt", "--output", "out.txt")
    found = list(read_lines(tmp_path / "out.txt"))
    assert code == 0 and len(found) == 80
    assert found[1::2] == [""] * 40
    translator = load_translator(run_dir, "cpu")
    assert found[::2] == [translator.translate([line])[0] for line in lines[::2]] and all(found[::2])
    assert len(set(found[::2])) > 5
    for batch_tokens in (1, 7, 64, 4096):
        translator.decode.batch_tokens = batch_tokens
        assert translator.translate(lines) == found


def test_a_line_far_over_the_limit_is_cut_said_and_flagged(run_mt, run_dir, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("mt.commands.translate.LINES_AT_ONCE", 1)
    (tmp_path / "in.txt").write_text("salt " * 5000 + "\nI like honey\n\n")
    code, out, err = run_mt("translate", run_dir, "--input", "in.txt")
    assert code == 0 and out.count("\n") == 3
    assert out.split("\n")[1:] == [load_translator(run_dir, "cpu").translate(["I like honey"])[0], "", ""]
    assert "max_source_tokens=64" in err and "line 1 (" in err and "is unfinished" not in err
    code, out, err = run_mt("translate", run_dir, "--input", "in.txt", "--json", "--n-best", "2")
    rows = [json.loads(line) for line in out.split("\n")[:-1]]
    assert [(row["line"], row["source_truncated"]) for row in rows] == [(1, True), (2, False), (3, False)]
    assert [row["translations"][0]["unfinished"] for row in rows] == [True, True, False]
    assert rows[2]["translations"] == [{"text": "", "score": 0.0, "unfinished": False}]
    assert err.rstrip().endswith("of 3 lines 1 were cut and 2 have an unfinished translation")
    assert run_mt("translate", run_dir, "x", "--json", "--scores")[0] == 2


def test_pairs_that_are_too_long_are_counted_and_none_left_is_refused(run_mt, tmp_path) -> None:
    long = "salt " * 300
    rows = [("milk", "MILCH")] * 6 + [(long, "SALZ"), ("salt", long), ("", "LEER"), ("x" * 2001, "y" * 2001)]
    (tmp_path / "a.tsv").write_text("".join(f"{s}\t{t}\n" for s, t in rows))
    settings = ["data.train.main.path=a.tsv", NO_VALIDATION, "data.cleaning.max_length_ratio=0"]
    code, _, err = train(run_mt, *settings, "data.cleaning.max_characters=1")
    assert code == 2 and "error: data.train: no pair is left" in err and "too many source characters: 9" in err
    code, _, err = train(run_mt, *settings, "data.cleaning.max_tokens=1")
    assert code == 2 and "no pair is left" in err
    code, _, err = train(run_mt, *settings, "data.cleaning.max_tokens=100")  # the folder is as good as new
    assert code == 0, err
    log = log_of(tmp_path / "run")
    assert "6 training pairs" in log
    for part in ("1 empty source", "1 too many source characters"):
        assert part in log
    corpus_of_the_run = next((tmp_path / "data" / "cache").glob("*/metadata.json"))
    assert json.loads(corpus_of_the_run.read_text())["pairs"] == 6


@pytest.mark.parametrize(
    ("name", "damage", "part"),
    [
        ("a.tsv", "only one column", "a.tsv, line 31: has 1 columns"),
        ("a.tsv", "three\tin\tall", "a.tsv, line 31: has 3 columns"),
        ("a.jsonl", '{"en": "salt", "de"', "a.jsonl, line 31: not valid JSON"),
        (
            "a.jsonl",
            '{"en": "salt"}',
            "a.jsonl, line 31: no field 'de'; there are en: set data.train.main.target_field",
        ),
    ],
)
def test_a_damaged_line_is_named_and_the_folder_can_be_used_again(run_mt, tmp_path, name, damage, part) -> None:
    good = [
        f'"salt {i}\tSALZ {i}"' if name.endswith("tsv") else f'{{"en": "salt {i}", "de": "S {i}"}}' for i in range(30)
    ]
    settings = [f"data.train.main.path={name}", NO_VALIDATION]
    (tmp_path / name).write_text("\n".join([*good, damage, *good]) + "\n")
    code, _, err = train(run_mt, *settings)
    assert code == 2 and err.splitlines()[-1].startswith("error: ") and part in err
    (tmp_path / name).write_text("\n".join(good) + "\n")
    code, _, err = train(run_mt, *settings)
    assert code == 0, err
    assert "30 training pairs (dropped: none)" in log_of(tmp_path / "run")  # quotation marks swallow no lines


def test_rare_characters_never_come_out_as_unknown(run_mt, run_dir) -> None:
    code, out, _ = run_mt("translate", run_dir, "salt 鱻 😀", "<unk> <0xE9>", "⁇", "--n-best", "2")
    assert code == 0
    assert not any(mark in out for mark in ("⁇", "<unk>", "<0x", "\ufffd"))


def test_the_size_of_the_vocabulary_that_came_out_is_the_models(run_mt, tmp_path) -> None:
    (tmp_path / "a.tsv").write_text("".join(f"{a} {b}\t{b} {a}\n" for a, b in zip(WORDS, WORDS[1:7], strict=False)))
    settings = ["data.train.main.path=a.tsv", NO_VALIDATION, "tokenizer.vocabulary_size=8000"]
    code, _, err = train(run_mt, *settings)
    assert code == 0, err
    size = folder.load_tokenizers(tmp_path / "run").source.size
    log = log_of(tmp_path / "run")
    assert f"tokenizer.vocabulary_size: requested 8000, got {size}," in log
    assert f"vocabulary: {size} source and {size} target pieces" in log
    translator = load_translator(tmp_path / "run", "cpu", "last")
    assert translator.model.target_embedding.weight.shape[0] == size
    assert translator.translate(["salt pepper"])


@pytest.mark.parametrize("name", ["SIGTERM", pytest.param("SIGINT", marks=pytest.mark.slow)])
def test_a_stopped_translation_leaves_no_unfinished_file(run_dir, tmp_path, name) -> None:
    (tmp_path / "out.txt").write_bytes(b"old")
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "mt", "translate", run_dir, "--output", "out.txt"]
    pipes = {"stdin": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, cwd=tmp_path, env=environment, **pipes) as process:
        deadline = time.monotonic() + 60
        while len(list(tmp_path.iterdir())) == 1 and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        assert len(list(tmp_path.iterdir())) == 2
        time.sleep(0.5)  # it waits for its input
        process.send_signal(getattr(signal, name))
        assert process.wait(timeout=60) == 128 + getattr(signal, name)
        assert b"Traceback" not in process.stderr.read()
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"old"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_disk_is_named(run_mt, run_dir) -> None:
    code, _, err = run_mt("translate", run_dir, "salt", "--output", "/dev/full")
    assert code == 2 and err.splitlines()[-1].startswith("error: /dev/full: No space left on device; make room")


def test_full_width_punctuation_is_learned_and_written(run_mt, tmp_path) -> None:
    ends, nouns = "。？！", ["茶", "米饭", "面包", "苹果", "汤"]
    texts = [f"我要{a}，你要{b}{end}（{i}）…" for i, a in enumerate(nouns) for b in nouns for end in ends]
    (tmp_path / "a.tsv").write_text("".join(f"{text}\t{text}\n" for text in texts), encoding="utf-8")
    settings = ["data.train.main.path=a.tsv", NO_VALIDATION, "model.d_model=64", "model.d_ff=64", "model.n_heads=2"]
    settings += ["model.encoder_layers=1", "model.decoder_layers=1", "optim.lr=5e-3", "optim.warmup_steps=20"]
    settings += ["trainer.max_steps=120", "trainer.batch_tokens=300", "trainer.tensorboard=false", "device=cpu"]
    code, _, err = run_mt("train", "run_dir=run", "data.source_language=zh", *settings)
    assert code == 0, err
    code, out, _ = run_mt("translate", "run", *texts[::9], "--beam-size", "1")
    written = out.split("\n")[:-1]
    assert code == 0 and all("，" in line for line in written)
    assert sum(line == text for line, text in zip(written, texts[::9], strict=True)) > len(written) / 2
