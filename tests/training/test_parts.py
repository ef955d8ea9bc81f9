"""A streamed corpus: each rank reads its strands alone, any number of ranks sees the same batches, nothing is lost."""

import dataclasses
import json
import warnings

import pytest
import torch

from mt import checkpoint as folder
from mt.config import CorpusConfig
from mt.data import streamed
from mt.data.readers import dataset as reader
from mt.data.streamed import StreamedCorpus
from mt.training.distributed import Group
from mt.training.parts import PartStream, check_streaming
from mt.training.run import train
from tests.training.small_runs import assert_same, final_tensors, settings, train_until


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    monkeypatch.setattr(streamed, "PART_ROWS", 20)
    monkeypatch.setattr(reader, "_ROWS", 10)


@pytest.fixture(scope="module")
def rows(corpus, tmp_path_factory):
    """The training corpus as JSON Lines in four files."""
    place = tmp_path_factory.mktemp("rows")
    pairs = [line.split("\t") for line in (corpus / "train.tsv").read_text(encoding="utf-8").splitlines()]
    for number in range(4):
        lines = [json.dumps({"en": source, "de": target}) for source, target in pairs[number::4]]
        (place / f"{number}.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return place


def streamed_settings(corpus, rows, run_dir, **trainer):
    config = settings(corpus, run_dir, **trainer)
    config.data.train = {"main": CorpusConfig(dataset=str(rows), streaming=True)}
    return config


@pytest.fixture(scope="module")
def opened(corpus, rows, tmp_path_factory):
    """Settings, and the tokenizers of a run of one update."""
    config = streamed_settings(corpus, rows, tmp_path_factory.mktemp("runs") / "run", max_steps=1)
    train(config, [])
    return config, folder.load_tokenizers(folder.Path(config.run_dir))


def stream(opened, place, batches_per_update=1, rank=0, world_size=1, prefetch_updates=0):
    config, tokenizers = opened
    trainer = dataclasses.replace(config.trainer, prefetch_updates=prefetch_updates)
    config = dataclasses.replace(config, trainer=trainer)
    return PartStream(
        StreamedCorpus(config.data, tokenizers, place), tokenizers, config, batches_per_update, rank, world_size
    )


def same(a, b):
    return len(a) == len(b) and all(
        torch.equal(x.source, y.source) and torch.equal(x.target_output, y.target_output)
        and x.dropout_seed == y.dropout_seed
        for x, y in zip(a, b, strict=True)
    )  # fmt: skip


@pytest.mark.parametrize("ahead", [0, 2])
def test_from_any_saved_place_the_batches_are_those_that_would_have_come(opened, tmp_path, ahead):
    whole = stream(opened, tmp_path / "a", 2)
    saved, windows = [], []
    for _ in range(40):
        saved.append(whole.saved(Group()))
        windows.append(whole.next_window())
    whole.close()
    assert max(place["round"] for place in saved[-1]) >= 1  # over the end of a pass
    for start in (1, 17, 33):
        other = stream(opened, tmp_path / f"b{start}", 2, prefetch_updates=ahead)
        other.restore(json.loads(json.dumps(saved[start])))
        other.seek(0, start, start)
        for number in range(start, start + 6):
            window = other.next_window()
            assert same(window.batches, windows[number].batches) and window.next_batch == number + 1
        assert other.saved(Group()) == saved[start + 6]
        other.close()


def test_ranks_read_their_own_strands_and_make_up_the_same_updates(opened, tmp_path):
    whole = stream(opened, tmp_path / "whole", 4)
    ranks = [stream(opened, tmp_path / f"rank{rank}", 4, rank, 3) for rank in range(3)]
    for _ in range(12):
        window, shares = whole.next_window(), [rank.next_window() for rank in ranks]
        for rank, share in enumerate(shares):
            assert same(share.batches, window.batches[rank::3])
    for one in (whole, *ranks):
        one.close()
    assert sorted(path.name for path in (tmp_path / "rank0").iterdir()) == ["0-of-4", "3-of-4"]
    assert sorted(path.name for path in (tmp_path / "rank2").iterdir()) == ["2-of-4"]


def test_only_a_few_parts_are_on_disk(opened, tmp_path):
    one = stream(opened, tmp_path, 1)
    for _ in range(60):
        window = one.next_window()
        assert len(list((tmp_path / "0-of-1").iterdir())) <= 4  # before, present, next; and one being removed
    one.close()
    assert window.places[0].part > 6


def test_a_run_that_was_stopped_goes_on_to_the_bit(corpus, rows, tmp_path):
    limits = {"max_steps": 16, "accumulate_batches": 2}
    train(streamed_settings(corpus, rows, tmp_path / "whole", **limits), [])
    config = streamed_settings(corpus, rows, tmp_path / "stopped", **limits)
    train_until(config, 5)
    assert (tmp_path / "stopped" / "cache" / "stream").is_dir()
    assert train(config, []).finished
    assert_same(final_tensors(tmp_path / "whole"), final_tensors(tmp_path / "stopped"))
    assert not (tmp_path / "stopped" / "cache" / "stream").exists()
    told = (tmp_path / "whole" / "log.jsonl").read_text(encoding="utf-8")
    assert "part 1 (pass 1) of strand 2 of the stream: " in told


def test_what_needs_the_whole_corpus_is_refused(corpus, rows, tmp_path):
    config = streamed_settings(corpus, rows, tmp_path / "run")
    check_streaming(config)
    config.trainer.max_epochs = 2
    with pytest.raises(ValueError, match="trainer.max_epochs=2: needs the whole corpus, which data.train.main"):
        train(config, [])
    config.trainer.max_epochs = None
    config.data.train["other"] = CorpusConfig(path="x.tsv")
    with pytest.raises(ValueError, match="must be the only corpus"):
        train(config, [])


def test_other_strands_on_resuming_are_refused(corpus, rows, tmp_path):
    config = streamed_settings(corpus, rows, tmp_path / "run", max_steps=8)
    train_until(config, 3)
    config.trainer.accumulate_batches = 2
    with warnings.catch_warnings(), pytest.raises(ValueError, match="stays cut into the 1 strands"):
        warnings.simplefilter("ignore")
        train(config, [])
