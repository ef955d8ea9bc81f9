"""The loss against torch's cross entropy and against numbers worked out by hand."""

import math

import pytest
import torch
import torch.nn.functional as F

from mt.config import ModelConfig
from mt.model.transformer import Transformer
from mt.training import loss as room
from mt.training.loss import smoothed_cross_entropy


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.3])
@pytest.mark.parametrize("chunk", [16, 512])
def test_equals_cross_entropy_values_and_gradients(monkeypatch, smoothing, chunk):
    monkeypatch.setitem(room.CHUNK_ROWS, "cpu", chunk)
    torch.manual_seed(0)
    hidden = torch.randn(50, 8, dtype=torch.float64, requires_grad=True)
    table = torch.randn(13, 8, dtype=torch.float64, requires_grad=True)
    targets = torch.randint(1, 13, (50,))
    targets[::7] = 0
    tokens = int((targets != 0).sum())
    expected = F.cross_entropy(hidden @ table.T, targets, ignore_index=0, reduction="sum", label_smoothing=smoothing)
    wanted = torch.autograd.grad(expected / 5, (hidden, table))
    loss = smoothed_cross_entropy(hidden, table, targets, smoothing, tokens)
    grads = torch.autograd.grad(loss.smoothed / 5, (hidden, table))
    torch.testing.assert_close(loss.smoothed, expected, rtol=1e-12, atol=0)
    for grad, want in zip(grads, wanted, strict=True):
        torch.testing.assert_close(grad, want, rtol=0, atol=1e-12)
    plain = F.cross_entropy(hidden @ table.T, targets, ignore_index=0, reduction="sum")
    torch.testing.assert_close(loss.negative_log_likelihood, plain, rtol=1e-12, atol=0)


@pytest.mark.parametrize("chunk", [1, 16, 512])
@pytest.mark.parametrize("alpha", [0.7, 5.0])
def test_r_drop_equals_the_formula_values_and_gradients(monkeypatch, alpha, chunk):
    monkeypatch.setitem(room.CHUNK_ROWS, "cpu", chunk)
    torch.manual_seed(0)
    hidden = torch.randn(100, 8, dtype=torch.float64, requires_grad=True)
    table = torch.randn(13, 8, dtype=torch.float64, requires_grad=True)
    targets = torch.randint(1, 13, (50,))
    targets[::7] = 0
    tokens = int((targets != 0).sum())
    logits = hidden @ table.T
    cross_entropy = F.cross_entropy(logits, targets.repeat(2), ignore_index=0, reduction="sum", label_smoothing=0.1)
    first, second = logits[:50].log_softmax(1)[targets != 0], logits[50:].log_softmax(1)[targets != 0]
    divergence = F.kl_div(second, first, log_target=True, reduction="sum")
    divergence = divergence + F.kl_div(first, second, log_target=True, reduction="sum")
    expected = cross_entropy / 2 + alpha / 4 * divergence
    wanted = torch.autograd.grad(expected / 5, (hidden, table))
    loss = smoothed_cross_entropy(hidden, table, targets, 0.1, tokens, alpha)
    grads = torch.autograd.grad(loss.smoothed / 5, (hidden, table))
    torch.testing.assert_close(loss.smoothed, expected, rtol=1e-12, atol=0)
    for grad, want in zip(grads, wanted, strict=True):
        torch.testing.assert_close(grad, want, rtol=0, atol=1e-12)
    plain = F.cross_entropy(logits, targets.repeat(2), ignore_index=0, reduction="sum") / 2
    torch.testing.assert_close(loss.negative_log_likelihood, plain, rtol=1e-12, atol=0)


def test_r_drop_of_two_equal_passes_is_the_plain_loss():
    torch.manual_seed(0)
    hidden, table, targets = torch.randn(9, 8), torch.randn(13, 8), torch.randint(1, 13, (9,))
    plain = smoothed_cross_entropy(hidden, table, targets, 0.1, 9)
    twice = smoothed_cross_entropy(hidden.repeat(2, 1), table, targets, 0.1, 9, 5.0)
    assert float(twice.smoothed) == pytest.approx(float(plain.smoothed), rel=1e-6)


def test_an_output_bias_joins_in_values_and_gradients():
    torch.manual_seed(0)
    model = Transformer(ModelConfig(8, 8, 2, 1, 1, output_bias=True), 13, 13).double()
    torch.nn.init.normal_(model.output_bias)
    hidden = torch.randn(50, 8, dtype=torch.float64, requires_grad=True)
    targets = torch.randint(1, 13, (50,))
    inputs = hidden, model.output_table, model.output_bias
    logits = hidden @ model.output_table.T + model.output_bias
    torch.testing.assert_close(model.logits(hidden), logits)
    expected = F.cross_entropy(logits, targets, reduction="sum", label_smoothing=0.1)
    loss = smoothed_cross_entropy(*model.factors(hidden), targets, 0.1, 50).smoothed
    torch.testing.assert_close(loss, expected, rtol=1e-12, atol=0)
    found, wanted = torch.autograd.grad(loss, inputs), torch.autograd.grad(expected, inputs)
    for grad, want in zip(found, wanted, strict=True):
        torch.testing.assert_close(grad, want, rtol=0, atol=1e-12)


def from_logits(logits, targets, smoothing=0.1):
    logits = torch.tensor(logits, dtype=torch.float32)
    targets = torch.tensor(targets)
    return smoothed_cross_entropy(logits, torch.eye(logits.shape[1]), targets, smoothing, int((targets != 0).sum()))


def test_known_values_and_padding_counts_for_nothing():
    rows = [[2.0, 0, 1, 0, 0], [0, 0, 0, 3.0, 0]]
    loss = from_logits([*rows, [5.0, 0, 0, 0, 0], [0, 7.0, 0, 0, 0]], [2, 3, 0, 0])
    assert float(loss.smoothed) == pytest.approx(2.03478, abs=1e-4)
    assert float(from_logits(rows, [2, 3]).smoothed) == pytest.approx(2.03478, abs=1e-4)
    assert float(from_logits([[0.0] * 5] * 2, [2, 3]).smoothed) == pytest.approx(2 * math.log(5), abs=1e-5)


def test_only_padding_gives_zero_loss_and_zero_gradients():
    hidden = torch.randn(3, 4, requires_grad=True)
    table = torch.randn(6, 4, requires_grad=True)
    loss = smoothed_cross_entropy(hidden, table, torch.zeros(3, dtype=torch.int64), 0.1, 0)
    loss.smoothed.backward()
    assert loss.smoothed.item() == 0
    assert not hidden.grad.any() and not table.grad.any()


def test_very_unlikely_targets_stay_finite():
    hidden = torch.tensor([[500.0, 0, 0, -500.0, 0]], requires_grad=True)
    loss = smoothed_cross_entropy(hidden, torch.eye(5), torch.tensor([3]), 0.0, 1)
    assert 87 < float(loss.negative_log_likelihood) < 88  # as the docstring says; 1000 is beyond what p can hold
    loss.smoothed.backward()
    assert hidden.grad.tolist() == [[1, 0, 0, -1, 0]]
