"""Going on with a run: what is kept, what is refused, what is told. Equality to the bit is tested in test_run.py."""

import dataclasses
import json
import shutil
import sys
import threading

import pytest
import torch
import yaml

from mt import checkpoint as folder
from mt import durable
from mt.config import TrainConfig
from mt.mapping import from_mapping
from mt.tensors import find_not_finite
from mt.training.optim import Optimizer
from mt.training.resume import locked
from mt.training.run import train
from mt.training.stream import BatchStream
from tests.training.small_runs import assert_same, final_tensors, settings, train_until, trained


def events(run_dir, kind):
    lines = (run_dir / "log.jsonl").read_text(encoding="utf-8").splitlines()
    return [event for event in map(json.loads, lines) if event["event"] == kind]


def messages(run_dir):
    return "\n".join(event["text"] for event in events(run_dir, "message"))


@pytest.fixture(scope="module")
def encoded(corpus, tmp_path_factory):
    config = settings(corpus, tmp_path_factory.mktemp("runs") / "run", max_steps=1)
    return trained(config)


def stream(encoded, prefetch_updates=0, batches_per_update=1, rank=0, world_size=1):
    config, tokenizers, data = encoded
    trainer = dataclasses.replace(config.trainer, prefetch_updates=prefetch_updates)
    config = dataclasses.replace(config, trainer=trainer)
    return BatchStream(data, tokenizers, config, batches_per_update, rank, world_size)


def same_batches(a, b):
    return all(x.pairs == y.pairs and torch.equal(x.source, y.source) and x.dropout_seed == y.dropout_seed
               for x, y in zip(a.batches, b.batches, strict=True))  # fmt: skip


@pytest.mark.parametrize("ahead", [1, 3])
def test_batches_prepared_ahead_are_the_same_and_none_is_lost(encoded, ahead):
    plain, prepared = stream(encoded), stream(encoded, prefetch_updates=ahead)
    for _ in range(40):  # over several epochs
        one, other = plain.next_window(), prepared.next_window()
        assert same_batches(one, other)
        assert (plain.epoch, plain.next_batch) == (prepared.epoch, prepared.next_batch) == (one.epoch, one.next_batch)
    assert plain.epoch > 1
    resumed = stream(encoded, prefetch_updates=ahead)
    resumed.next_window()
    resumed.seek(prepared.epoch, prepared.next_batch, prepared.update)
    assert same_batches(resumed.next_window(), plain.next_window())
    for opened in (prepared, resumed):
        opened.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("batches")]


def test_sentences_are_cut_anew_each_epoch_and_the_same_on_resuming(encoded):
    config, tokenizers, data = encoded
    config = dataclasses.replace(config, tokenizer=dataclasses.replace(config.tokenizer, unigram_alpha=0.02))
    config.data.strip_final_stop_probability = 0.0

    def sampled(prefetch_updates):
        trainer = dataclasses.replace(config.trainer, prefetch_updates=prefetch_updates)
        return BatchStream(data, tokenizers, dataclasses.replace(config, trainer=trainer), 1)

    plain, ahead = sampled(0), sampled(2)
    cuts = [set(), set()]
    for _ in range(25):
        window = plain.next_window()
        assert same_batches(window, ahead.next_window())
        for batch in window.batches:
            ids = batch.source.split(list(batch.source_layout.lengths))
            for pair, sentence in zip(batch.pairs, ids, strict=True):
                assert tokenizers.source.decode(sentence.tolist()) == data.texts(pair)[0]
                cuts[min(plain.epoch, 1)].add((pair, tuple(sentence.tolist())))
    ahead.close()
    assert len(cuts[0] & cuts[1]) < 0.5 * len(cuts[1])


def test_only_a_gpu_has_batches_prepared_ahead_by_default(encoded):
    config, tokenizers, data = encoded
    assert BatchStream(data, tokenizers, config, 1).prefetch_updates == 0
    assert BatchStream(data, tokenizers, config, 1, on_gpu=True).prefetch_updates == 2


