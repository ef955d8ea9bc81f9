"""What holds when torchrun starts the ranks again: whose folder it is, which stores may be used, which pairs follow."""

import threading
import time

import pytest

from mt.data.encoded import encode_corpus
from mt.tokenizer import TokenizerPair, train_tokenizers
from mt.training.distributed import joined
from mt.training.resume import locked
from mt.training.run import train
from mt.training.stream import BatchStream
from tests.training.small_runs import made_corpus, settings


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return made_corpus(tmp_path_factory, {"train": 150, "valid": 9})


@pytest.fixture(scope="module")
def tokenizers(corpus) -> TokenizerPair:
    lines = (corpus / "train.tsv").read_text(encoding="utf-8").splitlines()
    return train_tokenizers((tuple(line.split("\t")) for line in lines), settings(corpus, corpus / "run").tokenizer, 1)


@pytest.mark.parametrize("numbers", [[2, 1], [1, 3, 2], [4, 2, 1, 5]])
def test_every_pair_once_an_epoch_whatever_the_numbers_of_ranks(corpus, tokenizers, numbers):
    """Each number of ranks makes some updates, saves, makes another that is lost, and others go on from the save."""
    config = settings(corpus, corpus / "run")
    data, seen = encode_corpus(config.data.train, config.data, tokenizers), []
    epoch, next_batch, at = 0, 0, 0
    while epoch == 0:
        world_size = numbers[at % len(numbers)]
        ranks = [BatchStream(data, tokenizers, config, 4, rank, world_size) for rank in range(world_size)]
        for rank in ranks:
            rank.seek(epoch, next_batch, at)
        windows = [rank.next_window() for rank in ranks]
        assert len({(window.epoch, window.next_batch) for window in windows}) == 1
        seen += [pair for window in windows for batch in window.batches for pair in batch.pairs]
        epoch, next_batch, at = windows[0].epoch, windows[0].next_batch, at + 1
        if epoch == 0:
            for rank in ranks:
                rank.next_window()  # of an update whose ranks were lost before it was saved
    assert at > 2 and sorted(seen) == list(range(len(data)))


def test_a_folder_is_waited_for_while_ranks_that_were_cut_off_still_hold_it(tmp_path):
    held = threading.Event()

    def hold() -> None:
        with locked(tmp_path / "run"):
            held.set()
            time.sleep(0.3)

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait()
    with pytest.raises(ValueError, match="another process is training into it"), locked(tmp_path / "run", 0.05):
        pass
    with locked(tmp_path / "run", 30):
        assert not holder.is_alive() or holder.join(5) is None
    holder.join()


def test_a_session_limit_is_refused_where_another_session_would_begin(corpus, tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHELASTIC_MAX_RESTARTS", "3")
    config = settings(corpus, tmp_path / "run", max_session_minutes=1.0)
    with pytest.raises(ValueError, match="max_session_minutes=1.0: torchrun --max-restarts=3 would begin another"):
        train(config, [])
    assert not (tmp_path / "run").exists()


def test_a_store_that_keeps_old_addresses_is_refused_on_several_machines(monkeypatch):
    torchrun = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "nowhere", "MASTER_PORT": "1"}
    torchrun |= {"TORCHELASTIC_RUN_ID": "x", "TORCHELASTIC_MAX_RESTARTS": "3", "GROUP_WORLD_SIZE": "2"}
    for name, value in (torchrun | {"TORCHELASTIC_USE_AGENT_STORE": "True"}).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match="--max-restarts=3 on 2 machines: .* TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1"):
        with joined():
            pass
