"""A trained model as a class of transformers, with its tokenizer: loads and translates with no code of ours.

    norm_position=post   MarianMTModel
    norm_position=pre    BlenderbotForConditionalGeneration, whose learned table of positions holds our sinusoids

Both need norm=layer_norm, positions=sinusoidal (or sinusoidal_paper) and an activation of one matrix. Both add 1e-5 to
a variance: mt.export.rescale makes good for that. Blenderbot has one vocabulary: where ours are two (or the tables of
one are), it gets the source's pieces and then the target's, and a bias keeps the former out of every output.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from mt.config import DecodeConfig, ModelConfig
from mt.export.rescale import stream_times
from mt.model.embedding import sinusoids
from mt.tokenizer import BOS_ID, EOS_ID, PAD_ID, UNK_ID, TokenizerPair
from mt.translation.lines import longest_output

NORM_EPSILON = 1e-5  # of every norm in these classes
NEVER = -1e9  # a logit that leaves nothing of a probability
SPECIAL = 4  # pad, unk, bos, eos
GENERATED_TOKENS = 512  # at most, by default: generate knows no limit for each source
_ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "silu": "silu"}


def check_fits_transformers(config: ModelConfig) -> None:
    """Raises ValueError, naming the settings, where no class of transformers computes this architecture."""
    wanted = {
        "norm": ("layer_norm",),
        "positions": ("sinusoidal", "sinusoidal_paper"),
        "activation": tuple(_ACTIVATIONS),
    }
    faults = [
        f"model.{name}={getattr(config, name)} (needs {' or '.join(values)})"
        for name, values in wanted.items()
        if getattr(config, name) not in values
    ]
    if faults:
        raise ValueError(
            f"--to transformers: no encoder-decoder class of transformers has {', '.join(faults)}; --to ctranslate2 "
            "exports every architecture"
        )


@dataclass(frozen=True)
class _Vocabulary:
    """Ids of the exported model: of source and target pieces, and how many there are."""

    source: dict[str, int]
    target: dict[str, int]
    size: int
    one_table: bool  # for both sides, input and output


def save_transformers_model(
    folder: Path,
    config: ModelConfig,
    weights: Mapping[str, Tensor],
    tokenizers: TokenizerPair,
    decode: DecodeConfig,
    positions: int,
) -> None:
    """Writes model.safetensors, the configurations and the tokenizer's files into an existing folder.

    weights: a model's state dict, each tensor under every name that it has; positions: the longest source or output in
    tokens, </s> counted, that it can take. Raises ValueError as check_fits_transformers.
    """
    check_fits_transformers(config)
    factor = math.sqrt(NORM_EPSILON / config.norm_epsilon)
    scaled = stream_times(weights, config, factor)
    table = sinusoids(torch.arange(positions), config.d_model, config.positions == "sinusoidal_paper") * factor
    source, target = (t.pieces(list(range(t.size))) for t in (tokenizers.source, tokenizers.target))
    source_ids, target_ids = ({piece: i for i, piece in enumerate(pieces)} for pieces in (source, target))
    if config.norm_position == "post":
        vocabulary = _Vocabulary(source_ids, target_ids, len(source), config.tying == "three_way")
        tensors = _body(scaled, config) | _marian_tables(scaled, config)
        settings = _marian_config(config, vocabulary, positions)
    elif config.tying == "three_way":
        vocabulary = _Vocabulary(source_ids, source_ids, len(source), True)
        tensors = _body(scaled, config) | _shared_tables(scaled, config)
        settings = _blenderbot_config(config, vocabulary, positions)
    else:
        moved = {piece: i if i < SPECIAL else len(source) + i - SPECIAL for piece, i in target_ids.items()}
        vocabulary = _Vocabulary(source_ids, moved, len(source) + len(target) - SPECIAL, False)
        tensors = _body(scaled, config) | _joined_tables(scaled, config)
        settings = _blenderbot_config(config, vocabulary, positions)
    for side in ("encoder", "decoder"):
        tensors[f"model.{side}.embed_positions.weight"] = table
    stored = {name: tensor.detach().float().clone() for name, tensor in tensors.items()}
    save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})
    settings.save_pretrained(folder)
    _generation_config(decode, [target_ids[tag] for tag in tokenizers.target.tags]).save_pretrained(folder)
    _save_tokenizer(folder, tokenizers, vocabulary, decode)


def _body(weights: Mapping[str, Tensor], config: ModelConfig) -> dict[str, Tensor]:
    """Returns the layers and the last norms under the names that Marian and Blenderbot share."""
    found = {}

    def take(ours: str, theirs: str) -> None:
        for kind in ("weight", "bias"):
            found[f"{theirs}.{kind}"] = weights[f"{ours}.{kind}"]

    def split(ours: str, theirs: str, parts: str) -> None:
        for kind in ("weight", "bias"):
            for part, tensor in zip(parts, weights[f"{ours}.{kind}"].chunk(len(parts)), strict=True):
                found[f"{theirs}.{part}_proj.{kind}"] = tensor

    for side, count in (("encoder", config.encoder_layers), ("decoder", config.decoder_layers)):
        for index in range(count):
            ours, theirs = f"{side}_layers.{index}", f"model.{side}.layers.{index}"
            split(f"{ours}.self_attention.query_key_value", f"{theirs}.self_attn", "qkv")
            take(f"{ours}.self_attention.output", f"{theirs}.self_attn.out_proj")
            take(f"{ours}.around_self.norm", f"{theirs}.self_attn_layer_norm")
            take(f"{ours}.feed_forward.inner", f"{theirs}.fc1")
            take(f"{ours}.feed_forward.output", f"{theirs}.fc2")
            take(f"{ours}.around_feed_forward.norm", f"{theirs}.final_layer_norm")
            if side == "decoder":
                split(f"{ours}.cross_attention.query", f"{theirs}.encoder_attn", "q")
                split(f"{ours}.cross_attention.key_value", f"{theirs}.encoder_attn", "kv")
                take(f"{ours}.cross_attention.output", f"{theirs}.encoder_attn.out_proj")
                take(f"{ours}.around_cross.norm", f"{theirs}.encoder_attn_layer_norm")
        if config.norm_position == "pre":
            take(f"{side}_norm", f"model.{side}.layer_norm")
    return found


def _marian_tables(weights: Mapping[str, Tensor], config: ModelConfig) -> dict[str, Tensor]:
    """Returns embeddings and output layer for two vocabularies, or for one with one table."""
    if config.tying == "three_way":
        return _shared_tables(weights, config)
    bias = weights.get("output_bias", torch.zeros(len(weights["output_table"])))
    found = {
        "model.encoder.embed_tokens.weight": weights["source_embedding.weight"],
        "model.decoder.embed_tokens.weight": weights["target_embedding.weight"],
        "final_logits_bias": bias[None],
    }
    if config.tying == "none":  # otherwise the class ties it to the decoder's table
        found["lm_head.weight"] = weights["output_table"]
    return found


def _shared_tables(weights: Mapping[str, Tensor], config: ModelConfig) -> dict[str, Tensor]:
    """Returns one table, which the class ties to the others."""
    table = weights["source_embedding.weight"]
    bias = weights.get("output_bias", torch.zeros(len(table)))
    return {"model.shared.weight": table, "final_logits_bias": bias[None]}


def _joined_tables(weights: Mapping[str, Tensor], config: ModelConfig) -> dict[str, Tensor]:
    """Returns tables whose rows are pad, unk, bos, eos, the source's pieces and the target's.

    Of the special pieces only <s> is an input on the target's side, and it never is one on the source's. Inputs are
    stored three times: where the output's table differs, no class of transformers 5 ties them, and those of
    transformers 4 have one, whichever is read last.
    """
    source, target = weights["source_embedding.weight"], weights["target_embedding.weight"]
    output = weights["output_table"]
    rows = torch.cat([source, target[SPECIAL:]])
    rows[BOS_ID] = target[BOS_ID]
    outputs = torch.cat([output[:SPECIAL], torch.zeros_like(source[SPECIAL:]), output[SPECIAL:]])
    bias = torch.zeros(len(rows))
    bias[SPECIAL : len(source)] = NEVER
    if "output_bias" in weights:
        bias[:SPECIAL] = weights["output_bias"][:SPECIAL]
        bias[len(source) :] = weights["output_bias"][SPECIAL:]
    return {
        "model.shared.weight": rows,
        "model.encoder.embed_tokens.weight": rows,
        "model.decoder.embed_tokens.weight": rows,
        "lm_head.weight": outputs,
        "final_logits_bias": bias[None],
    }


def _sizes(config: ModelConfig, vocabulary: _Vocabulary, positions: int) -> dict[str, Any]:
    return {
        "vocab_size": vocabulary.size,
        "d_model": config.d_model,
        "encoder_layers": config.encoder_layers,
        "decoder_layers": config.decoder_layers,
        "encoder_attention_heads": config.n_heads,
        "decoder_attention_heads": config.n_heads,
        "encoder_ffn_dim": config.d_ff,
        "decoder_ffn_dim": config.d_ff,
        "activation_function": _ACTIVATIONS[config.activation],
        "max_position_embeddings": positions,
        "scale_embedding": True,
        "dropout": config.dropout,
        "attention_dropout": config.attention_dropout,
        "activation_dropout": config.activation_dropout,
        "pad_token_id": PAD_ID,
        "bos_token_id": BOS_ID,
        "eos_token_id": EOS_ID,
        "decoder_start_token_id": BOS_ID,
        "forced_eos_token_id": None,
    }


def _marian_config(config: ModelConfig, vocabulary: _Vocabulary, positions: int) -> Any:
    from transformers import MarianConfig

    return MarianConfig(
        **_sizes(config, vocabulary, positions),
        decoder_vocab_size=len(vocabulary.target),
        share_encoder_decoder_embeddings=vocabulary.one_table,
        tie_word_embeddings=config.tying != "none",
        architectures=["MarianMTModel"],
    )


def _blenderbot_config(config: ModelConfig, vocabulary: _Vocabulary, positions: int) -> Any:
    from transformers import BlenderbotConfig

    return BlenderbotConfig(
        **_sizes(config, vocabulary, positions),
        tie_word_embeddings=vocabulary.one_table,
        encoder_no_repeat_ngram_size=0,
        architectures=["BlenderbotForConditionalGeneration"],
    )


def _generation_config(decode: DecodeConfig, tags: list[int]) -> Any:
    from transformers import GenerationConfig

    return GenerationConfig(
        num_beams=decode.beam_size,
        length_penalty=decode.length_penalty if decode.beam_size > 1 else None,  # refused where it has no effect
        no_repeat_ngram_size=decode.no_repeat_ngram_size,
        max_length=1 + min(GENERATED_TOKENS, longest_output(decode, decode.max_source_tokens)),  # <s> counts
        suppress_tokens=[PAD_ID, UNK_ID, BOS_ID, *tags],
        pad_token_id=PAD_ID,
        bos_token_id=BOS_ID,
        eos_token_id=EOS_ID,
        decoder_start_token_id=BOS_ID,
    )


def _save_tokenizer(folder: Path, tokenizers: TokenizerPair, vocabulary: _Vocabulary, decode: DecodeConfig) -> None:
    (folder / "source.spm").write_bytes(tokenizers.source.model_bytes)
    (folder / "target.spm").write_bytes(tokenizers.target.model_bytes)
    settings = {
        "tokenizer_class": "MarianTokenizer",
        "unk_token": "<unk>",
        "eos_token": "</s>",
        "pad_token": "<pad>",
        "model_max_length": decode.max_source_tokens + 1,
        "separate_vocabs": not vocabulary.one_table,
        "clean_up_tokenization_spaces": False,
    }
    files = {"tokenizer_config.json": settings, "vocab.json": vocabulary.source}
    if not vocabulary.one_table:
        files["target_vocab.json"] = vocabulary.target
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content, indent=1) + "\n")  # ASCII: read in the locale's encoding
