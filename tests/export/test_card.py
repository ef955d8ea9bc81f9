"""The card says what is known of the run, and nothing else."""

import json
from dataclasses import replace

import pytest
import yaml

from mt.checkpoint import MODEL, load_config, pointed, read_state
from mt.config import TrainConfig
from mt.export.card import Card, write_card
from mt.export.verify import Verification
from tests.export.small_runs import MODEL as SMALL
from tests.export.small_runs import make_tokenizers, random_model, save_run

VERIFIED = Verification(3, "a list", [], None, None)


@pytest.fixture
def run_dir(tmp_path):
    tokenizers = make_tokenizers(True)
    return save_run(tmp_path / "small", random_model(SMALL, tokenizers), tokenizers)


def card_of(run_dir, config: TrainConfig | None = None, checkpoint: str = "best", licence: str | None = None) -> str:
    config = config or load_config(run_dir)
    card = Card(run_dir, pointed(run_dir, checkpoint), config, licence, "CTranslate2", "how")
    write_card(run_dir.parent / "README.md", card, VERIFIED, ["A note."])
    return (run_dir.parent / "README.md").read_text(encoding="utf-8")


def metadata(card: str) -> dict:
    return yaml.safe_load(card.split("---\n")[1])


def test_metadata_is_what_it_says(run_dir):
    config = load_config(run_dir)
    config.data.target_language = "no"  # Norwegian: unquoted, it is false to YAML
    card = card_of(run_dir, config, licence='my own: "free"\n')
    assert metadata(card)["language"] == ["en", "no"]
    assert metadata(card)["license"] == 'my own: "free"\n'
    assert metadata(card_of(run_dir))["license"] == "unknown"


def test_scores_are_of_these_weights_and_signed(run_dir):
    checkpoint = pointed(run_dir, "best")
    score = {"value": 12.345, "signature": "tok:13a"}
    record = {
        "checkpoint": checkpoint.name, "weights": read_state(checkpoint)["sha256"][MODEL], "sentences": 7,
        "decode": {"beam_size": 4, "length_penalty": 0.6}, "bleu": score, "chrf": score,
    }  # fmt: skip
    (run_dir / "results").mkdir()
    file = run_dir / "results" / "test.json"
    file.write_text(json.dumps(record))
    line = "- test, 7 sentences, beam_size 4, length_penalty 0.6: bleu 12.35 (tok:13a)\n"
    assert f"Of the run, translated by mt before it was exported:\n\n{line}" in card_of(run_dir)
    for change in ({"weights": "of a later training"}, {"checkpoint": "other"}, {"bleu": {"value": 1.0}}):
        file.write_text(json.dumps({**record, **change}))
        assert "None on record" in card_of(run_dir)


def test_where_the_weights_come_from(run_dir):
    config = replace(load_config(run_dir), init_from="/somewhere/parent")
    card = card_of(run_dir, config)
    assert "trained and exported by mt" in card and "Training corpora: books; an unknown number of" in card
    assert "It began with the weights of parent, which had" in card and "somewhere" not in card
    pointed(run_dir, "best").rename(run_dir / "checkpoints" / "imported")  # as mt import names its checkpoint
    state = run_dir / "checkpoints" / "imported" / "state.json"
    assert state.exists()
    card = card_of(run_dir, checkpoint="imported")
    assert "trained by Marian, imported and exported by mt" in card
    assert "Trained elsewhere" in card and "books" not in card


def test_settings_that_only_our_search_has_are_limits(run_dir):
    config = load_config(run_dir)
    config.decode.repetition_penalty = 1.2
    assert "- The run's search has decode.repetition_penalty=1.2, which only mt knows" in card_of(run_dir, config)
    assert "which only mt knows" not in card_of(run_dir)
