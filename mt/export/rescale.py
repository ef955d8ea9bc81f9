"""Weights of the same function for norms that add another epsilon to the variance.

A norm divides by sqrt(variance + epsilon). With everything that it sees multiplied by f it needs epsilon * f^2 to give
the same result. So an engine whose epsilon cannot be set gets a model whose residual stream, embeddings and positions
included, is f = sqrt(its epsilon / ours) times as large, and whatever reads the stream is divided by f.
"""

import re
from collections.abc import Mapping

from torch import Tensor

from mt.config import ModelConfig

_READS_STREAM = re.compile(
    r"layers\.\d+\.(self_attention\.query_key_value|cross_attention\.(query|key_value)|feed_forward\.inner)\.weight"
)
_WRITES_STREAM = re.compile(r"layers\.\d+\.(self_attention|cross_attention|feed_forward)\.output\.(weight|bias)")
_NORM_IN_LAYER = re.compile(r"layers\.\d+\.around_\w+\.norm\.(weight|bias)")
_EMBEDDINGS = ("source_embedding.weight", "target_embedding.weight")


def stream_times(weights: Mapping[str, Tensor], config: ModelConfig, factor: float) -> dict[str, Tensor]:
    """Returns weights of the same function with a residual stream `factor` times as large.

    For sinusoids times `factor` and norm_epsilon times factor^2. weights: a state dict, each tensor under every name
    that it has; tied tensors stay equal.
    """
    last_norm = f"decoder_layers.{config.decoder_layers - 1}.around_feed_forward.norm."
    if config.norm_position == "pre":
        last_norm = "decoder_norm."
    tied = config.tying != "none"
    scaled = {}
    for name, tensor in weights.items():
        power = 0
        if name in _EMBEDDINGS or _WRITES_STREAM.search(name) or (name == "output_table" and tied):
            power = 1
        elif name.startswith(last_norm):
            power = -1 if tied else 0  # what the larger output table makes good for
        elif config.norm_position == "post" and _NORM_IN_LAYER.search(name):
            power = 1
        elif config.norm_position == "post" and _READS_STREAM.search(name):
            power = -1
        scaled[name] = tensor * factor**power if power else tensor
    return scaled
