"""Models in fewer bits against themselves in float32."""

import pytest
import torch

from mt.config import ModelConfig
from mt.model.layout import Layout
from mt.model.precision import in_precision
from mt.model.transformer import Transformer

CONFIG = ModelConfig(d_model=32, d_ff=64, n_heads=2, encoder_layers=2, decoder_layers=2)


def log_probs(model):
    """Of five tokens that follow each other, and of the same through the cache."""
    layout = Layout.from_lengths([9])
    target_layout = Layout.from_lengths([5])
    source, target = torch.arange(4, 13), torch.tensor([2, 7, 8, 9, 5])
    with torch.inference_mode():
        memory = model.encode(source, layout)
        whole = model.logits(model.decode(target, target_layout, memory, layout)).log_softmax(1)
        state = model.start(memory, layout)
        steps = torch.cat([model.step(token[None], state).log_softmax(1) for token in target])
    return whole, steps


@pytest.mark.parametrize("positions", ["sinusoidal", "rotary"])
@pytest.mark.parametrize(("precision", "tolerance"), [("float32", 1e-5), ("bf16", 0.1), ("int8", 0.1)])
def test_fewer_bits_change_little_and_something(positions, precision, tolerance):
    torch.manual_seed(1)
    model = Transformer(ModelConfig(**{**vars(CONFIG), "positions": positions}), 50, 50).eval()
    expected, _ = log_probs(model)
    whole, steps = log_probs(in_precision(model, precision))
    for found in (whole, steps):
        assert found.dtype == torch.float32
        largest = float((found - expected).abs().max())
        assert largest < tolerance and (largest > 1e-4 or precision == "float32")


def test_what_becomes_int8():
    model = in_precision(Transformer(CONFIG, 50, 50).eval(), "int8")
    layers = [module for name, module in model.named_modules() if name.endswith((".inner", ".output", ".query"))]
    assert len(layers) == 2 * 3 + 2 * 5 and {layer.weight().dtype for layer in layers} == {torch.qint8}
    assert model.output_table.dtype == torch.float32


def test_what_cannot_be_is_refused():
    with pytest.raises(ValueError, match="^precision=fp8: must be one of float32, bf16, int8$"):
        in_precision(Transformer(CONFIG, 50, 50), "fp8")
    with pytest.raises(ValueError, match="^precision=int8: is for a CPU, not device=meta; bf16 is for GPUs$"):
        in_precision(Transformer(CONFIG, 50, 50).to("meta"), "int8")
