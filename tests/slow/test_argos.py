"""A package is installed and translated with by Argos Translate itself.

Only its sentence splitter is replaced, by one that takes each text for a sentence: the real one fetches a model. Needs
argostranslate, minisbd and sacremoses; Stanza, which Argos Translate imports as well, it does without.
"""

import json
import os
import subprocess
import sys
import zipfile

import pytest

from mt.export.argos import BEAMS, LENGTH_PENALTY
from mt.export.export import Request, export
from tests.export.small_runs import MODEL, make_tokenizers, random_model, save_run, sentences

ctranslate2 = pytest.importorskip("ctranslate2", reason="needs mt's extra export")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:.*are unfinished.*")]

SCRIPT = """
import json, sys, types
sys.modules["stanza"] = types.ModuleType("stanza")  # another sentence splitter, imported and not used
import argostranslate.package, argostranslate.sbd, argostranslate.translate
argostranslate.sbd.MiniSBDSentencizer.split_sentences = lambda self, text: [text]
argostranslate.package.install_from_path(sys.argv[1])
installed, = argostranslate.package.get_installed_packages()
texts = json.loads(sys.argv[2])
found = [argostranslate.translate.translate(text, "en", "de") for text in texts]
print(json.dumps([str(installed), installed.get_readme(), found]))
"""


@pytest.mark.parametrize("joint", [True, False])
def test_argos_translate_installs_and_translates(joint, tmp_path):
    pytest.importorskip("argostranslate", reason="needs argostranslate, which no extra of mt installs")
    tokenizers = make_tokenizers(joint)
    run_dir = save_run(tmp_path / "small", random_model(MODEL, tokenizers), tokenizers)
    package = tmp_path / "en_de.argosmodel"
    export(Request(run_dir, package, "argos"))
    texts = sentences(8, seed=17)
    home = {"HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path / "data"), "ARGOS_CHUNK_TYPE": "MINISBD"}
    home |= {f"XDG_{kind}_HOME": str(tmp_path / kind.lower()) for kind in ("CONFIG", "CACHE")}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(package), json.dumps(texts)],
        env={**os.environ, **home}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    name, readme, found = json.loads(done.stdout.splitlines()[-1])
    assert name == "English → German" and readme.startswith('---\nlanguage: ["en", "de"]')
    with zipfile.ZipFile(package) as opened:
        opened.extractall(tmp_path)
    engine = ctranslate2.Translator(str(tmp_path / "translate-en_de-1_0" / "model"), compute_type="auto")
    pieces = [tokenizers.source.pieces(ids) for ids in tokenizers.source.encode(texts)]
    results = engine.translate_batch(pieces, beam_size=BEAMS, length_penalty=LENGTH_PENALTY, replace_unknowns=True)
    expected = ["".join(result.hypotheses[0]).replace("▁", " ").removeprefix(" ") for result in results]
    assert len(set(expected)) > 1 and found == expected
