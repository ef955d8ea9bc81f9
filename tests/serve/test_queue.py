"""The queue: who gets what, in which company, and what happens to those that went."""

import threading
import time
from concurrent.futures import CancelledError, ThreadPoolExecutor

import pytest

from mt.serve.queue import BatchQueue, Options
from mt.translation.lines import Translation

GREEDY, WIDE = Options(1), Options(4)


class Recording:
    """A search that answers with the text and its options, and tells what it was asked together."""

    def __init__(self, seconds=0.0):
        self.seconds, self.batches, self.threads = seconds, [], set()
        self.free = threading.Event()
        self.free.set()

    def __call__(self, texts, options):
        self.free.wait(10)
        self.batches.append(list(texts))
        self.threads.add(threading.get_ident())
        time.sleep(self.seconds)
        if "broken" in texts:
            raise RuntimeError("broke")
        return [[Translation(f"{text} by {options.beam_size}", 0.0, [], False, False)] for text in texts]


@pytest.fixture
def queue_of():
    made = []

    def make(search, most=8, wait_seconds=0.02):
        made.append(BatchQueue(search, most, wait_seconds))
        return made[-1]

    yield make
    for queue in made:
        queue.close()


def texts_of(found):
    return [translations[0].text for translations in found]


def wait_until(holds):
    end = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.001)


def test_each_gets_its_own(queue_of):
    search = Recording()
    queue = queue_of(search)

    def ask(number):
        options = WIDE if number % 3 else GREEDY
        texts = [f"{number}.{i}" for i in range(number % 5)]
        return texts_of(queue.ask().translate(texts, options)) == [f"{text} by {options.beam_size}" for text in texts]

    with ThreadPoolExecutor(50) as clients:
        assert all(clients.map(ask, range(400)))
    assert len(search.threads) == 1  # one for the model
    assert max(map(len, search.batches)) == 8 and sum(map(len, search.batches)) == sum(n % 5 for n in range(400))


def test_what_comes_together_is_translated_together(queue_of):
    search = Recording()
    queue = queue_of(search, most=50, wait_seconds=0.2)
    with ThreadPoolExecutor(10) as clients:
        list(clients.map(lambda n: queue.ask().translate([str(n)], GREEDY), range(10)))
    assert [sorted(batch) for batch in search.batches] == [[str(n) for n in range(10)]]


def test_a_long_text_does_not_hold_up_a_short_one(queue_of):
    search = Recording()
    queue = queue_of(search, most=4, wait_seconds=0.001)
    search.free.clear()
    with ThreadPoolExecutor(3) as clients:
        clients.submit(queue.ask().translate, ["first"], GREEDY)
        wait_until(lambda: queue.waiting == 0)
        clients.submit(queue.ask().translate, [f"long {n}" for n in range(20)], GREEDY)
        wait_until(lambda: queue.waiting == 20)
        clients.submit(queue.ask().translate, ["short"], GREEDY)
        wait_until(lambda: queue.waiting == 21)
        search.free.set()
    assert "short" in search.batches[1]


def test_options_are_never_mixed(queue_of):
    search = Recording()
    queue = queue_of(search)
    search.free.clear()
    with ThreadPoolExecutor(3) as clients:
        clients.submit(queue.ask().translate, ["first"], GREEDY)
        wait_until(lambda: queue.waiting == 0)
        found = [clients.submit(queue.ask().translate, ["same"], options) for options in (GREEDY, WIDE)]
        wait_until(lambda: queue.waiting == 2)
        search.free.set()
        assert [texts_of(each.result()) for each in found] == [["same by 1"], ["same by 4"]]


def test_who_went_is_not_translated(queue_of):
    search = Recording()
    queue = queue_of(search)
    search.free.clear()
    with ThreadPoolExecutor(3) as clients:
        first = clients.submit(queue.ask().translate, ["first"], GREEDY)
        wait_until(lambda: queue.waiting == 0)
        ticket = queue.ask()
        gone = clients.submit(ticket.translate, ["gone 1", "gone 2"], GREEDY)
        stays = clients.submit(queue.ask().translate, ["stays"], GREEDY)
        wait_until(lambda: queue.waiting == 3)
        ticket.cancel()
        with pytest.raises(CancelledError):
            gone.result(10)
        search.free.set()
        assert texts_of(first.result(10)) == ["first by 1"] and texts_of(stays.result(10)) == ["stays by 1"]
        with pytest.raises(CancelledError):  # nor may it come again
            ticket.translate(["more"], GREEDY)
    assert not any(text.startswith(("gone", "more")) for batch in search.batches for text in batch)


def test_an_error_reaches_those_who_asked_and_nobody_else(queue_of):
    queue = queue_of(Recording())
    with pytest.raises(RuntimeError, match="broke"):
        queue.ask().translate(["broken"], GREEDY)
    assert texts_of(queue.ask().translate(["whole"], GREEDY)) == ["whole by 1"]


def test_other_work_is_done_in_the_thread_of_the_model(queue_of):
    search = Recording()
    queue = queue_of(search)
    queue.ask().translate(["a"], GREEDY)
    assert {queue.ask().call(threading.get_ident)} == search.threads


def test_what_was_asked_before_the_end_is_answered():
    queue = BatchQueue(Recording(seconds=0.01), 2, 0.001)
    futures = queue.add([str(n) for n in range(10)], GREEDY)
    queue.close()
    assert [future.result(0)[0].text for future in futures] == [f"{n} by 1" for n in range(10)]
    with pytest.raises(RuntimeError, match="stopping"):
        queue.add(["late"], GREEDY)
