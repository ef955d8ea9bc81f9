"""Runs on several corpora: stages, tags, changed text, and the same batches after a stop."""

import dataclasses
import json
import sys
from collections import Counter

import numpy as np
import pytest

from mt import checkpoint as folder
from mt.__main__ import main
from mt.config import AugmentationConfig, CorpusConfig, StageConfig
from mt.data.encoded import encode_corpus
from mt.data.tags import training_tags
from mt.export.engine import load_engine
from mt.training.run import train
from mt.training.stream import BatchStream
from mt.training.validation import chosen_pairs
from mt.translation.evaluate import evaluate
from mt.translation.sampling import Sampling
from mt.translation.translator import load_translator
from tests.training.small_runs import WORDS, assert_same, final_tensors, settings, train_until, trained, write_corpus

EVERYTHING = AugmentationConfig(0.2, 0.2, 0.3, 0.3, 0.3, 0.5)


@pytest.fixture(scope="module")
def corpora(tmp_path_factory):
    """Three corpora, and validation."""
    place = tmp_path_factory.mktemp("corpora")
    write_corpus(place, 1, {"train": 60, "back": 200, "web": 30, "valid": 6}, ".")
    return place


def mixed(place, run_dir, **trainer):
    """Returns the settings of a run with weights, two stages, tags and all changes."""
    config = settings(place, run_dir, **trainer)
    for name, own in (("back", {"tags": "<back>", "weight": 3}), ("web", {"tags": "<back> <web>", "weight": 0})):
        config.data.train[name] = CorpusConfig(path=str(place / f"{name}.tsv"), **own)
    config.data.train["main"].weight = 2
    config.data.stages = {"web": StageConfig(5, {"web": 1, "main": 1}), "end": StageConfig(9, {"main": 1})}
    config.data.augmentation = EVERYTHING
    config.data.cleaning.drop_held_out = "none"
    return config


@pytest.fixture(scope="module")
def encoded(corpora, tmp_path_factory):
    config = mixed(corpora, tmp_path_factory.mktemp("runs") / "run", max_steps=1)
    return trained(config)


def stream(encoded, config=None, batches_per_update=2, rank=0, world_size=1, prefetch_updates=0):
    own, tokenizers, corpus = encoded
    config = config or own
    trainer = dataclasses.replace(config.trainer, prefetch_updates=prefetch_updates)
    config = dataclasses.replace(config, trainer=trainer)
    return BatchStream(corpus, tokenizers, config, batches_per_update, rank, world_size)


def content(window):
    return [(b.pairs, b.source.tolist(), b.target_output.tolist(), b.dropout_seed) for b in window.batches]


def by_corpus(encoded, windows):
    """Returns how many pairs of each corpus the windows have."""
    ends = np.cumsum(encoded[2].corpus_pairs)
    pairs = [pair for window in windows for batch in window.batches for pair in batch.pairs]
    return np.bincount(np.searchsorted(ends, pairs, side="right"), minlength=len(ends))


def test_each_stage_reads_its_corpora_from_its_update_on(encoded):
    own = stream(encoded)
    windows = [own.next_window() for _ in range(40)]
    assert encoded[2].corpus_pairs == [60, 200, 30]
    main, back, web = by_corpus(encoded, windows[:5])
    assert web == 0 and main > 0 and back > main
    main, back, web = by_corpus(encoded, windows[5:9])
    assert back == 0 and main > 0 and web > 0
    assert by_corpus(encoded, windows[9:])[1:].tolist() == [0, 0]
    assert [window.next_batch for window in windows[4:9:4]] == [0, 0]  # a stage begins with an epoch
    assert windows[4].epochs_done == windows[4].epoch == 1


@pytest.mark.parametrize("prefetch_updates", [0, 2])
def test_from_any_place_the_same_windows_follow(encoded, prefetch_updates):
    straight = stream(encoded)
    places, windows = [], []
    for _ in range(14):
        places.append((straight.epoch, straight.next_batch, straight.update))
        windows.append(content(straight.next_window()))
    for number, place in enumerate(places):
        resumed = stream(encoded, prefetch_updates=prefetch_updates)
        resumed.seek(*place)
        for later in range(number, min(number + 3, 14)):
            assert content(resumed.next_window()) == windows[later]
        resumed.close()


def test_two_ranks_share_each_update_of_every_stage(encoded):
    whole = stream(encoded, batches_per_update=4)
    ranks = [stream(encoded, batches_per_update=4, rank=rank, world_size=2) for rank in (0, 1)]
    for _ in range(12):
        window, shares = whole.next_window(), [rank.next_window() for rank in ranks]
        together = [batch for share in shares for batch in content(share)]
        assert sorted(together) == sorted(content(window))
        assert {(share.epoch, share.next_batch) for share in shares} == {(window.epoch, window.next_batch)}


