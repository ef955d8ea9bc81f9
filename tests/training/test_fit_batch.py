"""The search for the largest batch, with a made-up memory, and what a run makes of its result."""

import dataclasses

import pytest
import torch

from mt import checkpoint as folder
from mt.training import fit_batch as room
from mt.training import run
from mt.training.fit_batch import kept, largest_that_fits
from tests.training.small_runs import settings, train_until
from tests.training.test_resume import messages


@pytest.mark.parametrize("memory", [0, 127, 128, 500, 1023, 1024, 1025, 5000, 33_333, 70_000])
def test_the_largest_is_found_with_few_tries(memory):
    tried = []

    def fits(tokens):
        tried.append(tokens)
        return tokens <= memory

    found = largest_that_fits(fits, most=50_000)
    best = min(memory, 50_000)
    assert found <= best and best - found <= max(128, found // 32)
    assert (found == 0) == (memory < 128) and (found == 50_000) == (memory >= 50_000)
    assert len(tried) == len(set(tried)) <= 13


def test_a_tenth_is_left_over():
    assert [kept(n) for n in (100, 128, 256, 10_000, 50_000)] == [100, 128, 128, 8960, 44928]


def test_on_a_cpu_it_is_refused_in_one_line_before_anything_is_made(corpus, tmp_path):
    with pytest.raises(ValueError, match="trainer.fit_batch=true: needs a GPU, and the device is cpu: set .*=false"):
        run.train(settings(corpus, tmp_path / "run", fit_batch=True), [])
    assert not (tmp_path / "run").exists()


@pytest.fixture
def memory_of_200_tokens(monkeypatch):
    """As if a CPU's memory held 200 tokens: returns the sizes that were tried."""
    tried, step = [], room.Trainer.train_step

    def train_step(self, batches, tokens, monitor):
        if self.config.trainer.batch_tokens == 60:  # before the search has set it
            tried.append(max(len(batches[0].source), len(batches[0].target_input)))
            assert len(batches[0].source) == len(batches[0].target_input)
            if tried[-1] > 200:
                raise torch.OutOfMemoryError("CUDA out of memory")
        return step(self, batches, tokens, monitor)

    monkeypatch.setattr(room.Trainer, "train_step", train_step)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    monkeypatch.setattr(run, "check_fit_batch", lambda config, device: None)
    return tried


def test_a_run_keeps_the_size_that_it_began_with(corpus, tmp_path, memory_of_200_tokens):
    config = settings(corpus, tmp_path / "run", fit_batch=True)
    train_until(config, 4)
    assert memory_of_200_tokens
    assert "trainer.fit_batch: 128 tokens fit; the run's trainer.batch_tokens is 128" in messages(tmp_path / "run")
    assert folder.load_config(tmp_path / "run").trainer.batch_tokens == 128
    memory_of_200_tokens.clear()
    result = run.train(config, [])
    assert result.finished and not memory_of_200_tokens
    text = messages(tmp_path / "run")
    assert "trainer.batch_tokens:" not in text and "is left out" not in text
    assert folder.load_config(tmp_path / "run").trainer.batch_tokens == 128


def test_the_search_leaves_no_trace_in_the_weights(corpus, tmp_path, memory_of_200_tokens):
    from tests.training.small_runs import assert_same, final_tensors

    run.train(settings(corpus, tmp_path / "searched", fit_batch=True, max_steps=3), [])
    stored = folder.load_config(tmp_path / "searched")
    again = dataclasses.replace(stored.trainer, fit_batch=False)
    run.train(dataclasses.replace(stored, trainer=again, run_dir=str(tmp_path / "again")), [])
    assert_same(final_tensors(tmp_path / "searched"), final_tensors(tmp_path / "again"))


def test_the_smallest_of_the_ranks_counts(monkeypatch, corpus, tmp_path, memory_of_200_tokens):
    monkeypatch.setattr(room, "largest_that_fits", lambda fits, most: 5000)
    monkeypatch.setattr(room.Group, "table", lambda self, values: room.np.array([values, [3000.0] * len(values)]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(room.Trainer, "fit", lambda *arguments: (_ for _ in ()).throw(KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt):
            run.train(settings(corpus, tmp_path / "run", fit_batch=True), [])
    assert folder.load_config(tmp_path / "run").trainer.batch_tokens == 2688
