"""mt export: verified before it has its name, never over what it did not write, complete and described."""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from dataclasses import replace

import pytest
import torch

from mt.__main__ import main
from mt.config import DecodeConfig
from mt.export import export as export_module
from mt.export.argos import byte_pieces, is_own_package
from mt.export.engine import load_engine
from mt.export.export import Request, export
from mt.export.verify import verify
from mt.translation.ctranslate2_engine import CTranslate2Translator, load_ctranslate2_translator
from mt.translation.translator import load_translator
from tests.export.small_runs import MODEL, make_tokenizers, random_model, save_run, sentences

ctranslate2 = pytest.importorskip("ctranslate2", reason="needs mt's extra export")
pytestmark = pytest.mark.filterwarnings(
    "ignore:.*are unfinished.*", "ignore:.*sacremoses.*", "ignore:.*look tokenised.*"
)


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    tokenizers = make_tokenizers(False)
    model = random_model(replace(MODEL, output_bias=True), tokenizers)
    run_dir = save_run(tmp_path_factory.mktemp("runs") / "small", model, tokenizers, max_source_tokens=60)
    (run_dir / "log.jsonl").write_text('{"event": "message", "text": "12,345 training pairs (dropped: none)"}\n')
    (run_dir / "results").mkdir()
    score = {"value": 12.345, "signature": "tok:13a"}
    record = {"checkpoint": "step_00000005", "bleu": score, "chrf": score, "sentences": 7}
    (run_dir / "results" / "test.json").write_text(json.dumps(record))
    return run_dir


@pytest.fixture
def run_dir(original, tmp_path):
    return shutil.copytree(original, tmp_path / "small")


@pytest.fixture
def run_mt(monkeypatch, capfd):
    """Runs a command in this process; returns exit code, stdout, stderr."""

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["mt", *map(str, arguments)])
        with pytest.raises(SystemExit) as stopped:
            main()
        sys.stdout.flush()
        return (stopped.value.code or 0, *capfd.readouterr())

    return call


def test_a_folder_for_ctranslate2(run_dir, tmp_path, run_mt):
    out = tmp_path / "exported"
    code, stdout, stderr = run_mt("export", run_dir, out, "--to", "ctranslate2", "--license", "CC-BY-4.0")
    assert code == 0, stderr
    assert stdout.startswith(
        "verified on 20 sentences (the run's data.valid): 20 identical (100.00%), 0 differ by a tie"
    )
    assert "BLEU" in stdout and "tok:13a" in stdout
    assert "verifying: 20 sentences" in stderr
    names = {path.name for path in out.iterdir()}
    assert names == {
        "model.bin", "config.json", "source_vocabulary.json", "target_vocabulary.json", "source.model", "target.model",
        "export.json", "README.md",
    }  # fmt: skip
    card = (out / "README.md").read_text(encoding="utf-8")
    for part in ('language: ["en", "de"]', "CC-BY-4.0", "books", "12,345 sentence pairs", "verified on 20 sentences",
                 "test, 7 sentences: bleu 12.35", "CTranslate2, float32", '.Translator("exported")'):  # fmt: skip
        assert part in card
    assert not list(tmp_path.glob(".*"))  # nothing temporary stays
    texts = sentences(5, seed=31)
    expected = load_translator(run_dir, "cpu").translate(texts)
    assert load_ctranslate2_translator(out, "cpu").translate(texts) == expected
    for arguments in ([out], [run_dir, "--engine", "ctranslate2"], [run_dir]):
        code, stdout, stderr = run_mt("translate", *arguments, *texts, "--device", "cpu")
        assert (code, stdout) == (0, "".join(f"{line}\n" for line in expected)), stderr
    code, _, stderr = run_mt("translate", out, "tea", "--checkpoint", "last")
    assert (code, stderr) == (2, f"error: --checkpoint=last: {out} is an export, of one checkpoint: leave it out\n")
    code, _, stderr = run_mt("translate", out, "tea", "--engine", "mt")
    assert code == 2 and "is an export" in stderr
    code, _, stderr = run_mt("translate", run_dir, "tea", "--engine", "marian")
    assert code == 2 and stderr == "error: --engine=marian: must be mt or ctranslate2\n"


