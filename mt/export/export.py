"""A trained run as what other engines load: written, verified against our own search, described, then named."""

import json
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from mt.checkpoint import load_config, pointed
from mt.config import DecodeConfig, TrainConfig
from mt.export import argos
from mt.export.card import Card, write_card
from mt.export.ctranslate2_model import QUANTIZATIONS, save_ctranslate2_model
from mt.export.transformers_consumer import translate_by_transformers
from mt.export.transformers_model import check_fits_transformers, save_transformers_model
from mt.export.usage import ARGOS_USAGE, CTRANSLATE2_USAGE, TRANSFORMERS_USAGE
from mt.export.verify import LARGEST_LOSS, Sentences, Verification, sentences_to_verify, verify
from mt.export.whole import new_folder
from mt.model.transformer import Transformer
from mt.tensors import copy_weights, sha256
from mt.translation.ctranslate2_engine import (
    EXHAUSTIVE,
    RECORD,
    CTranslate2Translator,
    import_ctranslate2,
    ours_alone,
    read_record,
)
from mt.translation.lines import longest_output
from mt.translation.translator import Translator, load_translator
from mt.versions import mt_version

TARGETS = ("ctranslate2", "transformers", "argos")
CTRANSLATE2_POSITIONS = 1025  # CTranslate2 and Argos Translate read 1024 tokens and write 256, unless told otherwise
FILES = {  # of an export's folder, in any format
    "README.md", RECORD, "config.json", "model.bin", "source_vocabulary.json", "target_vocabulary.json",
    "shared_vocabulary.json", "source.model", "target.model", "joint.model", "model.safetensors",
    "generation_config.json", "tokenizer_config.json", "vocab.json", "target_vocab.json", "source.spm", "target.spm",
}  # fmt: skip


@dataclass(frozen=True)
class Request:
    """What mt export is asked for."""

    run_dir: Path
    out: Path  # a folder; with to=argos a file that ends in .argosmodel
    to: str  # one of TARGETS
    quantization: str | None = None  # None: float32
    checkpoint: str = "best"
    licence: str | None = None  # of the weights
    verify_file: Path | None = None  # sentences to compare translations of; None: the run's data.valid
    verify_sentences: int = 300  # at most


def export(request: Request, tell: Callable[[str], None] = lambda text: None) -> Verification:
    """Returns how the new export's translations compare with our own; it is at request.out then, and nowhere before.

    tell: is told what takes its time, in a line for people.
    Raises ValueError, before anything is written, for what cannot be exported and for a name that is taken by what is
    no export; and where an exact format does not translate as we do. Warns of search settings that no export can have.
    """
    exact = request.quantization in (None, "float32")
    _check(request)
    config = load_config(request.run_dir)
    if request.to == "transformers":
        check_fits_transformers(config.model)
    if request.to == "argos" and config.decode.tags:
        raise ValueError(
            f"--to argos: decode.tags={config.decode.tags}: Argos Translate puts no tags before a source: export to "
            "ctranslate2 or transformers"
        )
    translator = load_translator(request.run_dir, "cpu", request.checkpoint, _exported_search(config))
    sentences = sentences_to_verify(config, request.run_dir, request.verify_sentences, request.verify_file)
    with new_folder(request.out, file=request.to == "argos") as temporary:
        write = {"ctranslate2": _to_ctranslate2, "transformers": _to_transformers, "argos": _to_argos}[request.to]
        tell(f"verifying: {len(sentences.sources)} sentences ({sentences.origin}) by mt and by the export")
        verification = write(request, config, translator, sentences, temporary)
        if exact and verification.unexplained:
            first = verification.unexplained[0]
            raise ValueError(
                f"{request.out}: not written: {len(verification.unexplained)} of {verification.sentences} sentences "
                f"are not translated as by mt, and by no tie; the first: {first.source!r} became {first.theirs!r} "
                f"(score {first.their_score:.6f}) instead of {first.ours!r} ({first.our_score:.6f})"
            )
    loss = verification.bleu_loss
    if loss is not None and loss > LARGEST_LOSS:
        warnings.warn(f"the export loses {loss:.2f} BLEU (more than {LARGEST_LOSS}): try another type", stacklevel=2)
    return verification