def test_changes_differ_from_one_time_to_the_next(encoded):
    own = stream(encoded)
    own.seek(3, 0, 20)  # main alone, which is gone through several times
    seen = Counter()
    for _ in range(60):
        for batch in own.next_window().batches:
            sources = batch.source.split(list(batch.source_layout.lengths))
            seen.update((pair, tuple(ids.tolist())) for pair, ids in zip(batch.pairs, sources, strict=True))
    assert len(seen) > 3 * 60


def test_every_pair_has_the_tags_of_its_corpus_in_front_and_no_target_has_any(encoded):
    config, tokenizers, corpus = encoded
    assert training_tags(config.data) == ["<back>", "<web>"] == list(tokenizers.source.tags)
    back, web = tokenizers.source.tags.values()
    before = [[], [back], [back, web]]
    own = stream(encoded)
    ends = np.cumsum(corpus.corpus_pairs)
    seen = set()
    for _ in range(9):
        for batch in own.next_window().batches:
            assert not set(batch.target_input.tolist()) & {back, web}
            sources = batch.source.split(list(batch.source_layout.lengths))
            for pair, ids in zip(batch.pairs, sources, strict=True):
                number = int(np.searchsorted(ends, pair, side="right"))
                tags = before[number]
                assert ids[: len(tags)].tolist() == tags and not set(ids[len(tags) :].tolist()) & {back, web}
                seen.add(number)
    assert seen == {0, 1, 2}


def test_merging_keeps_each_pair_once_and_the_tokens_about_the_same(encoded):
    config, tokenizers, corpus = encoded
    data = dataclasses.replace(
        config.data, augmentation=AugmentationConfig(merging_probability=0.4), strip_final_stop_probability=0.0
    )
    data.train = {name: dataclasses.replace(own, weight=None) for name, own in config.data.train.items()}
    data.stages = {}
    own = stream(encoded, dataclasses.replace(config, data=data))
    words, sentences = Counter(), 0
    while own.epoch == 0:
        for batch in own.next_window().batches:
            sentences += len(batch.pairs)
            for ids in batch.source.split(list(batch.source_layout.lengths)):
                words.update(tokenizers.source.decode(ids.tolist()).split())
            longer = max(batch.source_tokens, batch.target_tokens)
            assert longer <= config.trainer.batch_tokens * 1.1
    assert words == Counter(word for pair in range(len(corpus)) for word in corpus.texts(pair)[0].split())
    assert 0.6 * len(corpus) < sentences < 0.95 * len(corpus)


def test_what_would_become_too_long_stays(encoded):
    config, _, corpus = encoded
    data = dataclasses.replace(
        config.data, augmentation=AugmentationConfig(uppercase_probability=1), strip_final_stop_probability=0.0
    )
    data.cleaning = dataclasses.replace(data.cleaning, max_tokens=int(np.median(corpus.target_lengths)))
    plain = dataclasses.replace(data, augmentation=AugmentationConfig())
    changed, before = (stream(encoded, dataclasses.replace(config, data=one)) for one in (data, plain))
    kept = total = 0
    for _ in range(5):
        pairs = zip(changed.next_window().batches, before.next_window().batches, strict=True)
        for batch, original in pairs:
            known = set(map(tuple, (i.tolist() for i in original.source.split(list(original.source_layout.lengths)))))
            sources = [tuple(i.tolist()) for i in batch.source.split(list(batch.source_layout.lengths))]
            kept, total = kept + sum(ids in known for ids in sources), total + len(sources)
    assert 0 < kept < total


@pytest.mark.parametrize("extra", [{}, {"accumulate_batches": 2, "prefetch_updates": 2}])
def test_a_mixed_run_that_was_stopped_in_each_stage_ends_the_same_to_the_bit(corpora, tmp_path, extra):
    train(mixed(corpora, tmp_path / "straight", **extra), [])
    for stop_at in (3, 5, 7):  # in a stage, where one ends, in the next
        train_until(mixed(corpora, tmp_path / "stopped", **extra), stop_at)
    assert train(mixed(corpora, tmp_path / "stopped", **extra), []).finished
    assert_same(final_tensors(tmp_path / "straight"), final_tensors(tmp_path / "stopped"))
    log = (tmp_path / "straight" / "log.jsonl").read_text(encoding="utf-8")
    assert "main 40.0% (each of 60 pairs" in log and "from update 10, stage end" in log


def test_a_misspelt_corpus_of_a_stage_is_named_before_anything_is_written(corpora, tmp_path):
    config = mixed(corpora, tmp_path / "run")
    config.data.stages["end"] = StageConfig(9, {"webb": 1})
    with pytest.raises(
        ValueError, match="data.stages.end.weights.webb: data.train has no corpus of this name; did you"
    ):
        train(config, [])
    assert not (tmp_path / "run").exists() or not list((tmp_path / "run").glob("config.yaml"))