def test_an_error_in_the_thread_reaches_the_training(encoded, monkeypatch):
    prepared = stream(encoded, prefetch_updates=2)
    monkeypatch.setattr(prepared, "batch", lambda epoch, index, pairs: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        prepared.next_window()
    prepared.close()


@pytest.mark.parametrize("world_size", [2, 3])
def test_ranks_get_disjoint_shares_that_make_up_each_update(encoded, world_size):
    whole = stream(encoded, batches_per_update=4)
    ranks = [stream(encoded, batches_per_update=4, rank=r, world_size=world_size) for r in range(world_size)]
    for _ in range(20):
        window, shares = whole.next_window(), [rank.next_window() for rank in ranks]
        assert sorted(b.pairs for share in shares for b in share.batches) == sorted(b.pairs for b in window.batches)
        assert {(share.epoch, share.next_batch) for share in shares} == {(window.epoch, window.next_batch)}


def test_dropout_masks_follow_the_place_not_what_ran_before(corpus, tmp_path):
    first, second = settings(corpus, tmp_path / "a", max_steps=3), settings(corpus, tmp_path / "b", max_steps=3)
    for config in (first, second):
        config.model.dropout = 0.3
    train(first, [])
    torch.manual_seed(99)
    torch.rand(1000)
    train(second, [])
    assert_same(final_tensors(tmp_path / "a"), final_tensors(tmp_path / "b"))


def test_a_saved_configuration_reproduces_the_run_to_the_bit(corpus, tmp_path):
    train(settings(corpus, tmp_path / "first", ema_decay=0.9), ["mt", "train", "x=1"])
    again = from_mapping(TrainConfig, yaml.safe_load((tmp_path / "first" / "config.yaml").read_text()))
    train(dataclasses.replace(again, run_dir=str(tmp_path / "again")), [])
    assert_same(final_tensors(tmp_path / "first"), final_tensors(tmp_path / "again"))
    record = json.loads((tmp_path / "first" / "versions.json").read_text())
    assert record["command"] == ["mt", "train", "x=1"] and set(record["corpora"]) == {"train", "valid"}
    assert record["corpora"] == json.loads((tmp_path / "again" / "versions.json").read_text())["corpora"]
    assert {"mt", "git_commit", "torch", "python"} <= record.keys()


def test_another_batch_size_begins_the_next_epoch_and_says_so(corpus, tmp_path):
    config = settings(corpus, tmp_path / "run")
    train_until(config, 4)
    before = folder.read_state(folder.pointed(tmp_path / "run", "last"))["progress"]
    assert before["epoch"] == 0 and before["next_batch"] > 0
    config.trainer.batch_tokens = 90
    config.trainer.max_steps = 5
    train(config, [])
    after = folder.read_state(folder.pointed(tmp_path / "run", "last"))["progress"]
    assert (after["epoch"], after["next_batch"]) == (1, 1)
    text = messages(tmp_path / "run")
    assert "trainer.batch_tokens: 60 -> 90" in text and "the rest of epoch 1 is left out, epoch 2 begins" in text


def test_changed_settings_are_applied_and_told(corpus, tmp_path):
    config = settings(corpus, tmp_path / "run")
    train_until(config, 4)
    config.optim.lr = 1e-4
    config.optim.schedule = "constant"
    train(config, [])
    assert "optim.lr: 0.01 -> 0.0001" in messages(tmp_path / "run")
    assert events(tmp_path / "run", "train")[-1]["learning_rate"] == pytest.approx(1e-4)
    assert folder.load_config(tmp_path / "run").optim.lr == 1e-4


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"optim": {"optimizer": "muon"}}, "optim.optimizer=muon"),
        ({"trainer": {"seed": 2}}, "trainer.seed=2"),
        ({"trainer": {"ema_decay": 0.9}}, "trainer.ema_decay=0.9"),
        ({"model": {"d_ff": 64}}, "model.d_ff=64"),
        ({"init_from": "runs/other"}, "init_from=runs/other"),
    ],
)
def test_what_cannot_change_is_refused_by_name(corpus, tmp_path, change, named):
    config = settings(corpus, tmp_path / "run")
    train_until(config, 2)
    before = final_tensors(tmp_path / "run")
    for room, values in change.items():
        if room == "init_from":
            config.init_from = values
        else:
            setattr(config, room, dataclasses.replace(getattr(config, room), **values))
    with pytest.raises(ValueError, match=f"{named}: the run in .* was begun with .*init_from"):
        train(config, [])
    assert_same(before, final_tensors(tmp_path / "run"))