def _check(request: Request) -> None:
    if request.to not in TARGETS:
        raise ValueError(f"--to={request.to}: must be one of {', '.join(TARGETS)}")
    if request.quantization is not None and request.to == "transformers":
        raise ValueError(f"--quantization={request.quantization}: --to transformers writes float32; leave it out")
    if request.quantization is not None and request.quantization not in QUANTIZATIONS:
        raise ValueError(f"--quantization={request.quantization}: must be one of {', '.join(QUANTIZATIONS)}")
    if request.verify_sentences < 1:
        raise ValueError(f"--verify-sentences={request.verify_sentences}: must be at least 1")
    if request.to == "transformers":
        _require_transformers()
    else:
        import_ctranslate2()
    out = request.out
    if request.to == "argos":
        if out.suffix != argos.SUFFIX:
            raise ValueError(f"{out}: a package for Argos Translate is a file that ends in {argos.SUFFIX}")
        if out.exists() and not argos.is_own_package(out):
            raise ValueError(f"{out}: exists, and was not written by mt export; choose another name")
    elif out.is_dir() and any(out.iterdir()):
        try:
            read_record(out)
        except ValueError as error:
            raise ValueError(f"{out}: exists, and was not written by mt export; choose another name") from error
        for path in out.iterdir():
            if path.name not in FILES:
                raise ValueError(
                    f"{out}: holds {path.name}, which mt export did not write; move it, or choose another name"
                )
    elif out.exists() and not out.is_dir():
        raise ValueError(f"{out}: is a file; the export is a folder")
    if not out.resolve().parent.is_dir():
        raise ValueError(f"{out}: there is no folder {out.resolve().parent} to write to")


def _require_transformers() -> None:
    import importlib.util

    if importlib.util.find_spec("transformers") is None:
        raise ValueError("transformers is not installed: pip install transformers, or mt with its extra [transformers]")


def _exported_search(config: TrainConfig) -> DecodeConfig:
    """Returns the run's search settings without those that only our own search has; warns of them."""
    lost = ours_alone(config.decode)
    if lost:
        settings = ", ".join(f"decode.{name}={value}" for name, value in lost.items())
        warnings.warn(f"{settings}: only mt's own search has this; exported and checked without", stacklevel=3)
    defaults = DecodeConfig()
    return replace(config.decode, **{name: getattr(defaults, name) for name in lost})


def positions_needed(decode: DecodeConfig) -> int:
    """Returns the longest source or output in tokens, </s> counted."""
    return max(decode.max_source_tokens + 1, longest_output(decode, decode.max_source_tokens))


def convert(folder: Path, config: TrainConfig, translator: Translator, quantization: str) -> None:
    """Writes a folder that load_ctranslate2_translator reads: the model, the tokenizers and the record."""
    positions = max(positions_needed(translator.decode), CTRANSLATE2_POSITIONS)
    weights, model = translator.model.state_dict(), translator.model.config
    save_ctranslate2_model(folder, model, weights, translator.tokenizers, positions, quantization)
    translator.tokenizers.save(folder)
    _write_record(folder, "ctranslate2", config, translator, None if model.positions == "rotary" else positions)


def _write_record(folder: Path, to: str, config: TrainConfig, translator: Translator, positions: int | None) -> None:
    record = {
        "made_by": f"mt {mt_version()}",
        "to": to,
        "source_language": config.data.source_language,
        "target_language": config.data.target_language,
        "tokenizer_fingerprint": translator.tokenizers.fingerprint,
        "positions": positions,
        "decode": asdict(translator.decode),
        "sha256": {file.name: sha256(file) for file in sorted(folder.iterdir()) if file.is_file()},
    }
    (folder / RECORD).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


def _card(request: Request, config: TrainConfig, kind: str, usage: str) -> Card:
    checkpoint = pointed(request.run_dir, request.checkpoint)
    return Card(request.run_dir, checkpoint, config, request.licence, kind, usage)