def test_a_corpus_of_a_finer_cleaning_drops_its_own_pairs_alone(corpora, tmp_path):
    config = settings(corpora, tmp_path / "run", max_steps=1)
    config.data.cleaning.drop_held_out = "none"
    config.data.train["web"] = CorpusConfig(path=str(corpora / "back.tsv"), cleaning={"max_characters": 20})
    train(config, [])
    corpus = encode_corpus(config.data.train, config.data, folder.load_tokenizers(tmp_path / "run"))
    main, web = corpus.corpus_pairs
    assert main == 60 and 0 < web < 200 and corpus.counts["too many source characters"] == 200 - web
    assert max(len(corpus.texts(pair)[0]) for pair in range(main, main + web)) <= 20
    config.data.train["web"].cleaning = {"max_character": 20}
    config = dataclasses.replace(config, run_dir=str(tmp_path / "other"))
    with pytest.raises(ValueError, match=r"^unknown setting data.train.web.cleaning.max_character; did you mean"):
        train(config, [])


def test_validation_takes_pairs_of_every_corpus():
    assert chosen_pairs([10, 5], 100).tolist() == list(range(15))
    assert chosen_pairs([100], 3).tolist() == [0, 1, 2]
    assert chosen_pairs([10, 5], 6).tolist() == [0, 1, 2, 3, 10, 11]
    assert chosen_pairs([9, 0, 1], 2).tolist() == [0, 9]


@pytest.fixture(scope="module")
def two_targets(tmp_path_factory):
    """A run that writes the words of the source in capitals behind one tag, and as they are behind another."""
    place = tmp_path_factory.mktemp("two_targets")
    generator = np.random.default_rng(0)
    for name in ("up", "low"):
        lines = []
        for _ in range(300):
            words = " ".join(WORDS[i] for i in generator.integers(0, 6, generator.integers(1, 4)))
            lines.append(f"{words}\t{words.upper() if name == 'up' else words}\n")
        (place / f"{name}.tsv").write_text("".join(lines), encoding="utf-8")
        (place / f"{name}.valid.tsv").write_text("".join(lines[:6]), encoding="utf-8")
    config = settings(
        place, place / "run", max_steps=150, batch_tokens=400, validate_every_steps=150, log_every_steps=150
    )
    tags = {name: f"<2{name}>" for name in ("up", "low")}
    config.data.train = {name: CorpusConfig(path=str(place / f"{name}.tsv"), tags=tag) for name, tag in tags.items()}
    config.data.valid = {
        name: CorpusConfig(path=str(place / f"{name}.valid.tsv"), tags=tag, target_language="fr")
        for name, tag in tags.items()
    }
    config.data.test = config.data.valid
    config.data.cleaning.drop_held_out = "none"
    train(config, [])
    return place / "run"


TEXTS = ["tea rice", "red", "good red green"]


def test_a_model_of_two_target_languages_obeys_the_tag(two_targets):
    translator = load_translator(two_targets, "cpu")
    up, low = (translator.with_tags(tag).translate(TEXTS) for tag in ("<2up>", "<2low>"))
    assert all(text.isupper() for text in up) and all(text.islower() for text in low)
    validation = next(line for line in (two_targets / "log.jsonl").open() if '"chrf"' in line)
    assert json.loads(validation)["chrf"] > 40  # of both, each behind its tag
    drawn = translator.with_tags("<2up>").sample(TEXTS, 20, Sampling(temperature=3), seed=1)
    tags = set(translator.tokenizers.target.tags.values())
    assert tags and not any(tags & set(one.tokens) for found in drawn for one in found)
    with pytest.raises(ValueError, match="decode.tags=<2upp>: <2upp>: the tokenizer was trained without this tag; did"):
        translator.with_tags("<2upp>")


def test_test_sets_have_the_tags_of_their_corpora_or_those_given(two_targets, tmp_path):
    results = evaluate(two_targets, device="cpu", output_dir=tmp_path / "a")
    up, low = (results[name].translations for name in ("up", "low"))
    assert all(text.isupper() for text in up) and all(text.islower() for text in low)
    assert [results[name].record["decode"]["tags"] for name in ("up", "low")] == ["<2up>", "<2low>"]
    assert results["up"].target_language == "fr"
    given = evaluate(two_targets, device="cpu", output_dir=tmp_path / "b", tags="<2up>")
    assert given["low"].translations[0].isupper()


def test_another_engine_translates_behind_the_same_tags(two_targets):
    pytest.importorskip("ctranslate2")
    # greedily: a beam of CTranslate2 ends at other moments than ours
    decode = dataclasses.replace(folder.load_config(two_targets).decode, tags="<2up>", beam_size=1)
    ours = load_translator(two_targets, "cpu", decode=decode)
    theirs = load_engine(two_targets, "cpu", decode=decode)
    assert ours.translate(TEXTS) == theirs.translate(TEXTS)


def test_the_command_line_names_tags_and_warns_without(two_targets, monkeypatch, capsys):
    for options in (["--tags", "<2low>"], ["--decode", "tags=<2low>"], []):
        monkeypatch.setattr(sys, "argv", ["mt", "translate", str(two_targets), "--device", "cpu", *options, "tea rice"])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        assert ended.value.code == 0 and out.count("\n") == 1
        if options:
            assert out.islower() and "warning" not in err
    assert "this model was trained on nothing without tags, and none is given: --tags of <2up>, <2low>" in err
