"""What a GPU does, forced on a CPU: the host learns how an update came out when the next one is on its way."""

import json
import math

import pytest
import torch

from mt import checkpoint as folder
from mt.config import ModelConfig, OptimConfig
from mt.model.transformer import Transformer
from mt.training import trainer as room
from mt.training.optim import Optimizer
from mt.training.run import train
from tests.training.small_runs import assert_same, final_tensors, settings, train_until
from tests.training.test_resume import messages


@pytest.fixture
def ahead(monkeypatch):
    """Makes the trainers that are built from now on run ahead of their device."""

    def build(self, *arguments, init=room.Trainer.__init__):
        init(self, *arguments)
        self.runs_ahead = True

    monkeypatch.setattr(room.Trainer, "__init__", build)


def poison(patch, numbers):
    """Spoils the gradients of the calls of these numbers, from 1."""
    clip, calls = room.clip_gradients, []

    def spoiled(model, largest):
        calls.append(1)
        if len(calls) in numbers:
            for parameter in model.parameters():
                parameter.grad.fill_(math.nan)
        return clip(model, largest)

    patch.setattr(room, "clip_gradients", spoiled)


def log_without_times(run_dir):
    events = [json.loads(line) for line in (run_dir / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    kept = [e for e in events if e["event"] == "train" or "not finite" in e.get("text", "")]
    return [{k: v for k, v in e.items() if k not in ("time", "seconds", "tokens_per_second")} for e in kept]


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
@pytest.mark.parametrize("log_every_steps", [1, 5])
def test_the_run_is_the_one_that_waits_for_its_device(corpus, tmp_path, request, optimizer, log_every_steps):
    """Spoilt: an update in the middle, two in a row, the one at which a validation is due, and the last."""
    logs = []
    for name in ("waits", "ahead"):
        if name == "ahead":
            request.getfixturevalue("ahead")
        config = settings(corpus, tmp_path / name, log_every_steps=log_every_steps, ema_decay=0.9)
        config.optim.optimizer = optimizer
        config.optim.schedule = "linear"
        with pytest.MonkeyPatch.context() as patch:
            poison(patch, (3, 7, 10, 11, 16))
            result = train(config, [])
        assert (result.steps, result.skipped_steps) == (12, 5)
        logs.append(log_without_times(tmp_path / name))
    waits, ahead = (final_tensors(tmp_path / name) for name in ("waits", "ahead"))
    assert waits.keys() == ahead.keys()
    for name, tensor in waits.items():
        torch.testing.assert_close(ahead[name], tensor, rtol=0, atol=1e-6, msg=name)
    for before, after in zip(*logs, strict=True):
        numbers = [{k: v for k, v in event.items() if isinstance(v, float)} for event in (before, after)]
        assert numbers[0] == pytest.approx(numbers[1], rel=1e-4, abs=1e-5, nan_ok=True)
        assert {**after, **numbers[0]} == before


def test_outcomes_are_asked_for_one_update_late_except_where_something_is_due(corpus, tmp_path, ahead, monkeypatch):
    begun, asked = [], []
    step, read = room.Trainer.train_step, room.Outcome.norm

    def train_step(self, *arguments):
        begun.append(1)
        loss, norm = step(self, *arguments)
        assert isinstance(loss, torch.Tensor) and isinstance(norm, torch.Tensor)
        return loss, norm

    def norm(outcome):
        asked.append(len(begun))
        return read(outcome)

    monkeypatch.setattr(room.Trainer, "train_step", train_step)
    monkeypatch.setattr(room.Outcome, "norm", norm)
    train(settings(corpus, tmp_path / "run", log_every_steps=6), [])
    assert asked == [1, 3, 4, 5, 6, 6, 8, 9, 10, 11, 12, 12]  # reports are due after updates 1, 6 and 12


def test_too_many_in_a_row_stop_the_run_and_name_the_place(corpus, tmp_path, ahead):
    config = settings(corpus, tmp_path / "run", max_skipped_steps=3, log_every_steps=50)
    with pytest.MonkeyPatch.context() as patch:
        poison(patch, (9, 10, 11))
        with pytest.raises(ValueError, match="not finite in 3 updates in a row, the last at update 9, epoch"):
            train(config, [])
    assert messages(tmp_path / "run").count("gradients are not finite at update 9") == 3
    state = folder.read_state(folder.pointed(tmp_path / "run", "last"))
    assert state["step"] == 6 and state["progress"]["skipped_steps"] == 0


def test_resuming_equals_never_having_stopped_to_the_bit(corpus, tmp_path, ahead):
    with pytest.MonkeyPatch.context() as patch:
        poison(patch, (4, 7))
        train(settings(corpus, tmp_path / "straight"), [])
    with pytest.MonkeyPatch.context() as patch:
        poison(patch, (4, 7))  # the call that ends the first session counts as the seventh
        train_until(settings(corpus, tmp_path / "stopped"), 5)
        train(settings(corpus, tmp_path / "stopped"), [])
    assert_same(final_tensors(tmp_path / "straight"), final_tensors(tmp_path / "stopped"))


@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_a_skipped_step_leaves_weights_and_state_as_they_were(name):
    torch.manual_seed(0)
    shape = ModelConfig(d_model=8, d_ff=12, n_heads=2, encoder_layers=1, decoder_layers=1)
    model = Transformer(shape, 20, 20)
    optimizer = Optimizer(model, OptimConfig(optimizer=name, weight_decay=0.1))

    def step(value, skip):
        for parameter in model.parameters():
            parameter.grad = torch.full_like(parameter, value)
        optimizer.step(0.5, torch.tensor(skip))

    def everything():
        return {k: v.clone() for k, v in {**model.state_dict(), **optimizer.tensors()}.items()}

    step(1.0, 0.0)
    before = everything()
    step(math.nan, 1.0)
    assert_same(everything(), before)
    step(1.0, 0.0)
    assert not torch.equal(everything()["output_table"], before["output_table"])