def _to_ctranslate2(
    request: Request, config: TrainConfig, translator: Translator, sentences: Sentences, folder: Path
) -> Verification:
    quantization = request.quantization or "float32"
    convert(folder, config, translator, quantization)
    engine = CTranslate2Translator(folder, translator.tokenizers, translator.decode, "cpu", EXHAUSTIVE)
    verification = verify(translator, engine.translate_best, sentences, config.data.target_language)
    models = ("joint.model", "joint.model") if translator.tokenizers.joint else ("source.model", "target.model")
    usage = CTRANSLATE2_USAGE.format(
        name=request.out.name, source=models[0], target=models[1], beam_size=translator.decode.beam_size,
        length_penalty=translator.decode.length_penalty, no_repeat_ngram_size=translator.decode.no_repeat_ngram_size,
    )  # fmt: skip
    card = _card(request, config, f"CTranslate2, {quantization}", usage)
    write_card(folder / "README.md", card, verification, [])
    return verification


def _to_transformers(
    request: Request, config: TrainConfig, translator: Translator, sentences: Sentences, folder: Path
) -> Verification:
    positions = positions_needed(translator.decode) + 1  # see translate_by_transformers
    model, tokenizers = translator.model, translator.tokenizers
    save_transformers_model(folder, model.config, model.state_dict(), tokenizers, translator.decode, positions)
    _write_record(folder, "transformers", config, translator, positions)
    verification = verify(
        translator,
        lambda texts: translate_by_transformers(folder, texts, translator.decode, tokenizers),
        sentences,
        config.data.target_language,
    )
    notes = ["generate's defaults stop a search a little earlier than mt does, and cut outputs at one length for all."]
    if model.config.norm_position == "post" and model.config.positions == "sinusoidal":
        notes.append(
            "The table of positions is in model.safetensors; save_pretrained leaves it out, and a copy saved that way "
            "translates badly: copy the files instead."
        )
    if tokenizers.source.tags:
        notes.append(
            f"No text becomes a tag ({', '.join(tokenizers.source.tags)}): put tokenizer.convert_tokens_to_ids(tag) "
            "before the ids of a source."
        )
    usage = TRANSFORMERS_USAGE.format(name=request.out.name)
    write_card(folder / "README.md", _card(request, config, "transformers, float32", usage), verification, notes)
    return verification


def _to_argos(
    request: Request, config: TrainConfig, translator: Translator, sentences: Sentences, folder: Path
) -> Verification:
    """The package's model is verified by its own search settings: those of Argos Translate."""
    quantization = request.quantization or "float32"
    source, target = config.data.source_language, config.data.target_language
    settings, weights = argos.without_bytes(
        translator.model.config, translator.model.state_dict(), translator.tokenizers
    )
    tokenizers = translator.tokenizers
    own = Transformer(settings, tokenizers.source.size, tokenizers.target.size).eval()
    copy_weights(own, weights, "the model without byte pieces")
    decode = replace(
        translator.decode, beam_size=argos.BEAMS, length_penalty=argos.LENGTH_PENALTY, no_repeat_ngram_size=0
    )
    adapted = Translator(own, tokenizers, decode)
    package = folder / argos.package_folder(source, target)
    (package / "model").mkdir(parents=True)
    positions = max(positions_needed(decode), CTRANSLATE2_POSITIONS)
    save_ctranslate2_model(package / "model", settings, own.state_dict(), tokenizers, positions, quantization)
    (package / "sentencepiece.model").write_bytes(tokenizers.source.model_bytes)
    argos.write_metadata(package, source, target)
    engine = CTranslate2Translator(package / "model", tokenizers, decode, "cpu", EXHAUSTIVE)
    verification = verify(adapted, engine.translate_best, sentences, target)
    notes = [
        "Argos Translate searches with 4 beams, length penalty 0.2 and nothing else, whatever the run was tuned for, "
        "and computes in the fastest type that the machine has, such as int8.",
        "A character of the target language that has no piece cannot be written: Argos Translate cannot put bytes "
        "together.",
    ]
    usage = ARGOS_USAGE.format(name=request.out.name, source=source, target=target)
    card = _card(request, config, f"Argos Translate, {quantization}", usage)
    write_card(package / "README.md", card, verification, notes)
    argos.zip_package(package, folder / request.out.name)
    return verification