def test_the_card_shows_code_that_runs(run_dir, tmp_path):
    translator = load_translator(run_dir, "cpu")
    with torch.no_grad():
        translator.model.output_bias[byte_pieces(translator.tokenizers)] -= 20  # broken characters would be no text
    settings = {"beam_size": 1, "no_repeat_ngram_size": 2, "max_source_tokens": 60}
    run_dir = save_run(tmp_path / "greedy", translator.model, translator.tokenizers, **settings)
    out = tmp_path / "exported"
    export(Request(run_dir, out, "ctranslate2"))
    code = (out / "README.md").read_text(encoding="utf-8").split("```python\n")[1].split("```")[0]
    texts = sentences(20, seed=31)
    found = load_translator(run_dir, "cpu").translate_n_best(texts, 1)
    free = load_translator(run_dir, "cpu", decode=DecodeConfig(beam_size=1)).translate(texts)
    text = next(
        text
        for text, (best, *_), without in zip(texts, found, free, strict=True)
        if best.text not in ("", without) and not best.unfinished
    )
    found = subprocess.run(
        [sys.executable, "-c", code.replace('"..."', repr(text))], cwd=tmp_path, capture_output=True, text=True
    )
    assert found.returncode == 0, found.stderr
    assert found.stdout == f"{load_translator(run_dir, 'cpu').translate([text])}\n"


