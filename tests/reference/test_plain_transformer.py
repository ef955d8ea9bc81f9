"""mt's model equals a Transformer written in plain loops, in training form, step by step, and in any company."""

import importlib.util
import itertools
from pathlib import Path

import numpy as np
import pytest
import torch

from mt.config import ModelConfig
from mt.model.embedding import sinusoids
from mt.model.layout import Layout
from mt.model.transformer import Transformer

_spec = importlib.util.spec_from_file_location("plain", Path(__file__).with_name("plain_transformer.py"))
plain = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(plain)

SHAPES = [
    dict(norm_position=norm_position, positions=positions, activation=activation, norm=norm, tying=tying)
    for norm_position, positions, (activation, norm, tying) in itertools.product(
        ["pre", "post"],
        ["sinusoidal", "rotary"],
        [
            ("relu", "layer_norm", "three_way"),
            ("gelu", "rms_norm", "decoder"),
            ("swiglu", "layer_norm", "none"),
            ("swiglu", "rms_norm", "three_way"),
        ],
    )
] + [
    dict(norm_position="post", positions="sinusoidal_paper", activation="silu", tying="decoder", output_bias=True),
    dict(norm_position="pre", positions="sinusoidal_paper", activation="relu", tying="three_way", output_bias=True),
]


def build(settings):
    torch.manual_seed(0)
    model = Transformer(ModelConfig(12, 20, 2, 2, 2, **settings), 30, 30).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():  # biases and norms too, which begin at 0 and 1
            parameter.add_(torch.randn_like(parameter) * 0.1)
    paper = model.config.positions == "sinusoidal_paper"
    exact = torch.from_numpy(np.array([plain.sinusoid(i, 12, paper) for i in range(40)]))
    for embedding in (model.source_embedding, model.target_embedding):
        embedding.table = exact  # mt's own is float32
    return model


@pytest.mark.parametrize("paper", [False, True])
def test_sinusoids_follow_the_formula(paper):
    ours = sinusoids(torch.arange(40), 12, paper).double().numpy()
    assert np.abs(ours - [plain.sinusoid(i, 12, paper) for i in range(40)]).max() < 1e-5


@pytest.mark.parametrize("settings", SHAPES, ids=lambda settings: "-".join(map(str, settings.values())))
def test_log_probabilities_equal_the_plain_model(settings):
    model = build(settings)
    weights = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    generator = np.random.default_rng(1)
    sources = [generator.integers(4, 30, n).tolist() for n in (5, 5, 1, 9)]
    targets = [generator.integers(4, 30, n).tolist() for n in (3, 3, 8, 1)]
    expected = [plain.log_probabilities(weights, model.config, s, t) for s, t in zip(sources, targets, strict=True)]
    source_layout, target_layout = (Layout.from_lengths([len(x) for x in side]) for side in (sources, targets))
    source, target = (torch.tensor(sum(side, [])) for side in (sources, targets))
    packed = model.logits(model(source, source_layout, target, target_layout)).log_softmax(1)
    np.testing.assert_allclose(packed.detach().numpy(), np.concatenate(expected), rtol=0, atol=1e-10)

    state = model.start(model.encode(source, source_layout), source_layout)  # step by step, all in one batch
    for position in range(max(target_layout.lengths)):
        tokens = torch.tensor([t[position] if position < len(t) else 4 for t in targets])
        stepped = model.step(tokens, state).log_softmax(1).numpy()
        for row, wanted in zip(stepped, expected, strict=True):
            if position < len(wanted):
                np.testing.assert_allclose(row, wanted[position], rtol=0, atol=1e-10)
