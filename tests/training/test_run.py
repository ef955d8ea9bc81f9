"""Whole runs on a small made-up corpus: resuming, accumulating, limits, refusals, bad gradients."""

import dataclasses
import json

import pytest
import torch
from safetensors.torch import load_file

from mt import checkpoint as folder
from mt.data.batch import collate
from mt.data.encoded import encode_corpus
from mt.training import trainer as room
from mt.training.distributed import Group
from mt.training.run import train
from mt.training.stream import BatchStream
from mt.training.validation import Validation
from mt.translation.translator import load_translator
from tests.training.small_runs import assert_same, final_tensors, settings, train_until


@pytest.mark.parametrize("extra", [{}, {"ema_decay": 0.9, "accumulate_batches": 2, "prefetch_updates": 2}])
def test_resuming_equals_never_having_stopped_to_the_bit(corpus, tmp_path, extra):
    train(settings(corpus, tmp_path / "straight", **extra), [])
    stopped = settings(corpus, tmp_path / "stopped", **extra)
    for stop_at in (4, 7):
        train_until(stopped, stop_at)
    result = train(stopped, [])
    assert result.finished and result.steps == 12
    assert_same(final_tensors(tmp_path / "straight"), final_tensors(tmp_path / "stopped"))


def test_two_runs_are_the_same_and_the_seed_matters(corpus, tmp_path):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        train(settings(corpus, tmp_path / name, max_steps=3, seed=seed), [])
    a, b, c = (final_tensors(tmp_path / name) for name in "abc")
    assert_same(a, b)
    assert not torch.equal(a["output_table"], c["output_table"])


def test_accumulating_equals_one_big_batch(corpus, tmp_path):
    config = settings(corpus, tmp_path / "run", max_steps=1)
    config.model.dropout = 0.0
    train(config, [])
    tokenizers = folder.load_tokenizers(tmp_path / "run")
    data = encode_corpus(config.data.train, config.data, tokenizers)
    trainer = room.Trainer(config, tmp_path / "run", torch.device("cpu"), tokenizers, data, None, Group())
    trainer.model.double()
    trainer.lanes = None  # whose gradients stay float32
    stream = BatchStream(data, tokenizers, plain(config), 1)
    parts = [stream.next_window().batches[0] for _ in range(3)]
    pairs = [pair for part in parts for pair in part.pairs]
    whole = collate([data.source_ids(i) for i in pairs], [data.target_ids(i) for i in pairs], pairs)
    grads, tokens = [], whole.target_tokens
    for batches in ([whole], parts):
        trainer._update = lambda monitor, batches: 0.0
        trainer.model.zero_grad()
        loss, _ = trainer.train_step(batches, tokens, None)
        grads.append((loss, [p.grad.clone() for p in trainer.model.parameters()]))
    assert grads[0][0] == pytest.approx(grads[1][0], rel=1e-6)
    for a, b in zip(grads[0][1], grads[1][1], strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-12)


def test_a_finished_or_unfinished_run_is_not_overwritten(corpus, tmp_path):
    config = settings(corpus, tmp_path / "run", max_steps=2)
    train(config, [])
    before = final_tensors(tmp_path / "run")
    with pytest.raises(ValueError, match="holds a run; resume=true"):
        train(dataclasses.replace(config, resume=False), [])
    again = train(config, [])
    assert again.finished and again.steps == 2 and again.metrics["loss"] > 0
    assert_same(before, final_tensors(tmp_path / "run"))
    longer = dataclasses.replace(config, resume=True, trainer=dataclasses.replace(config.trainer, max_steps=4))
    assert train(longer, []).steps == 4
    longer = dataclasses.replace(config, resume=True, trainer=dataclasses.replace(config.trainer, max_steps=6))
    other = dataclasses.replace(longer, model=dataclasses.replace(config.model, d_ff=64))
    with pytest.raises(ValueError, match=r"model\.d_ff"):
        train(other, [])


def test_every_pair_once_an_epoch_also_across_an_interruption(corpus, tmp_path):
    config = settings(corpus, tmp_path / "run", max_steps=1)
    train(config, [])
    tokenizers = folder.load_tokenizers(tmp_path / "run")
    data = encode_corpus(config.data.train, config.data, tokenizers)

    def stream():
        return BatchStream(data, tokenizers, config, 1)

    first, seen = stream(), []
    while first.epoch == 0:
        seen.append([batch.pairs for batch in first.next_window().batches])
    assert sorted(pair for window in seen for pairs in window for pair in pairs) == list(range(len(data)))
    second = stream()
    for _ in range(3):
        second.next_window()
    resumed = stream()
    resumed.seek(second.epoch, second.next_batch, second.update)
    assert [batch.pairs for batch in resumed.next_window().batches] == seen[3]
    assert torch.equal(resumed.next_window().batches[0].source, _after(stream(), 5).batches[0].source)