def test_a_corpus_that_changed_meanwhile_is_refused(corpus, tmp_path):
    text = (corpus / "train.tsv").read_text(encoding="utf-8")
    own = tmp_path / "train.tsv"
    own.write_text(text, encoding="utf-8")
    config = settings(corpus, tmp_path / "run")
    config.data.train["main"].path = str(own)
    train_until(config, 2)
    own.write_text(text.replace("tea", "rice"), encoding="utf-8")
    with pytest.raises(ValueError, match="data.train: the pairs differ from those that .* restore the files"):
        train(config, [])
    own.write_text(text, encoding="utf-8")
    assert train(config, []).finished


def test_a_corpus_that_was_moved_meanwhile_is_found_at_its_new_place(corpus, tmp_path):
    config = settings(corpus, tmp_path / "run")
    train_until(config, 2)
    for split, corpora in (("train", config.data.train), ("valid", config.data.valid)):
        corpora["main"].path = str(shutil.copy(corpus / f"{split}.tsv", tmp_path / f"moved_{split}.tsv"))
    with pytest.raises(ValueError, match=r"data.valid.main.path=None: the run in .* was begun with .*valid.tsv"):
        train(dataclasses.replace(config, data=dataclasses.replace(config.data, valid={})), [])
    assert train(config, []).finished
    assert f"-> {tmp_path}/moved_train.tsv" in messages(tmp_path / "run")
    assert folder.load_config(tmp_path / "run").data.train["main"].path == f"{tmp_path}/moved_train.tsv"


@pytest.mark.slow
def test_the_limit_of_a_session_saves_and_the_same_command_goes_on(corpus, tmp_path):
    config = settings(corpus, tmp_path / "run", max_steps=60, max_session_minutes=0.005)
    sessions = 0
    while True:
        result = train(config, [])
        sessions += 1
        if result.finished:
            break
        assert result.stopped_by == "max_session_minutes"
    assert sessions > 1
    train(settings(corpus, tmp_path / "straight", max_steps=60), [])
    assert_same(final_tensors(tmp_path / "run"), final_tensors(tmp_path / "straight"))


def test_a_finished_run_goes_on_when_a_limit_is_raised(corpus, tmp_path):
    train(settings(corpus, tmp_path / "run", max_steps=6), [])
    result = train(settings(corpus, tmp_path / "run", max_steps=12), [])
    assert result.finished and result.steps == 12
    train(settings(corpus, tmp_path / "straight", max_steps=12), [])
    assert_same(final_tensors(tmp_path / "run"), final_tensors(tmp_path / "straight"))


def test_a_kill_before_the_last_validation_leaves_it_to_the_next_session(corpus, tmp_path):
    config = settings(corpus, tmp_path / "run", max_steps=5, validate_every_steps=100, save_every_steps=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mt.training.trainer.validate", lambda *arguments: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            train(config, [])
    assert folder.read_state(folder.pointed(tmp_path / "run", "last"))["step"] == 5
    result = train(config, [])
    assert result.finished and result.metrics["loss"] > 0


def test_a_damaged_newest_checkpoint_is_passed_over_and_the_best_stays_known(corpus, tmp_path):
    config = settings(corpus, tmp_path / "run", validate_every_steps=3, keep_last_checkpoints=3)
    train_until(config, 10)
    newest = folder.pointed(tmp_path / "run", "last") / "model.safetensors"
    newest.write_bytes(newest.read_bytes()[:-100])
    with pytest.warns(UserWarning, match="step_00000010.*trying the checkpoint before it"):
        train(config, [])
    train(settings(corpus, tmp_path / "straight", validate_every_steps=3), [])
    assert_same(final_tensors(tmp_path / "run"), final_tensors(tmp_path / "straight"))
    assert folder.pointed(tmp_path / "run", "best").name == folder.pointed(tmp_path / "straight", "best").name


def test_saves_between_validations(corpus, tmp_path):
    train(settings(corpus, tmp_path / "run", save_every_steps=4, validate_every_steps=6, keep_last_checkpoints=9), [])
    assert [event["step"] for event in events(tmp_path / "run", "save")] == [4, 6, 8, 12]
    train(settings(corpus, tmp_path / "straight"), [])
    assert_same(final_tensors(tmp_path / "run"), final_tensors(tmp_path / "straight"))


def test_a_current_folder_that_cannot_be_written_is_fine(corpus, tmp_path, monkeypatch):
    (tmp_path / "start").mkdir()
    (tmp_path / "start" / "data").write_text("a file where the cache would go")
    monkeypatch.chdir(tmp_path / "start")
    config = settings(corpus, tmp_path / "run", max_steps=2)
    config.data.cache_dir = None
    train_until(config, 1)
    assert train(config, []).finished
    assert list((tmp_path / "run" / "cache").iterdir()) and [p.name for p in (tmp_path / "start").iterdir()] == ["data"]


def test_no_corpus_is_refused_before_anything_is_made(corpus, tmp_path):
    config = settings(corpus, tmp_path / "run")
    config.data.train = {}
    with pytest.raises(ValueError, match="data.train: no corpus given"):
        train(config, [])
    assert not (tmp_path / "run").exists()


def test_patience_without_validations_is_refused(corpus, tmp_path):
    config = settings(corpus, tmp_path / "run", early_stopping_patience=3)
    config.data.valid = {}
    with pytest.raises(ValueError, match="early_stopping_patience=3: has no effect without data.valid"):
        train(config, [])
    assert not (tmp_path / "run").exists()


def test_a_row_of_bad_gradients_does_not_fill_the_log(corpus, tmp_path):
    config = settings(corpus, tmp_path / "run", max_skipped_steps=40)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mt.training.trainer.clip_gradients", lambda model, largest: torch.tensor(float("nan")))
        with pytest.raises(ValueError, match="in 40 updates in a row, the last at update 1, epoch .* pairs,"):
            train(config, [])
    assert messages(tmp_path / "run").count("gradients are not finite") == 7  # 1, 2, 3, 4, 8, 16, 32


@pytest.mark.parametrize("below", ["", "a/b"])
def test_a_folder_that_cannot_be_made_is_named(corpus, tmp_path, below):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="run_dir=.*/file.*: cannot be created .*: choose another run_dir"):
        train(settings(corpus, tmp_path / "file" / below), [])


