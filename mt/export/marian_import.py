"""A Marian model in transformers' format (OPUS-MT and the like) as a trained folder that translates the same.

Its architecture is one of ours: post-norm, sinusoids with the paper's rates, a bias in the output layer. What differs
is the vocabulary: Marian has one of its own, in which each side's SentencePiece pieces are looked up. Here each side
gets a SentencePiece model with our special pieces in front, and a table with a row for each of its pieces. The target's
holds the other pieces of Marian's vocabulary too, marked as unused, for Marian may write them.
"""

import pickle
import struct
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mt.checkpoint import create_run, point, save_checkpoint
from mt.config import DataConfig, DecodeConfig, ModelConfig, TokenizerConfig, TrainConfig
from mt.export.whole import new_folder
from mt.mapping import read_json
from mt.model.embedding import sinusoids
from mt.model.transformer import Transformer
from mt.tensors import copy_weights, find_not_finite, one_line, read_tensors
from mt.tokenizer import BOS_ID, EOS_ID, PAD_ID, UNK_ID, Tokenizer, TokenizerPair

CHECKPOINT = "imported"
NEVER = -100.0  # a logit that leaves nothing of a probability, and little in a smoothed loss
SPECIAL = {PAD_ID: "<pad>", UNK_ID: "<unk>", BOS_ID: "<s>", EOS_ID: "</s>"}
_DAMAGED = (  # all that torch.load was seen to raise where bytes are missing or wrong
    pickle.UnpicklingError, struct.error, RuntimeError, EOFError, ValueError, LookupError, AssertionError, TypeError,
    AttributeError, OverflowError,
)  # fmt: skip
_ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "swish": "silu", "silu": "silu"}


@dataclass(frozen=True)
class _Side:
    """One side's tokenizer, and for each of its pieces the row of Marian's table; None: it has none."""

    tokenizer: Tokenizer
    rows: list[int | None]


def import_marian(folder: Path, run_dir: Path, source_language: str, target_language: str) -> str:
    """Returns the model's settings as mt train takes them; the trained folder is complete then.

    Raises ValueError, before anything is written, for a file that is missing or damaged, for a run_dir that exists, and
    for a model that is no Marian one, knows several target languages, or has positions that are no sinusoids.
    """
    if run_dir.exists() and (not run_dir.is_dir() or any(run_dir.iterdir())):
        raise ValueError(f"{run_dir}: exists; choose a new folder")
    settings = read_json(folder / "config.json")
    weights = _read_weights(folder)
    vocabulary, target_vocabulary = _read_vocabularies(folder)
    source = _read_side(folder / "source.spm", vocabulary, others=False)
    target = _read_side(folder / "target.spm", target_vocabulary, others=True)
    model_config = _model_config(folder, settings, weights)
    model = Transformer(model_config, source.tokenizer.size, target.tokenizer.size)
    ours = _layers(weights, model_config, folder) | _tables(weights, settings, source, target, folder)
    if (name := find_not_finite(ours)) is not None:
        raise ValueError(f"{folder}: {name} holds NaN or infinity")
    copy_weights(model, ours, str(folder))
    tokenizers = TokenizerPair(source.tokenizer, target.tokenizer)
    config = TrainConfig(
        name=run_dir.name,
        data=DataConfig(source_language, target_language),
        tokenizer=TokenizerConfig(
            joint=False,
            vocabulary_size=max(target.tokenizer.size, 300),
            source_vocabulary_size=max(source.tokenizer.size, 300),
        ),
        model=model_config,
        decode=_decode_config(folder, settings),
    )
    state = {
        "tokenizer_fingerprint": tokenizers.fingerprint,
        "metrics": {},
        "finished": True,
        "model": asdict(model_config),
        "vocabulary": {"source": source.tokenizer.size, "target": target.tokenizer.size},
    }
    run_dir.resolve().parent.mkdir(parents=True, exist_ok=True)
    with new_folder(run_dir) as temporary:
        create_run(temporary, config, tokenizers, ["mt", "import", str(folder)])
        saved = save_checkpoint(temporary, 0, model.weights(), None, state, CHECKPOINT)
        for name in ("best", "last"):
            point(temporary, name, saved)
    return " ".join(f"model.{name}={value}" for name, value in asdict(model_config).items())


