"""Backward passes by several threads against one after the other, and the pieces that batches are cut into."""

from contextlib import nullcontext

import numpy as np
import pytest
import torch

from mt.config import ModelConfig
from mt.data.batch import collate
from mt.model.dropout import seed_dropout
from mt.model.transformer import Transformer
from mt.training.lanes import Lanes, pieces_of
from mt.training.loss import PairLoss


def batch_of(pairs: int, seed: int = 0):
    random = np.random.default_rng(seed)
    sides = [[random.integers(4, 40, random.integers(1, 12)) for _ in range(pairs)] for _ in range(2)]
    return collate(*sides, list(range(100, 100 + pairs)))


def pair_loss_of(dropout: float) -> PairLoss:
    torch.manual_seed(0)
    shape = ModelConfig(d_model=16, d_ff=32, n_heads=2, encoder_layers=1, decoder_layers=1, dropout=dropout)
    return PairLoss(Transformer(shape, 40, 40), 0.1, 0.0, compiled=False).double()


def gradients(pair_loss: PairLoss) -> dict[str, torch.Tensor]:
    return {name: p.grad.clone() for name, p in pair_loss.named_parameters() if p.grad is not None}


def one_after_the_other(pieces, scale):
    pair_loss, total = pair_loss_of(0.3), 0.0
    for piece in pieces:
        seed_dropout(pair_loss, piece.dropout_seed)
        loss = pair_loss(piece)
        (loss.smoothed * scale).backward()
        total += float(loss.negative_log_likelihood)
    return total, gradients(pair_loss)


@pytest.mark.parametrize("count", [2, 3, 5])
def test_lanes_sum_what_one_thread_sums(count):
    pieces = batch_of(30).split(4)
    pair_loss = pair_loss_of(0.3)
    total = Lanes(pair_loss, count).backward(pieces, 0.01, nullcontext)
    expected_total, expected = one_after_the_other(pieces, 0.01)
    assert total == pytest.approx(expected_total, rel=1e-12)
    found = gradients(pair_loss)
    assert found.keys() == expected.keys()
    for name, grad in found.items():
        torch.testing.assert_close(grad, expected[name], rtol=0, atol=1e-13)


def test_lanes_repeat_to_the_bit_and_follow_changed_weights():
    pieces, pair_loss = batch_of(30).split(4), pair_loss_of(0.3)
    lanes = Lanes(pair_loss, 2)
    runs = []
    for _ in range(3):
        pair_loss.zero_grad(set_to_none=True)
        runs.append((lanes.backward(pieces, 1.0, nullcontext), gradients(pair_loss)))
    for total, grads in runs[1:]:
        assert total == runs[0][0]
        assert all(torch.equal(grads[name], grad) for name, grad in runs[0][1].items())
    with torch.no_grad():
        for parameter in pair_loss.parameters():
            parameter.mul_(1.5)
    lanes.copies[1].zero_grad(set_to_none=True)
    assert lanes.backward(pieces, 1.0, nullcontext) != runs[0][0]
    shared = zip(pair_loss.parameters(), lanes.copies[1].parameters(), strict=True)
    assert all(own.data_ptr() == other.data_ptr() for own, other in shared)


def test_more_lanes_than_pieces_leave_some_idle():
    pair_loss = pair_loss_of(0.0)
    pieces = batch_of(3).split(1)
    Lanes(pair_loss, 4).backward(pieces, 1.0, nullcontext)
    assert all(parameter.grad is not None for parameter in pair_loss.parameters())


def test_an_error_in_a_lane_reaches_the_caller():
    lanes = Lanes(pair_loss_of(0.0), 2)
    bad = batch_of(4)
    bad.source[0] = 1000  # outside the vocabulary
    with pytest.raises(IndexError):
        lanes.backward([batch_of(4), bad], 1.0, nullcontext)


@pytest.mark.parametrize("count", [1, 2, 4, 50])
def test_split_keeps_every_pair_and_token(count):
    whole = batch_of(30)
    parts = whole.split(count)
    assert len(parts) <= count
    assert tuple(pair for part in parts for pair in part.pairs) == whole.pairs
    for name in ("source", "target_input", "target_output"):
        assert torch.equal(torch.cat([getattr(part, name) for part in parts]), getattr(whole, name))
    for side in ("source_layout", "target_layout"):
        assert sum((getattr(part, side).lengths for part in parts), ()) == getattr(whole, side).lengths
    assert sum(part.source_tokens for part in parts) == whole.source_tokens
    assert sum(part.target_tokens for part in parts) == whole.target_tokens
    assert len({part.dropout_seed for part in parts}) == len(parts)


def test_parts_are_about_equal_work():
    work = [part.source_tokens + 2 * part.target_tokens for part in batch_of(400).split(4)]
    assert max(work) < 1.1 * min(work)


def test_a_batch_of_one_pair_stays_whole():
    assert len(batch_of(1).split(8)) == 1


@pytest.mark.parametrize(
    ("batch_tokens", "pieces"), [(1, 1), (200, 1), (700, 2), (1024, 2), (2000, 2), (4096, 4), (5000, 4), (25_000, 32)]
)
def test_pieces_are_a_power_of_two_of_about_a_thousand_tokens(batch_tokens, pieces):
    assert pieces_of(batch_tokens) == pieces