def test_a_second_process_is_refused(corpus, tmp_path):
    config = settings(corpus, tmp_path / "run")
    with locked(tmp_path / "run"):
        with pytest.raises(ValueError, match="run_dir=.*: another process is training into it"):
            train(config, [])
    assert train(config, []).finished


@pytest.mark.parametrize("at", ["tokenizer", "versions.json", ".tmp-config.yaml"])
def test_a_kill_while_the_run_is_made_leaves_a_folder_that_can_be_used(corpus, tmp_path, at):
    config = settings(corpus, tmp_path / "run", max_steps=2)
    write, order = durable.write_new, {"tokenizer": "versions.json", "versions.json": "config.yaml"}
    with pytest.MonkeyPatch.context() as patch:

        def killed(file, content):
            if at == ".tmp-config.yaml" and "config.yaml" in file.name:
                write(file, content[:10])
                raise KeyboardInterrupt
            if order.get(at, "none") in file.name:
                raise KeyboardInterrupt
            write(file, content)

        patch.setattr(durable, "write_new", killed)
        with pytest.raises(KeyboardInterrupt):
            train(config, [])
    assert (tmp_path / "run" / at).exists() and not folder.is_run(tmp_path / "run")
    assert train(config, []).finished


def test_a_finished_run_takes_no_settings_that_change_nothing(corpus, tmp_path):
    config = settings(corpus, tmp_path / "run", max_steps=2)
    train(config, [])
    stored = (tmp_path / "run" / "config.yaml").read_bytes()
    for change, message in (
        ({"optim": dataclasses.replace(config.optim, lr=0.5)}, "is finished, and optim.lr: 0.01 -> 0.5 would change"),
        ({"model": dataclasses.replace(config.model, d_ff=64)}, "model.d_ff=64: the run in"),
    ):
        with pytest.raises(ValueError, match=message):
            train(dataclasses.replace(config, **change), [])
    lower = dataclasses.replace(config, trainer=dataclasses.replace(config.trainer, max_steps=1))
    assert train(lower, []).steps == 2
    assert (tmp_path / "run" / "config.yaml").read_bytes() == stored  # of the updates that were made


def test_a_checkpoint_of_another_run_is_refused(corpus, tmp_path):
    config = settings(corpus, tmp_path / "run", max_steps=4)
    train_until(config, 2)
    train(settings(corpus, tmp_path / "other", max_steps=3, seed=2), [])
    copy = tmp_path / "run" / "checkpoints" / "step_00000003"
    shutil.copytree(tmp_path / "other" / "checkpoints" / "step_00000003", copy)
    with pytest.raises(ValueError, match="step_00000003: is of another run than .*remove it"):
        train(config, [])
    copy.rename(copy.with_name("step_00000099"))
    with pytest.warns(UserWarning, match="of update 3, which its folder's name is not"):
        assert train(config, []).finished