def test_final_stops_are_taken_from_both_sides_or_neither(corpus, tmp_path):
    config = settings(corpus, tmp_path / "run", max_steps=1)
    train(config, [])
    tokenizers = folder.load_tokenizers(tmp_path / "run")
    data = encode_corpus(config.data.train, config.data, tokenizers)

    def ends(probability):
        stream = BatchStream(data, tokenizers, plain(config, probability), 1)
        counts = []
        for _ in range(len(stream.plan(0))):
            batch = stream.next_window().batches[0]
            for lengths, tokens, decode in (
                (batch.source_layout.lengths, batch.source, tokenizers.source.decode),
                (batch.target_layout.lengths, batch.target_output, tokenizers.target.decode),
            ):
                counts += [decode(part.tolist()).endswith(".") for part in tokens.split(list(lengths))]
        return sum(counts)

    assert ends(0.0) == 2 * len(data)
    assert ends(1.0) == 0
    assert 0 < ends(0.7) < len(data) and ends(0.7) % 2 == 0


def plain(config, strip_final_stop_probability=0.0):
    data = dataclasses.replace(config.data, strip_final_stop_probability=strip_final_stop_probability)
    return dataclasses.replace(config, data=data)


def _after(stream, windows):
    for _ in range(windows - 1):
        stream.next_window()
    return stream.next_window()


def test_a_bad_gradient_skips_the_step_and_too_many_stop_the_run(corpus, tmp_path, monkeypatch):
    clip = room.clip_gradients
    calls = []

    def poison(model, largest):
        calls.append(1)
        if len(calls) == 3 or len(calls) >= 8:
            next(iter(model.parameters())).grad.view(-1)[0] = float("inf")
        return clip(model, largest)

    monkeypatch.setattr(room, "clip_gradients", poison)
    config = settings(corpus, tmp_path / "run", max_skipped_steps=2)
    with pytest.raises(ValueError, match="not finite in 2 updates in a row"):
        train(config, [])
    last = folder.pointed(tmp_path / "run", "last")
    state = json.loads((last / "state.json").read_text())
    assert state["step"] == 6 and state["progress"]["skipped_steps"] == 1
    assert all(torch.isfinite(t).all() for t in load_file(last / "model.safetensors").values())


def test_a_nan_validation_is_never_the_best(corpus, tmp_path, monkeypatch):
    values = iter([4.0, float("nan"), 3.0, float("nan")])

    monkeypatch.setattr(room, "validate", lambda *arguments: Validation({"loss": next(values)}, {}, []))
    config = settings(corpus, tmp_path / "run", validate_every_steps=3, best_metric="loss")
    train(config, [])
    best = folder.pointed(tmp_path / "run", "best")
    assert best.name == "step_00000009"