def test_a_wrong_export_gets_no_name(run_dir, tmp_path, monkeypatch):
    original = export_module.save_ctranslate2_model

    def spoiled(folder, config, weights, *rest):
        weights = {name: tensor * (1.5 if "cross_attention" in name else 1) for name, tensor in weights.items()}
        original(folder, config, weights, *rest)

    monkeypatch.setattr(export_module, "save_ctranslate2_model", spoiled)
    with pytest.raises(ValueError, match=r"exported: not written: \d+ of 20 sentences are not translated as by mt"):
        export(Request(run_dir, tmp_path / "exported", "ctranslate2"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["small"]


def test_a_loss_of_bleu_warns_and_is_kept(run_dir, tmp_path, monkeypatch):
    verified = verify

    def worse(*arguments):
        found = verified(*arguments)
        return replace(found, our_bleu=replace(found.our_bleu, value=found.their_bleu.value + 0.4))

    monkeypatch.setattr(export_module, "verify", worse)
    with pytest.warns(UserWarning, match="loses 0.40 BLEU"):
        export(Request(run_dir, tmp_path / "exported", "ctranslate2", "int8"))
    assert (tmp_path / "exported" / "model.bin").exists()


def test_only_its_own_is_replaced(run_dir, tmp_path):
    out = tmp_path / "exported"
    out.mkdir()
    (out / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match="exported: exists, and was not written by mt export"):
        export(Request(run_dir, out, "ctranslate2"))
    (out / "notes.txt").unlink()
    export(Request(run_dir, out, "ctranslate2"))
    (out / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match="exported: holds notes.txt, which mt export did not write"):
        export(Request(run_dir, out, "ctranslate2"))
    (out / "notes.txt").unlink()
    size = (out / "model.bin").stat().st_size
    export(Request(run_dir, out, "ctranslate2", "int8"))
    assert (out / "model.bin").stat().st_size < size
    package = tmp_path / "mine.argosmodel"
    package.write_bytes(b"mine")
    with pytest.raises(ValueError, match="mine.argosmodel: exists, and was not written by mt export"):
        export(Request(run_dir, package, "argos"))
    assert package.read_bytes() == b"mine"


def test_search_settings_that_no_other_engine_has_are_left_out_and_named(run_dir, tmp_path):
    settings = {"repetition_penalty": 1.5, "min_length_ratio": 0.5, "beam_size": 3}
    translator = load_translator(run_dir, "cpu")
    run = save_run(tmp_path / "other", translator.model, translator.tokenizers, **settings)
    with pytest.warns(UserWarning, match="^decode.repetition_penalty=1.5, decode.min_length_ratio=0.5: only mt's own"):
        found = export(Request(run, tmp_path / "exported", "ctranslate2", verify_sentences=5))
    assert not found.unexplained
    assert "decode.repetition_penalty=1.5, which only mt knows" in (tmp_path / "exported" / "README.md").read_text()
    texts = sentences(5, seed=31)
    plain = replace(translator.decode, max_source_tokens=1024)
    expected = load_translator(run, "cpu", decode=plain).translate(texts)
    assert load_ctranslate2_translator(tmp_path / "exported", "cpu").translate(texts) == expected
    assert load_translator(run, "cpu").translate(texts) != expected


def test_sentences_to_verify(run_dir, tmp_path):
    file = tmp_path / "given.txt"
    file.write_text("".join(f"{line}\n" for line in sentences(9, seed=40)))
    (tmp_path / "valid.tsv").unlink(missing_ok=True)
    config = (run_dir / "config.yaml").read_text()
    (run_dir / "config.yaml").write_text(config.replace("valid.tsv", "gone.tsv"))
    with pytest.raises(ValueError, match=r"gone.tsv.*give sentences to compare translations of with --verify FILE"):
        export(Request(run_dir, tmp_path / "exported", "ctranslate2"))
    found = export(Request(run_dir, tmp_path / "exported", "ctranslate2", verify_file=file, verify_sentences=4))
    assert (found.sentences, found.our_bleu, found.bleu_loss) == (4, None, None)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"to": "onnx"}, "^--to=onnx: must be one of ctranslate2, transformers, argos"),
        ({"quantization": "int4"}, "^--quantization=int4: must be one of float32"),
        ({"to": "transformers", "quantization": "int8"}, "^--quantization=int8: --to transformers writes float32"),
        ({"verify_sentences": 0}, "^--verify-sentences=0"),
        ({"to": "argos"}, "exported: a package for Argos Translate is a file that ends in .argosmodel"),
    ],
)
def test_wrong_requests_are_one_line(run_dir, tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        export(replace(Request(run_dir, tmp_path / "exported", "ctranslate2"), **changes))


def test_a_missing_package_names_the_extra(run_dir, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"^ctranslate2 is not installed: pip install ctranslate2, .*\[export\]$"):
        export(Request(run_dir, tmp_path / "exported", "ctranslate2"))
    with pytest.raises(ValueError, match=r"^transformers is not installed: .* \[transformers\]$"):
        export(Request(run_dir, tmp_path / "exported", "transformers"))
    with pytest.raises(ValueError, match=r"^ctranslate2 is not installed: pip install ctranslate2, .*\[export\]$"):
        CTranslate2Translator(tmp_path, make_tokenizers(True), DecodeConfig())
    with pytest.raises(ValueError, match=r"^ctranslate2 is not installed: pip install ctranslate2, .*\[export\]$"):
        load_engine(run_dir)


def test_a_folder_for_transformers(run_dir, tmp_path):
    pytest.importorskip("transformers", reason="needs mt's extra transformers")
    found = export(Request(run_dir, tmp_path / "exported", "transformers"))
    assert (found.sentences, len(found.unexplained)) == (20, 0)
    names = {path.name for path in (tmp_path / "exported").iterdir()}
    assert names == {
        "model.safetensors", "config.json", "generation_config.json", "tokenizer_config.json", "vocab.json",
        "target_vocab.json", "source.spm", "target.spm", "export.json", "README.md",
    }  # fmt: skip
    export(Request(run_dir, tmp_path / "exported", "transformers"))  # replaces its own


def test_a_package_for_argos(run_dir, tmp_path):
    out = tmp_path / "en_de.argosmodel"
    found = export(Request(run_dir, out, "argos"))
    assert len(found.unexplained) == 0 and is_own_package(out)
    with zipfile.ZipFile(out) as package:
        names = {name for name in package.namelist() if not name.endswith("/")}
        package.extractall(tmp_path / "installed")
    assert names == {
        f"translate-en_de-1_0/{name}"
        for name in ("metadata.json", "sentencepiece.model", "README.md", "model/model.bin", "model/config.json",
                     "model/source_vocabulary.json", "model/target_vocabulary.json")
    }  # fmt: skip
    metadata = json.loads((tmp_path / "installed" / "translate-en_de-1_0" / "metadata.json").read_text())
    assert [metadata[key] for key in ("from_code", "from_name", "to_code", "to_name", "type")] == [
        "en", "English", "de", "German", "translate",
    ]  # fmt: skip
    export(Request(run_dir, out, "argos", "int8"))  # replaces its own


def test_a_package_for_argos_is_verified_by_the_search_of_argos(run_dir, tmp_path, monkeypatch):
    translator = load_translator(run_dir, "cpu")
    run = save_run(tmp_path / "other", translator.model, translator.tokenizers, no_repeat_ngram_size=2)
    searched = []

    def noted(translator, *rest):
        searched.append(translator.decode)
        return verify(translator, *rest)

    monkeypatch.setattr(export_module, "verify", noted)
    export(Request(run, tmp_path / "x.argosmodel", "argos", verify_sentences=3))
    assert [(d.beam_size, d.length_penalty, d.no_repeat_ngram_size) for d in searched] == [(4, 0.2, 0)]


def test_argos_gets_no_byte_pieces(run_dir, tmp_path):
    """Argos Translate would write them as <0xE9>."""
    translator = load_translator(run_dir, "cpu")
    pieces = byte_pieces(translator.tokenizers)
    assert len(pieces) == 256
    with torch.no_grad():
        translator.model.output_bias[pieces] += 20
    run = save_run(tmp_path / "bytes", translator.model, translator.tokenizers, max_source_tokens=60)
    texts = sentences(5, seed=3)
    assert any(set(pieces) & set(found[0].tokens) for found in load_translator(run).translate_n_best(texts, 1))
    export(Request(run, tmp_path / "x.argosmodel", "argos"))
    with zipfile.ZipFile(tmp_path / "x.argosmodel") as package:
        package.extractall(tmp_path)
    engine = ctranslate2.Translator(str(tmp_path / "translate-en_de-1_0" / "model"))
    cut = [translator.tokenizers.source.pieces(ids) for ids in translator.tokenizers.source.encode(texts)]
    for result in engine.translate_batch(cut, beam_size=4, length_penalty=0.2, replace_unknowns=True):
        assert not any(piece.startswith("<0x") for piece in result.hypotheses[0])


def test_a_damaged_export_is_named(run_dir, tmp_path):
    out = tmp_path / "exported"
    export(Request(run_dir, out, "ctranslate2"))
    for name in ("model.bin", "target_vocabulary.json", "source.model"):
        content = (out / name).read_bytes()
        half = len(content) // 2
        (out / name).write_bytes(content[:half] + bytes([content[half] ^ 1]) + content[half + 1 :])
        with pytest.raises(
            ValueError, match=f"{name}: damaged .its bytes are not those that were saved: another SHA-256"
        ):
            load_ctranslate2_translator(out, "cpu")
        (out / name).write_bytes(content)
    load_ctranslate2_translator(out, "cpu")


def test_what_killed_exports_left_is_removed(run_dir, tmp_path):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    names = f".tmp-{ended.pid}-exported", f".tmp-{os.getppid()}-exported", f".tmp-{ended.pid}-b"
    left, at_work, other = (tmp_path / name for name in names)
    for folder in (left, at_work, other):
        folder.mkdir()
    export(Request(run_dir, tmp_path / "exported", "ctranslate2"))
    assert not left.exists() and at_work.exists() and other.exists()
