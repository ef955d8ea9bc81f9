"""A trained model in fewer bits, for translating."""

import warnings
from typing import TypeVar

import torch
from torch import nn

PRECISIONS = ("float32", "bf16", "int8")
ModelT = TypeVar("ModelT", bound=nn.Module)


def in_precision(model: ModelT, precision: str) -> ModelT:
    """Returns a model whose weights are of this precision, one of PRECISIONS; the given one may change.

    bf16: all weights. int8: those of linear layers, quantised for each output by itself, and their inputs as they come
    (dynamic quantisation); embeddings and the output layer stay as they are. Raises ValueError where that is not
    possible: int8 is for CPUs.
    """
    if precision not in PRECISIONS:
        raise ValueError(f"precision={precision}: must be one of {', '.join(PRECISIONS)}")
    if precision == "bf16":
        return model.to(torch.bfloat16)
    if precision == "int8":
        device = next(model.parameters()).device
        if device.type != "cpu":
            raise ValueError(f"precision=int8: is for a CPU, not device={device}; bf16 is for GPUs")
        with warnings.catch_warnings():
            # deprecated in favour of torchao, whose product of two int8 matrices was 50 times as slow as float32 where
            # a CPU has no VNNI
            warnings.simplefilter("ignore")
            from torch.ao.quantization import per_channel_dynamic_qconfig, quantize_dynamic

            return quantize_dynamic(model, {nn.Linear: per_channel_dynamic_qconfig}, inplace=True)
    return model
