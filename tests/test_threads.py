import threading

import torch

from mt.threads import threads_of_one_core


def test_each_thread_keeps_one_core_whatever_is_set_elsewhere():
    before = torch.get_num_threads()
    meet = threading.Barrier(2, timeout=20)

    def cores(_: int) -> int:
        meet.wait()
        return torch.get_num_threads()

    pool = threads_of_one_core(2, "test")
    try:
        list(pool.map(lambda _: meet.wait(), range(2)))  # both have started, and done nothing with torch
        torch.set_num_threads(2)
        assert list(pool.map(cores, range(2))) == [1, 1]
        assert torch.get_num_threads() == 2
    finally:
        pool.shutdown()
        torch.set_num_threads(before)
