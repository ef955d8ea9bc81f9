"""The README.md of an export: what the model is, what it was made of, how good it is and how it is loaded."""

import json
import re
from dataclasses import dataclass
from pathlib import Path

from mt.checkpoint import MODEL, read_state
from mt.config import TrainConfig
from mt.export.marian_import import CHECKPOINT as IMPORTED
from mt.export.verify import Verification
from mt.translation.ctranslate2_engine import ours_alone
from mt.versions import mt_version

_TRAINING_PAIRS = re.compile(r"^([\d,]+) training pairs")


@dataclass(frozen=True)
class Card:
    """What a card says beside what the run tells."""

    run_dir: Path
    checkpoint: Path
    config: TrainConfig
    licence: str | None  # of the weights, as the user states it; None: to be filled in
    format: str  # such as "CTranslate2, int8"
    usage: str  # how it is loaded, in Markdown


def write_card(file: Path, card: Card, verification: Verification, notes: list[str]) -> None:
    """Writes the card; `notes` are further limits, one sentence each."""
    data = card.config.data
    source, target = data.source_language, data.target_language
    licence = card.licence or "not stated; whoever publishes this model has to state one"
    maker = "trained by Marian, imported" if card.checkpoint.name == IMPORTED else "trained"
    lines = [
        "---",
        f"language: {json.dumps([source, target])}",  # quoted: no, of Norwegian, is false to YAML
        f"license: {json.dumps(card.licence or 'unknown', ensure_ascii=False)}",
        "pipeline_tag: translation",
        "---",
        "",
        f"# {card.config.name}: translates from {source} to {target}",
        "",
        f"A Transformer with an encoder and a decoder ({_shape(card.config)}), {maker} and exported by mt "
        f"{mt_version()}. Format: {card.format}. Made from the checkpoint {card.checkpoint.name}.",
        "",
        "## Use",
        "",
        card.usage.strip(),
        "",
        "## Data",
        "",
        f"{_data(card)} The corpora have licences of their own, which bind the model too where they say so.",
        "",
        "## Scores",
        "",
        *(_scores(card) or ["None on record: `mt evaluate` on the run's folder measures them."]),
        "",
        "## Checked when it was exported",
        "",
        *[f"- {line}" for line in verification.lines()],
        "",
        "## Limits",
        "",
        "- It translates single sentences: it knows nothing of those around one, and longer text has to be cut.",
        f"- Of a source the run's own search reads {card.config.decode.max_source_tokens} tokens at most.",
        *[
            f"- The run's search has decode.{name}={value}, which only mt knows: it was exported and checked without."
            for name, value in ours_alone(card.config.decode).items()
        ],
        "- It learned from the corpora above. Other kinds of text, names and numbers are where it errs first, and it "
        "repeats the prejudices of its data. A person should read what matters.",
        *[f"- {note}" for note in notes],
        "",
        "## Licence",
        "",
        f"Licence of the weights: {licence}.",
        "",
    ]
    file.write_text("\n".join(lines), encoding="utf-8")


def _shape(config: TrainConfig) -> str:
    model = config.model
    return (
        f"{model.encoder_layers} and {model.decoder_layers} layers, d_model {model.d_model}, {model.n_heads} heads, "
        f"{model.norm_position}-norm"
    )


def _data(card: Card) -> str:
    """Returns sentences about the corpora."""
    if card.checkpoint.name == IMPORTED:
        return "Trained elsewhere: who published the imported model says on which corpora."
    corpora = ", ".join(card.config.data.train) or "not known"
    pairs = _training_pairs(card.run_dir) or "an unknown number of"
    text = f"Training corpora: {corpora}; {pairs} sentence pairs after cleaning."
    if card.config.init_from:
        text += f" It began with the weights of {Path(card.config.init_from).name}, which had corpora of its own."
    return text


def _training_pairs(run_dir: Path) -> str | None:
    """Returns the number that the run's log names, such as '54,286', or None."""
    try:
        lines = (run_dir / "log.jsonl").read_text(encoding="utf-8").split("\n")
    except OSError:
        return None
    for line in lines:
        try:
            text = json.loads(line).get("text", "")
        except (ValueError, AttributeError):
            continue
        if isinstance(text, str) and (found := _TRAINING_PAIRS.match(text)):
            return f"{int(found[1].replace(',', '')):,}"
    return None


def _scores(card: Card) -> list[str]:
    """Returns what mt evaluate wrote below results/ for this checkpoint, a line for each score, and whose they are."""
    weights = read_state(card.checkpoint).get("sha256", {}).get(MODEL)
    lines = []
    for file in sorted((card.run_dir / "results").glob("*.json")):
        try:
            record = json.loads(file.read_bytes())
            if record.get("checkpoint") != card.checkpoint.name or record.get("weights", weights) != weights:
                continue
            search = record.get("decode", {})
            how = "".join(f", {name} {search[name]}" for name in ("beam_size", "length_penalty") if name in search)
            for key in ("bleu", "chrf"):
                value, signature = record[key]["value"], record[key]["signature"]
                lines.append(f"- {file.stem}, {record['sentences']} sentences{how}: {key} {value:.2f} ({signature})")
        except (OSError, ValueError, KeyError, TypeError, AttributeError):  # no record of ours
            continue
    return ["Of the run, translated by mt before it was exported:", "", *lines] if lines else []
