"""A trained model in the format of CTranslate2: every architecture that ModelConfig offers, in any of its types.

CTranslate2's specifications (ctranslate2.specs) describe more than its converters for other trainers produce. What has
to agree, and where: positions are a table of ours, since CTranslate2's own sinusoids begin at position 1; a norm
without a bias is taken for RMSNorm; rotary positions turn halves, not neighbours; fused Q, K, V lie as ours do; </s> is
added to the source by the engine, and <s> begins the output.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mt.config import ModelConfig
from mt.model.embedding import sinusoids
from mt.tokenizer import TokenizerPair
from mt.translation.ctranslate2_engine import import_ctranslate2

QUANTIZATIONS = ("float32", "int8", "int8_float32", "int8_float16", "int8_bfloat16", "int16", "float16", "bfloat16")


def save_ctranslate2_model(
    folder: Path,
    config: ModelConfig,
    weights: Mapping[str, Tensor],
    tokenizers: TokenizerPair,
    positions: int,
    quantization: str,
) -> None:
    """Writes model.bin, config.json and the vocabularies into an existing folder.

    weights: a model's state dict, each tensor under every name that it has; positions: the longest source or output in
    tokens, </s> counted, that a model with sinusoidal positions can take; quantization: one of QUANTIZATIONS. Raises
    ValueError where ctranslate2 is not installed.
    """
    spec = make_spec(config, weights, positions)
    _register_vocabularies(spec, tokenizers)
    spec.validate()
    spec.optimize(quantization=None if quantization == "float32" else quantization)
    spec.save(str(folder))


def make_spec(config: ModelConfig, weights: Mapping[str, Tensor], positions: int) -> Any:
    """Returns a ctranslate2.specs.TransformerSpec filled with the weights, without vocabularies."""
    specs = import_ctranslate2().specs
    swish = specs.Activation.SWISH  # another name of SiLU
    activations = {"relu": specs.Activation.RELU, "gelu": specs.Activation.GELU, "silu": swish, "swiglu": swish}
    options = {
        "pre_norm": config.norm_position == "pre",
        "activation": activations[config.activation],
        "ffn_glu": config.activation == "swiglu",
        "rms_norm": config.norm == "rms_norm",
    }
    if config.positions == "rotary":
        options |= {"rotary_dim": 0, "rotary_interleave": False, "rotary_base": 10_000}  # 0: all of a head
    encoder = specs.TransformerEncoderSpec(config.encoder_layers, config.n_heads, **options)
    decoder = specs.TransformerDecoderSpec(config.decoder_layers, config.n_heads, **options)
    spec = specs.TransformerSpec(encoder, decoder)
    spec.config.layer_norm_epsilon = config.norm_epsilon
    spec.config.add_source_eos = True
    # copies: CTranslate2 quantises in place
    get = {name: tensor.detach().float().numpy(force=True).copy() for name, tensor in weights.items()}
    encoder.embeddings[0].weight = get["source_embedding.weight"]
    decoder.embeddings.weight = get["target_embedding.weight"]
    decoder.projection.weight = get["output_table"]
    if config.output_bias:
        decoder.projection.bias = get["output_bias"]
    if config.positions != "rotary":  # one table for both sides is stored once
        table = sinusoids(torch.arange(positions), config.d_model, config.positions == "sinusoidal_paper").numpy()
        encoder.position_encodings.encodings = decoder.position_encodings.encodings = table
    elif hasattr(encoder, "position_encodings"):
        del encoder.position_encodings
    for index, layer in enumerate(encoder.layer):
        _fill_layer(layer, get, f"encoder_layers.{index}")
    for index, layer in enumerate(decoder.layer):
        name = f"decoder_layers.{index}"
        _fill_layer(layer, get, name)
        _fill_norm(layer.attention.layer_norm, get, f"{name}.around_cross.norm")
        for linear, part in zip(layer.attention.linear, ("query", "key_value", "output"), strict=True):
            _fill_linear(linear, get, f"{name}.cross_attention.{part}")
    if config.norm_position == "pre":
        _fill_norm(encoder.layer_norm, get, "encoder_norm")
        _fill_norm(decoder.layer_norm, get, "decoder_norm")
    return spec


def _fill_layer(layer: Any, get: Mapping[str, np.ndarray], name: str) -> None:
    """Fills what encoder and decoder layers have in common: self-attention and the feed-forward layer."""
    _fill_norm(layer.self_attention.layer_norm, get, f"{name}.around_self.norm")
    for linear, part in zip(layer.self_attention.linear, ("query_key_value", "output"), strict=True):
        _fill_linear(linear, get, f"{name}.self_attention.{part}")
    _fill_norm(layer.ffn.layer_norm, get, f"{name}.around_feed_forward.norm")
    inner, output = f"{name}.feed_forward.inner", f"{name}.feed_forward.output"
    if hasattr(layer.ffn, "linear_0_noact"):  # SwiGLU: the gate is the first half, and has the activation
        gate, other = np.split(get[f"{inner}.weight"], 2)
        gate_bias, other_bias = np.split(get[f"{inner}.bias"], 2)
        layer.ffn.linear_0.weight, layer.ffn.linear_0.bias = gate, gate_bias
        layer.ffn.linear_0_noact.weight, layer.ffn.linear_0_noact.bias = other, other_bias
    else:
        _fill_linear(layer.ffn.linear_0, get, inner)
    _fill_linear(layer.ffn.linear_1, get, output)


def _fill_linear(linear: Any, get: Mapping[str, np.ndarray], name: str) -> None:
    linear.weight, linear.bias = get[f"{name}.weight"], get[f"{name}.bias"]


def _fill_norm(norm: Any, get: Mapping[str, np.ndarray], name: str) -> None:
    norm.gamma = get[f"{name}.weight"]
    if f"{name}.bias" in get:
        norm.beta = get[f"{name}.bias"]


def _register_vocabularies(spec: Any, tokenizers: TokenizerPair) -> None:
    for tokenizer, register in (
        (tokenizers.source, spec.register_source_vocabulary),
        (tokenizers.target, spec.register_target_vocabulary),
    ):
        register(tokenizer.pieces(list(range(tokenizer.size))))