@pytest.mark.parametrize(
    ("key", "value"),
    [("progress", None), ("corpora", None), ("config", None), ("last_metrics", None),
     ("progress.step", "6"), ("progress.batches_per_update", 0), ("progress.next_batch", 10**6),
     ("progress.epoch", -1), ("progress.unknown", 1)],
)  # fmt: skip
def test_an_edited_state_is_damaged(corpus, tmp_path, key, value):
    config = settings(corpus, tmp_path / "run")
    train_until(config, 2)
    file = folder.pointed(tmp_path / "run", "last") / "state.json"
    state = json.loads(file.read_bytes())
    del state["sha256"]
    room, _, name = key.partition(".")
    if name:
        state[room][name] = value
    else:
        del state[room]
    file.write_text(json.dumps(state), encoding="utf-8")
    with pytest.raises(ValueError) as error:
        train(config, [])
    assert "\n" not in str(error.value)


def test_lost_checkpoints_are_told_and_another_corpus_is_refused(corpus, tmp_path):
    config = settings(corpus, tmp_path / "run", max_steps=2)
    config.data.cleaning.drop_held_out = "none"  # else other validation text makes another training corpus
    own = tmp_path / "valid.tsv"
    shutil.copy(corpus / "valid.tsv", own)
    config.data.valid["main"].path = str(own)
    config.data.cleaning.drop_held_out = "none"  # the training pairs stay the same
    train(config, [])
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    train(config, [])
    assert "has no checkpoint (yet): its training begins at update 1" in messages(tmp_path / "run")
    own.write_text("tea\tTEA\n", encoding="utf-8")
    longer = dataclasses.replace(config, trainer=dataclasses.replace(config.trainer, max_steps=3))
    with pytest.raises(ValueError, match="data.valid: the pairs differ"):
        train(longer, [])


def test_weights_that_are_no_numbers_are_never_saved(corpus, tmp_path):
    config = settings(corpus, tmp_path / "run", save_every_steps=1)
    with pytest.MonkeyPatch.context() as patch:
        step = Optimizer.step

        def spoil(self, factor, skip):
            step(self, factor, skip)
            if len(folder.list_checkpoints(tmp_path / "run")) == 2:
                next(iter(self.parts[0].state)).data.fill_(float("nan"))

        patch.setattr(Optimizer, "step", spoil)
        with pytest.raises(ValueError, match="holds NaN or infinity after update 3: lower optim.lr"):
            train(config, [])
    last = folder.pointed(tmp_path / "run", "last")
    assert last.name == "step_00000002" and find_not_finite(folder.read_weights(last)) is None
    assert train(config, []).finished  # the fault gone, the same command goes on


def test_fine_tuning_takes_the_tokenizer_with_it_and_names_another_shape(corpus, tmp_path):
    train(settings(corpus, tmp_path / "parent", max_steps=2), [])
    tuned = settings(corpus, tmp_path / "tuned", max_steps=4)
    tuned.init_from = str(tmp_path / "parent")
    tuned.tokenizer.vocabulary_size = 3000
    tuned.data.source_language = "nl"
    wide = dataclasses.replace(tuned, model=dataclasses.replace(tuned.model, d_ff=64))
    with pytest.raises(ValueError, match="its model has another shape; set model.d_ff=32"):
        train(wide, [])
    train_until(tuned, 2)
    assert "taken from init_from: tokenizer.vocabulary_size: 3000 -> 350" in messages(tmp_path / "tuned")
    assert "warning: data.source_language=nl, but init_from's is en: set it so where it is the same" in messages(
        tmp_path / "tuned"
    )
    assert folder.load_config(tmp_path / "tuned").tokenizer.vocabulary_size == 350
    shutil.rmtree(tmp_path / "parent")
    assert train(tuned, []).finished
    tuned.trainer.max_minutes = 1e-4
    assert train(tuned, []).steps == 4
    assert "nothing is left to do: trainer.max_steps is used up; raise it to go on" in messages(tmp_path / "tuned")


def test_a_reader_that_went_away_does_not_end_the_training(corpus, tmp_path, monkeypatch):
    class Closed:
        def write(self, text):
            raise BrokenPipeError

        flush = isatty = lambda self: None

    monkeypatch.setattr(sys, "stderr", Closed())
    assert train(settings(corpus, tmp_path / "run", max_steps=3), []).finished
    assert len(events(tmp_path / "run", "train")) == 3
