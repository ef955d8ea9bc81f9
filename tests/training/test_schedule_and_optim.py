"""Rates against worked numbers; optimizers against torch and against an exact decomposition."""

import subprocess
import sys

import pytest
import torch

from mt.config import ModelConfig, OptimConfig
from mt.model.transformer import Transformer
from mt.training.optim import Optimizer, orthogonalise
from mt.training.schedule import learning_rate_factor, long_warmup


def rate(schedule, step, warmup=4000, progress=0.0, lr=5e-4, d_model=512):
    config = OptimConfig(schedule=schedule, warmup_steps=warmup, lr=lr)
    return lr * learning_rate_factor(config, step, progress, d_model)


def test_known_rates():
    assert rate("inverse_sqrt", 1) == pytest.approx(1.25e-7)
    assert rate("inverse_sqrt", 4000) == pytest.approx(5e-4)
    assert rate("inverse_sqrt", 8000) == pytest.approx(3.5355e-4, rel=1e-4)
    assert rate("inverse_sqrt", 16000) == pytest.approx(2.5e-4)
    assert rate("noam", 4000, lr=1.0) == pytest.approx(6.98771e-4, rel=1e-5)
    assert rate("noam", 0, lr=1.0) > 0
    assert rate("linear", 5000, progress=0.25) == pytest.approx(5e-4 * 0.75)
    assert rate("linear", 9000, progress=1.0) == 0
    assert rate("cosine", 5000, progress=0.5) == pytest.approx(2.5e-4)
    assert rate("constant", 9000, progress=0.9) == pytest.approx(5e-4)
    assert rate("linear", 10, warmup=0) == pytest.approx(5e-4)


def test_a_run_that_is_mostly_warm_up_is_told():
    config = OptimConfig(warmup_steps=4000)
    warning = long_warmup(config, 50, 0.04)  # 1,250 updates in all
    assert "about 1,250 updates" in warning and "optim.warmup_steps=4000" in warning and "(125)" in warning
    assert "optim.schedule=linear" in warning
    assert "linear" not in long_warmup(OptimConfig(warmup_steps=4000, schedule="cosine"), 50, 0.04)
    assert long_warmup(config, 50, 50 / 7999) is not None
    assert long_warmup(config, 50, 50 / 8001) is None
    assert long_warmup(config, 0, 0.0) is None
    assert long_warmup(OptimConfig(warmup_steps=0), 50, 0.9) is None


def tiny():
    torch.manual_seed(0)
    return Transformer(ModelConfig(d_model=8, d_ff=12, n_heads=2, encoder_layers=1, decoder_layers=1), 20, 20)


@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_state_survives_a_round_trip(name):
    def run(model, optimizer, steps, seed):
        for step in range(steps):
            torch.manual_seed(seed + step)
            for parameter in model.parameters():
                parameter.grad = torch.randn_like(parameter)
            optimizer.step(0.5)

    config = OptimConfig(optimizer=name, weight_decay=0.01)
    straight, stopped = tiny(), tiny()
    optimizer = Optimizer(straight, config)
    run(straight, optimizer, 6, 0)
    first = Optimizer(stopped, config)
    run(stopped, first, 3, 0)
    tensors = {key: value.clone() for key, value in first.tensors().items()}
    second = Optimizer(stopped, config)
    second.load_tensors(tensors)
    run(stopped, second, 3, 3)
    for a, b in zip(straight.parameters(), stopped.parameters(), strict=True):
        assert torch.equal(a, b)


def test_adamw_equals_torch():
    model, twin = tiny(), tiny()
    config = OptimConfig(lr=1e-2, weight_decay=0.1, eps=1e-6)
    optimizer = Optimizer(model, config)
    groups = [
        {"params": [p for p in twin.parameters() if p.ndim == 2], "weight_decay": 0.1},
        {"params": [p for p in twin.parameters() if p.ndim != 2], "weight_decay": 0.0},
    ]
    reference = torch.optim.AdamW(groups, lr=5e-3, betas=(config.beta1, config.beta2), eps=1e-6)
    for _ in range(4):
        for parameter, other in zip(model.parameters(), twin.parameters(), strict=True):
            parameter.grad = torch.randn_like(parameter)
            other.grad = parameter.grad.clone()
        optimizer.step(0.5)
        reference.step()
    for parameter, other in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(parameter, other, rtol=1e-6, atol=1e-7)


def test_a_missing_tensor_of_the_optimizer_is_named():
    optimizer = Optimizer(tiny(), OptimConfig())
    tensors = optimizer.tensors()
    del tensors["optimizer.output_table.exp_avg"]
    with pytest.raises(ValueError, match="no optimizer.output_table.exp_avg"):
        optimizer.load_tensors(tensors)


def test_starting_imports_nothing_that_costs_seconds_and_is_not_used(tmp_path):
    code = """
import sys
import torch
from mt.config import ModelConfig, OptimConfig
from mt.model.transformer import Transformer
from mt.training import run
from mt.training.optim import Optimizer
model = Transformer(ModelConfig(d_model=8, d_ff=8, n_heads=1, encoder_layers=1, decoder_layers=1), 9, 9)
optimizer = Optimizer(model, OptimConfig(optimizer="muon"))
for parameter in model.parameters():
    parameter.grad = torch.ones_like(parameter)
optimizer.step(1.0)
print([name for name in ("torch._dynamo", "sympy", "pandas", "datasets", "tensorboard") if name in sys.modules])
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert found.strip() == "[]"


def test_orthogonalise_brings_singular_values_near_one():
    torch.manual_seed(0)
    for shape in ((3, 16, 16), (2, 32, 8), (2, 8, 32)):
        matrices = torch.randn(shape, dtype=torch.float64) * 1e-6
        found = orthogonalise(matrices)
        left, values, right = torch.linalg.svd(matrices, full_matrices=False)
        scales = (left.mT @ found @ right.mT).diagonal(dim1=-2, dim2=-1)  # the singular vectors stay
        torch.testing.assert_close(left * scales[:, None] @ right, found)
        seen = values / values.square().square().sum(-1, keepdim=True) ** 0.25 > 0.007
        assert scales[seen].min() > 0.6 and scales.max() < 1.4 and seen.double().mean() > 0.9


def test_orthogonalise_takes_odd_matrices():
    torch.manual_seed(0)
    one_direction = torch.outer(torch.randn(8), torch.randn(12))
    found = torch.linalg.svdvals(orthogonalise(torch.stack([one_direction, torch.zeros(8, 12), one_direction * 1e-30])))
    assert 0.6 < found[0, 0] < 1.4 and found[0, 1:].max() < 1e-3
    assert found[1:].max() < 1.4  # too small for float32, or nothing at all: never blown up, never NaN


def test_muon_takes_fused_projections_apart_and_leaves_embeddings_to_adamw():
    model = tiny()
    optimizer = Optimizer(model, OptimConfig(optimizer="muon"))
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter)
    optimizer.step(1.0)
    fused = "encoder_layers.0.self_attention.query_key_value.weight"
    change = (dict(model.named_parameters())[fused] - before[fused]).detach()
    for part in change.chunk(3):
        assert torch.linalg.svdvals(part / 0.02).max() < 1.4
    # the first step of AdamW is lr for every element
    embedding = model.output_table - before["output_table"]
    assert embedding.detach().abs().max().item() == pytest.approx(1e-3, rel=1e-2)
