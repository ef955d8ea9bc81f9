"""Threads that have a core each.

A CPU's threads lose much when they share each small operation: they wait for one another after every one, and all of
the time where another program takes a core. Here each does work of its own.
"""

from concurrent.futures import ThreadPoolExecutor

import torch


def threads_of_one_core(count: int, name: str) -> ThreadPoolExecutor:
    """Returns `count` threads in each of which torch uses one core, whatever it uses in others now or later."""
    return ThreadPoolExecutor(count, name, initializer=_use_one_core)


def _use_one_core() -> None:
    # A thread's first parallel operation takes the number that was set last in any thread, unless it was asked before:
    # without this a thread that starts idle would compute, and round, with the cores of another.
    torch.get_num_threads()
    torch.set_num_threads(1)
