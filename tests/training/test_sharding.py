"""Models that ranks hold together, activations that are computed again, and saves that all ranks write."""

import signal
import sys

import pytest
import torch

from mt import checkpoint as folder
from mt.config import ModelConfig, TrainerConfig
from mt.data.batch import collate
from mt.model.dropout import seed_dropout
from mt.model.transformer import Transformer
from mt.tensors import fill, own_part, own_rows
from mt.training.loss import PairLoss
from mt.translation.translator import load_translator
from tests.training.ranks import events, finish, largest_difference, run_alone, start, wait_for_step, weights
from tests.training.small_runs import made_corpus

SHAPE = ModelConfig(d_model=16, d_ff=32, n_heads=2, encoder_layers=2, decoder_layers=2, dropout=0.2)
SECONDS = 3600  # that a run may take on a machine that does other things
slow_ranks = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="finds the ranks in /proc")]


def gradients(checkpoint_activations: bool, calls: list[str], r_drop: float = 0.0) -> dict[str, torch.Tensor]:
    torch.manual_seed(1)
    model = Transformer(SHAPE, 40, 40)
    model.checkpoint_activations = checkpoint_activations
    model.encoder_layers[1].register_forward_pre_hook(lambda *_: calls.append("forward"))
    pair_loss = PairLoss(model, 0.1, r_drop, compiled=False)
    batch = collate(*([torch.arange(4, 4 + n).numpy() for n in (3, 9, 5)] for _ in range(2)), [0, 1, 2])
    for seed in (7, 8):  # the second draws what the first's repetition must not have changed
        seed_dropout(model, seed)
        pair_loss(batch).smoothed.backward()
    return {name: parameter.grad for name, parameter in model.named_parameters()}


@pytest.mark.parametrize("r_drop", [0.0, 5.0])
def test_activations_computed_again_have_the_same_masks_and_gradients(r_drop):
    calls: list[list[str]] = [[], []]
    kept, again = (gradients(on, calls[on], r_drop) for on in (False, True))
    assert len(calls[1]) == 2 * len(calls[0])
    assert all(torch.equal(kept[name], again[name]) for name in kept)


def test_without_gradients_nothing_is_kept_or_computed_again():
    model = Transformer(SHAPE, 40, 40)
    model.checkpoint_activations = True
    with torch.no_grad():
        assert not PairLoss(model, 0.1, 0.0, compiled=False)(collate([[4, 5]], [[6]], [0])).smoothed.requires_grad


def test_a_whole_tensor_is_its_own_part():
    tensor = torch.arange(12.0).view(6, 2)
    part, rows = own_rows(tensor, 2, 4)
    assert own_part(tensor) is tensor and rows == slice(0, 2) and part.data_ptr() == tensor[2].data_ptr()
    fill(tensor, -tensor.clone())
    assert tensor[5, 1] == -11


@pytest.mark.parametrize("other", ["fit_batch", "compile"])
def test_settings_that_do_not_go_together_are_refused(other):
    with pytest.raises(ValueError, match=f"trainer.{other}=true: .* set trainer.shard_ranks=1"):
        TrainerConfig(shard_ranks=None, **{other: True})
    with pytest.raises(ValueError, match="checkpoint_activations=true: .* set trainer.compile=false"):
        TrainerConfig(checkpoint_activations=True, compile=True)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return made_corpus(tmp_path_factory, {"train": 150, "valid": 9})


MORE = ["optim.optimizer=muon", "trainer.ema_decay=0.9", "model.encoder_layers=2", "model.tying=decoder"]


@pytest.fixture(scope="module")
def alone(corpus, tmp_path_factory):
    """The run of one process: Muon, accumulation, dropout, a moving average, tied tables."""
    run_dir = tmp_path_factory.mktemp("alone") / "run"
    return run_alone(corpus, run_dir, *MORE, "trainer.accumulate_batches=4", seconds=SECONDS)


class TestSeveralRanks:
    pytestmark = slow_ranks

    @pytest.mark.parametrize("settings", [["shard_ranks=1"], ["shard_ranks=null", "checkpoint_activations=true"]])
    def test_twenty_updates_equal_one_process(self, corpus, alone, tmp_path, settings):
        settings = [f"trainer.{setting}" for setting in (*settings, "accumulate_batches=2")]
        code, output = finish(start(corpus, tmp_path / "run", 2, *MORE, *settings), SECONDS)
        assert code == 0, output
        assert largest_difference(alone, tmp_path / "run") < 1e-5
        scores = [[(e["loss"], e["chrf"]) for e in events(place, "valid")] for place in (alone, tmp_path / "run")]
        assert scores[0] == [pytest.approx(values, abs=1e-5) for values in scores[1]]

    def test_a_save_of_four_ranks_goes_on_with_two_and_with_one(self, corpus, alone, tmp_path):
        more = [*MORE, "trainer.save_every_steps=1", "trainer.keep_last_checkpoints=3"]
        run_dir = tmp_path / "run"
        process = start(corpus, run_dir, 4, *more, "trainer.shard_ranks=2")  # two copies, each of two ranks
        wait_for_step(process, run_dir, 5, SECONDS)
        process.send_signal(signal.SIGTERM)
        finish(process, SECONDS)
        stopped = events(run_dir, "stop")[-1]["step"]
        assert 5 <= stopped < 20
        saved = folder.pointed(run_dir, "last")
        assert sorted(file.name for file in saved.iterdir()) == [folder.MODEL, folder.STATE, folder.TRAINING]
        assert folder.newest_readable(run_dir) == saved and not list(saved.parent.glob(".tmp-*"))
        assert len(load_translator(run_dir, "cpu").translate(["red tea", ""])) == 2
        half_way = ["trainer.max_steps=15", "trainer.accumulate_batches=1"]
        code, output = finish(start(corpus, run_dir, 2, *more, "trainer.shard_ranks=null", *half_way), SECONDS)
        assert code == 0 and "an update keeps its 4 micro-batches" in output, output
        code, output = finish(start(corpus, run_dir, 1, *more, "trainer.shard_ranks=null"), SECONDS)
        assert code == 0 and "resuming" in output, output
        assert largest_difference(alone, run_dir) < 1e-5
        assert weights(run_dir)

    @pytest.mark.parametrize("shard_ranks", ["1", "null"])
    def test_gradients_in_bf16_are_near(self, corpus, alone, tmp_path, shard_ranks):
        more = [f"trainer.shard_ranks={shard_ranks}", "trainer.bf16_gradients=true", "trainer.accumulate_batches=2"]
        code, output = finish(start(corpus, tmp_path / "run", 2, *MORE, *more), SECONDS)
        assert code == 0, output
        assert 1e-6 < largest_difference(alone, tmp_path / "run") < 0.05

    def test_a_number_of_ranks_that_cannot_hold_it_is_refused(self, corpus, tmp_path):
        code, output = finish(start(corpus, tmp_path / "run", 1, "trainer.shard_ranks=2"), SECONDS)
        assert code == 2 and "trainer.shard_ranks=2: 1 ranks are no multiple of it" in output
