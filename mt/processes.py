"""Work done side by side by processes of this machine, which end when the one that started them does.

(multiprocessing would run the user's script again in each, and its processes outlive one that is killed.)
"""

import os
import pickle
import queue
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Generic, TypeVar

Job = TypeVar("Job")
Result = TypeVar("Result")
_PROGRAM = """
import pickle, sys
sys.path[:] = pickle.load(sys.stdin.buffer)
from mt.processes import serve
serve()
"""


class Processes(Generic[Job, Result]):
    """`count` processes, each with its own copy of `work`, a function of one argument that can be pickled.

    Leaving the context ends them.
    """

    def __init__(self, work: Callable[[Job], Result], count: int) -> None:
        command = [sys.executable, "-P", "-c", _PROGRAM]  # without the working folder, whose files could have any name
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self._all = [subprocess.Popen(command, **pipes) for _ in range(count)]
        self._free: queue.SimpleQueue[subprocess.Popen[bytes]] = queue.SimpleQueue()
        self._threads = ThreadPoolExecutor(count, thread_name_prefix="processes")  # one waits for each process
        for process in self._all:
            self._threads.submit(self._prepare, process, pickle.dumps(work))

    def __enter__(self) -> "Processes[Job, Result]":
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._all:
            process.kill()
        self._threads.shutdown(cancel_futures=True)
        for process in self._all:
            process.wait()
            process.stdout.close()
            with suppress(OSError):  # of what it did not take any more
                process.stdin.close()

    def map(self, jobs: Iterable[Job]) -> Iterator[Result]:
        """Yields the results in the order of the jobs, of which one more than there are processes waits.

        Raises the OSError or ValueError of a job, and ChildProcessError where a process was ended from outside.
        """
        running: deque[Future[Result]] = deque()
        for job in jobs:
            running.append(self._threads.submit(self._do, job))
            if len(running) > len(self._all) + 1:
                yield running.popleft().result()
        while running:
            yield running.popleft().result()

    def _prepare(self, process: subprocess.Popen[bytes], work: bytes) -> None:
        try:
            pickle.dump(sys.path, process.stdin)
            process.stdin.write(work)
            process.stdin.flush()
        except OSError:  # it has ended, as its first job will find
            pass
        finally:
            self._free.put(process)

    def _do(self, job: Job) -> Result:
        process = self._free.get()
        try:
            pickle.dump(job, process.stdin)
            process.stdin.flush()
            result, error = pickle.load(process.stdout)
        except (OSError, EOFError, pickle.UnpicklingError) as problem:
            process.kill()  # one that sends something else
            raise ChildProcessError(
                f"a process that prepares data has ended (exit code {process.wait()}): is there memory enough? a "
                "smaller data.processes needs less"
            ) from problem
        finally:
            self._free.put(process)  # one that has ended too: other jobs would wait for ever
        if error is not None:
            raise error
        return result


class OtherWork:
    """Measures how many cores other programs keep busy, from when it was made (on Linux; elsewhere none).

    A load average would count what has just ended, such as the command before this one.
    """

    def __init__(self) -> None:
        self._before = _clocks()

    def cores(self) -> float:
        """Returns how many cores they kept busy in the mean."""
        seconds, all_busy, own = (now - before for now, before in zip(_clocks(), self._before, strict=True))
        return max(all_busy - own, 0.0) / seconds if seconds > 0.5 else 0.0  # the kernel counts in hundredths


def _clocks() -> tuple[float, float, float]:
    """Returns seconds: of the clock, of work on all cores, of this process and those that it waited for."""
    own = os.times()
    try:
        with open("/proc/stat", encoding="ascii") as file:
            user, nice, system, _, _, interrupts, soft_interrupts, stolen = map(int, file.readline().split()[1:9])
    except (OSError, ValueError):
        return own.elapsed, 0.0, 0.0
    busy = (user + nice + system + interrupts + soft_interrupts + stolen) / os.sysconf("SC_CLK_TCK")
    return own.elapsed, busy, own.user + own.system + own.children_user + own.children_system


def available_cores() -> int:
    """Returns how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def serve() -> None:
    """What such a process does: takes jobs from standard input until that ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to all: the one that started this ends it
    jobs = sys.stdin.buffer
    with os.fdopen(os.dup(1), "wb") as results:
        os.dup2(2, 1)  # nothing that a library prints gets among the results
        try:
            work = pickle.load(jobs)
            while True:
                job = pickle.load(jobs)
                try:
                    answer = work(job), None
                except (OSError, ValueError) as error:
                    answer = None, error
                pickle.dump(answer, results)
                results.flush()
        except (EOFError, BrokenPipeError):  # nobody is there any more
            os._exit(0)