def test_an_unusable_cache_is_told_before_a_tokenizer_is_trained(corpus, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    config = settings(corpus, tmp_path / "run", max_steps=1)
    config.data.cache_dir = str(tmp_path / "file" / "cache")
    with pytest.raises(ValueError, match="data.cache_dir=.*file/cache: cannot be created .*: choose a folder that can"):
        train(config, [])
    assert "training the tokenizer" not in capsys.readouterr().err


def test_a_very_long_validation_pair_has_no_part_in_the_loss(corpus, tmp_path):
    lines = (corpus / "valid.tsv").read_text(encoding="utf-8")
    losses = []
    for name, more in (("short", ""), ("long", "tea " * 300 + "\tTEE\n" + "tea\t" + "TEE " * 300 + "\n")):
        config = settings(corpus, tmp_path / name, max_steps=1)
        config.data.valid["main"].path = str(tmp_path / f"{name}.tsv")
        config.decode.max_source_tokens = 100
        config.data.cleaning.drop_held_out = "none"  # else other validation text makes another training corpus
        (tmp_path / f"{name}.tsv").write_text(lines + more, encoding="utf-8")
        losses.append(train(config, []).metrics["loss"])
    assert losses[0] == pytest.approx(losses[1])
    log = (tmp_path / "long" / "log.jsonl").read_text(encoding="utf-8")
    assert "data.valid: 2 of 12 pairs have a side of more than decode.max_source_tokens=100 tokens" in log


@pytest.mark.parametrize(("warmup", "warnings", "log_every_steps"), [(100, 1, 1), (100, 1, 50), (5, 0, 1)])
def test_a_run_that_ends_within_its_warm_up_says_so_once(corpus, tmp_path, warmup, warnings, log_every_steps):
    config = settings(corpus, tmp_path / "run", max_steps=12, log_every_steps=log_every_steps)
    config.optim.warmup_steps = warmup
    train(config, [])
    assert (tmp_path / "run" / "log.jsonl").read_text().count("about 12 updates") == warnings


def test_limits_and_early_stopping(corpus, tmp_path):
    by_epoch = train(settings(corpus, tmp_path / "epochs", max_steps=None, max_epochs=1.0), [])
    assert by_epoch.stopped_by == "max_epochs"
    by_time = train(settings(corpus, tmp_path / "minutes", max_steps=None, max_minutes=0.02), [])
    assert by_time.stopped_by == "max_minutes" and by_time.finished
    patient = settings(
        corpus,
        tmp_path / "patience",
        max_steps=200,
        validate_every_steps=1,
        early_stopping_patience=3,
        best_metric="bleu",
    )
    patient.optim.lr = 0.0
    stopped = train(patient, [])
    assert stopped.stopped_by == "early_stopping" and stopped.steps == 4


def test_init_from_starts_from_weights_with_a_fresh_schedule(corpus, tmp_path):
    train(settings(corpus, tmp_path / "parent", max_steps=3), [])
    child = dataclasses.replace(settings(corpus, tmp_path / "child", max_steps=1), init_from=str(tmp_path / "parent"))
    child.optim.lr = 0.0
    train(child, [])
    parent, own = final_tensors(tmp_path / "parent"), final_tensors(tmp_path / "child")
    assert torch.equal(parent["output_table"], own["output_table"])
    assert json.loads((folder.pointed(tmp_path / "child", "last") / "state.json").read_text())["step"] == 1


def test_a_small_model_learns(corpus, tmp_path):
    config = settings(corpus, tmp_path / "run", max_steps=60, batch_tokens=300, validate_every_steps=60)
    result = train(config, [])
    first = json.loads(next(line for line in (tmp_path / "run" / "log.jsonl").open() if '"train"' in line))
    assert result.metrics["loss"] < 0.7 * first["loss"]


@pytest.mark.parametrize("precision", ["bf16", pytest.param("fp16", marks=pytest.mark.slow)])
def test_half_precision_learns_and_resumes_to_the_bit(corpus, tmp_path, precision):
    extra = {"precision": precision, "max_steps": 40, "batch_tokens": 300, "validate_every_steps": 40}
    result = train(settings(corpus, tmp_path / "straight", **extra), [])
    first = json.loads(next(line for line in (tmp_path / "straight" / "log.jsonl").open() if '"train"' in line))
    assert result.metrics["loss"] < 0.8 * first["loss"]
    stopped = settings(corpus, tmp_path / "stopped", **extra)
    train_until(stopped, 5)
    train(dataclasses.replace(stopped, resume=True), [])
    straight, resumed = final_tensors(tmp_path / "straight"), final_tensors(tmp_path / "stopped")
    assert straight["output_table"].dtype == torch.float32
    assert_same(straight, resumed)


def test_fp16_overflow_halves_the_loss_scale_and_leaves_the_weights(corpus, tmp_path, monkeypatch):
    clip, norms = room.clip_gradients, []

    def poison(model, largest):
        if len(norms) == 1:
            next(iter(model.parameters())).grad.view(-1)[0] = float("nan")
        norms.append(clip(model, largest))
        return norms[-1]

    monkeypatch.setattr(room, "clip_gradients", poison)
    train(settings(corpus, tmp_path / "run", precision="fp16", max_steps=3), [])
    state = json.loads((folder.pointed(tmp_path / "run", "last") / "state.json").read_text())
    assert state["progress"]["loss_scale"] == room.FIRST_LOSS_SCALE / 2
    assert state["progress"]["skipped_steps"] == 1 and state["step"] == 3
    assert norms[0] < 100  # the norm is that of the unscaled gradients


def test_fine_tuning_resumed_before_its_first_save_still_starts_from_the_parent(corpus, tmp_path, monkeypatch):
    train(settings(corpus, tmp_path / "parent", max_steps=3), [])
    child = dataclasses.replace(settings(corpus, tmp_path / "child", max_steps=1), init_from=str(tmp_path / "parent"))
    child.optim.lr = 0.0
    with monkeypatch.context() as patch:
        patch.setattr(room.Trainer, "fit", lambda *arguments: (_ for _ in ()).throw(KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt):
            train(child, [])
    train(dataclasses.replace(child, resume=True), [])
    assert torch.equal(
        final_tensors(tmp_path / "parent")["output_table"], final_tensors(tmp_path / "child")["output_table"]
    )


def test_a_folder_with_other_things_in_it_is_not_trained_into(corpus, tmp_path):
    train(settings(corpus, tmp_path / "run", max_steps=2), [])
    (tmp_path / "run" / "config.yaml").unlink()
    before = final_tensors(tmp_path / "run")
    with pytest.raises(ValueError, match="holds checkpoints but no config.yaml: restore it"):
        train(settings(corpus, tmp_path / "run", max_steps=2), [])
    assert_same(before, final_tensors(tmp_path / "run"))


def test_weights_that_do_not_fit_leave_no_run_behind(corpus, tmp_path):
    train(settings(corpus, tmp_path / "parent", max_steps=2), [])
    child = dataclasses.replace(settings(corpus, tmp_path / "child", max_steps=1), init_from=str(tmp_path / "parent"))
    child.model.d_model = 32
    with pytest.raises(ValueError, match="its model has another shape; set model.d_model=16"):
        train(child, [])
    assert not folder.is_run(tmp_path / "child")


def test_settings_edited_after_training_are_noticed(corpus, tmp_path):
    train(settings(corpus, tmp_path / "run", max_steps=2), [])
    file = tmp_path / "run" / "config.yaml"
    file.write_text(file.read_text().replace("activation: relu", "activation: gelu"))
    with pytest.raises(ValueError, match=r"model\.activation=gelu, but the weights were trained with relu"):
        load_translator(tmp_path / "run", "cpu")