def _read_weights(folder: Path) -> dict[str, Tensor]:
    """Returns the tensors as float32, of model.safetensors or, without running any code in it, pytorch_model.bin."""
    if (folder / "model.safetensors").exists():
        found: Any = read_tensors(folder / "model.safetensors")
    else:
        file = folder / "pytorch_model.bin"
        try:
            found = torch.load(file, map_location="cpu", weights_only=True)
        except OSError as error:
            raise ValueError(f"{file}: cannot be read ({error.strerror}), and there is no model.safetensors") from error
        except _DAMAGED as error:
            raise ValueError(f"{file}: damaged, or holds more than tensors ({one_line(error)[:200]})") from error
    if not isinstance(found, dict) or not all(isinstance(tensor, Tensor) for tensor in found.values()):
        raise ValueError(f"{folder}: its weights are no tensors by name")
    return {str(name): tensor.float() for name, tensor in found.items()}


def _read_vocabularies(folder: Path) -> tuple[dict[str, int], dict[str, int]]:
    """Returns the rows of source and target pieces; one and the same where the model has one vocabulary."""
    vocabulary = read_json(folder / "vocab.json")
    separate = (folder / "target_vocab.json").exists()
    target = read_json(folder / "target_vocab.json") if separate else vocabulary
    for name, pieces in (("vocab.json", vocabulary), ("target_vocab.json", target)):
        needed = dict.fromkeys(("</s>", "<unk>", "<pad>")) | pieces
        unnumbered = [piece for piece, row in needed.items() if not isinstance(row, int)]
        if unnumbered:
            raise ValueError(f"{folder / name}: must give each piece a number; {unnumbered[0]!r} has none")
    codes = [piece for piece in vocabulary if piece.startswith(">>") and piece.endswith("<<")]
    if codes:
        raise ValueError(
            f"{folder / 'vocab.json'}: holds language codes ({codes[0]}): a model for several languages, which mt "
            "cannot be told to choose from; import one for a single pair"
        )
    return vocabulary, target


def _read_side(file: Path, vocabulary: Mapping[str, int], others: bool) -> _Side:
    """Returns a side's tokenizer: the model in `file` with our special pieces in front.

    others: with the pieces that only the vocabulary has, for decoding.
    """
    from google.protobuf.message import DecodeError
    from sentencepiece import sentencepiece_model_pb2 as protobuf

    proto = protobuf.ModelProto()
    try:
        proto.ParseFromString(file.read_bytes())
    except OSError as error:
        raise ValueError(f"{file}: cannot be read ({error.strerror})") from error
    except DecodeError as error:
        raise ValueError(f"{file}: no SentencePiece model ({one_line(error)})") from error
    kinds = protobuf.ModelProto.SentencePiece
    pieces = [
        p for p in proto.pieces if p.type not in (kinds.CONTROL, kinds.UNKNOWN) and p.piece not in SPECIAL.values()
    ]
    new = protobuf.ModelProto()
    new.CopyFrom(proto)
    del new.pieces[:]
    for index, piece in sorted(SPECIAL.items()):
        new.pieces.add(piece=piece, score=0.0, type=kinds.UNKNOWN if index == UNK_ID else kinds.CONTROL)
    new.pieces.extend(pieces)
    rows: list[int | None] = [vocabulary["<pad>"], vocabulary["<unk>"], None, vocabulary["</s>"]]
    rows += [vocabulary.get(piece.piece) for piece in pieces]
    if others:
        known = {piece.piece for piece in new.pieces}
        lowest = min((piece.score for piece in pieces), default=0.0)
        for piece, row in vocabulary.items():
            if piece not in known:
                new.pieces.add(piece=piece, score=lowest, type=kinds.UNUSED)
                rows.append(row)
    spec = new.trainer_spec
    spec.pad_id, spec.unk_id, spec.bos_id, spec.eos_id = PAD_ID, UNK_ID, BOS_ID, EOS_ID
    spec.pad_piece, spec.unk_piece, spec.bos_piece, spec.eos_piece = (SPECIAL[i] for i in range(4))
    spec.vocab_size = len(new.pieces)
    try:
        return _Side(Tokenizer(new.SerializeToString()), rows)
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from error


def _model_config(folder: Path, settings: Mapping[str, Any], weights: Mapping[str, Tensor]) -> ModelConfig:
    file = folder / "config.json"
    if settings.get("model_type") != "marian":
        raise ValueError(f"{file}: model_type={settings.get('model_type')!r}: only marian can be imported")
    if not isinstance(settings.get("decoder_start_token_id"), int):
        raise ValueError(f"{file}: decoder_start_token_id is missing: the model has to know how an output begins")
    if settings.get("scale_embedding") is not True:
        raise ValueError(f"{file}: scale_embedding={settings.get('scale_embedding')}: must be true, as in OPUS-MT")
    activation = settings.get("activation_function")
    if activation not in _ACTIVATIONS:
        raise ValueError(f"{file}: activation_function={activation!r}: must be one of {', '.join(_ACTIVATIONS)}")
    for name in ("attention_heads", "ffn_dim"):
        sides = settings.get(f"encoder_{name}"), settings.get(f"decoder_{name}")
        if sides[0] != sides[1]:
            raise ValueError(f"{file}: encoder_{name} and decoder_{name} are {sides[0]} and {sides[1]}: must be equal")
    tied = settings.get("tie_word_embeddings", True) is not False
    try:
        config = ModelConfig(
            d_model=settings["d_model"],
            d_ff=settings["encoder_ffn_dim"],
            n_heads=settings["encoder_attention_heads"],
            encoder_layers=settings["encoder_layers"],
            decoder_layers=settings["decoder_layers"],
            norm_position="post",
            norm_epsilon=1e-5,
            activation=_ACTIVATIONS[activation],
            positions="sinusoidal_paper",
            tying="decoder" if tied else "none",
            output_bias=True,
            dropout=settings.get("dropout", 0.1),
            attention_dropout=settings.get("attention_dropout", 0.0),
            activation_dropout=settings.get("activation_dropout", 0.0),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{file}: damaged or incomplete ({one_line(error)})") from error
    return replace(config, positions=_positions(folder, config.d_model, weights))


def _positions(folder: Path, d_model: int, weights: Mapping[str, Tensor]) -> str:
    """Returns which sinusoids the stored tables are; Marian's own where none is stored."""
    tables = [table for name, table in weights.items() if name.endswith("embed_positions.weight")]
    for name in ("sinusoidal_paper", "sinusoidal"):
        if all(
            table.shape[1:] == (d_model,)
            and torch.allclose(
                table[:100],
                sinusoids(torch.arange(len(table))[:100], d_model, name == "sinusoidal_paper"),
                atol=5e-3,  # of what was stored in half precision
            )
            for table in tables
        ):
            return name
    raise ValueError(f"{folder}: its positions are no sinusoids, which is all that a run can have")


def _decode_config(folder: Path, settings: Mapping[str, Any]) -> DecodeConfig:
    file = folder / "generation_config.json"
    given = {**settings, **(read_json(file) if file.exists() else {})}
    try:
        return DecodeConfig(
            beam_size=int(given.get("num_beams") or 1),
            length_penalty=float(1.0 if given.get("length_penalty") is None else given["length_penalty"]),
            no_repeat_ngram_size=int(given.get("no_repeat_ngram_size") or 0),
            max_source_tokens=int(settings.get("max_position_embeddings", 512)) - 1,
        )
    except (TypeError, ValueError) as error:
        raise ValueError(f"{folder / 'config.json'} or generation_config.json: {one_line(error)}") from error


def _layers(weights: Mapping[str, Tensor], config: ModelConfig, folder: Path) -> dict[str, Tensor]:
    """Returns all but the tables under our names."""
    found = {}

    def take(theirs: list[str], ours: str) -> None:
        for kind in ("weight", "bias"):
            try:
                found[f"{ours}.{kind}"] = torch.cat([weights[f"{name}.{kind}"] for name in theirs])
            except KeyError as error:
                raise ValueError(f"{folder}: its weights lack {error.args[0]}") from error
            except RuntimeError as error:
                raise ValueError(f"{folder}: {theirs[0]}.{kind} has a wrong size ({one_line(error)})") from error

    for side, count in (("encoder", config.encoder_layers), ("decoder", config.decoder_layers)):
        for index in range(count):
            theirs, ours = f"model.{side}.layers.{index}", f"{side}_layers.{index}"
            take([f"{theirs}.self_attn.{part}_proj" for part in "qkv"], f"{ours}.self_attention.query_key_value")
            take([f"{theirs}.self_attn.out_proj"], f"{ours}.self_attention.output")
            take([f"{theirs}.self_attn_layer_norm"], f"{ours}.around_self.norm")
            take([f"{theirs}.fc1"], f"{ours}.feed_forward.inner")
            take([f"{theirs}.fc2"], f"{ours}.feed_forward.output")
            take([f"{theirs}.final_layer_norm"], f"{ours}.around_feed_forward.norm")
            if side == "decoder":
                take([f"{theirs}.encoder_attn.q_proj"], f"{ours}.cross_attention.query")
                take([f"{theirs}.encoder_attn.{part}_proj" for part in "kv"], f"{ours}.cross_attention.key_value")
                take([f"{theirs}.encoder_attn.out_proj"], f"{ours}.cross_attention.output")
                take([f"{theirs}.encoder_attn_layer_norm"], f"{ours}.around_cross.norm")
    return found


def _tables(
    weights: Mapping[str, Tensor], settings: Mapping[str, Any], source: _Side, target: _Side, folder: Path
) -> dict[str, Tensor]:
    """Returns embeddings, output table and bias, a row for each of our pieces.

    A piece that Marian's vocabulary lacks is read as <unk>, and never written; nor is <pad>, which Marian itself does
    not have. The decoder's start is our <s>.
    """
    shared = weights.get("model.shared.weight")
    encoder = weights.get("model.encoder.embed_tokens.weight", shared)
    decoder = weights.get("model.decoder.embed_tokens.weight", shared)
    if encoder is None or decoder is None:
        raise ValueError(f"{folder}: its weights lack model.shared.weight")
    tied = settings.get("tie_word_embeddings", True) is not False
    output = decoder if tied else weights.get("lm_head.weight")
    if output is None:
        raise ValueError(f"{folder}: its weights lack lm_head.weight, which tie_word_embeddings=false needs")
    bias = weights.get("final_logits_bias", torch.zeros(len(decoder))).flatten()
    rows, columns = (
        torch.tensor([side.rows[UNK_ID] if row is None else row for row in side.rows]) for side in (source, target)
    )
    columns[BOS_ID] = settings["decoder_start_token_id"]
    for used, size in ((rows, len(encoder)), (columns, min(len(decoder), len(output), len(bias)))):
        if not 0 <= used.min() <= used.max() < size:
            raise ValueError(
                f"{folder}: its vocabulary has rows from {used.min()} to {used.max()}, and its weights have {size} rows"
            )
    absent = torch.tensor([row is None for row in target.rows])
    absent[PAD_ID] = True
    table = decoder[columns]
    return {
        "source_embedding.weight": encoder[rows],
        "target_embedding.weight": table,
        "output_table": table if tied else output[columns],
        "output_bias": bias[columns].masked_fill(absent, NEVER),
    }
