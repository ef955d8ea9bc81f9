"""The ranks of a run: one process each, as torchrun starts them. A run without torchrun is a group of one.

Gradients travel over NCCL between GPUs and over gloo between CPUs; what the ranks have to agree on (token counts,
stops, validation texts) always travels over gloo, so that no GPU is waited for.
"""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from typing import TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.rendezvous import rendezvous
from torch.nn.parallel import DistributedDataParallel

T = TypeVar("T")
PATIENCE = timedelta(days=7)  # with the first rank's preparations: a big corpus takes hours to encode
ROLL_CALL_SECONDS = 5.0  # that the others get to answer when a rank is missed
VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")


class Group:
    """One rank's view of all ranks. Every method but `first` and the numbers has to be called by all ranks alike."""

    def __init__(self, rank: int = 0, world_size: int = 1, store: dist.Store | None = None) -> None:
        self.rank, self.world_size = rank, world_size
        self._store = None if store is None else dist.PrefixStore(_attempt(), store)
        self._control: dist.ProcessGroup | None = None
        self._patient: dist.ProcessGroup | None = None
        self.saving: dist.ProcessGroup | None = None

    @property
    def first(self) -> bool:
        """Whether this is the rank that writes."""
        return self.rank == 0

    def connect(self, device: torch.device, timeout_seconds: float) -> None:
        """Connects the ranks; a rank that does not answer for timeout_seconds is taken for lost."""
        if self.world_size == 1:
            return
        backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
        timeout = timedelta(seconds=timeout_seconds)
        shape = {"rank": self.rank, "world_size": self.world_size, "timeout": timeout}
        dist.init_process_group(backend, store=self._store, **shape)
        self._control = dist.new_group(backend="gloo", timeout=timeout)
        self._patient = dist.new_group(backend="gloo", timeout=PATIENCE)
        self.saving = dist.new_group(backend="gloo", timeout=timeout)  # of a thread, beside the others

    def wait(self) -> None:
        """Returns when all ranks are here, however long the slowest one prepares."""
        if self.world_size > 1:
            with self.watch():
                dist.barrier(group=self._patient)

    def share(self, value: T | None) -> T:
        """Returns the first rank's value, however long that rank takes to have it; the others pass None."""
        if self.world_size == 1:
            return value
        box = [value]
        with self.watch():
            dist.broadcast_object_list(box, src=0, group=self._patient)
        return box[0]

    def gather(self, value: T) -> list[T]:
        """Returns the values of all ranks, in order."""
        if self.world_size == 1:
            return [value]
        values: list[T | None] = [None] * self.world_size
        with self.watch():
            dist.all_gather_object(values, value, group=self._control)
        return values

    def table(self, values: list[float]) -> np.ndarray:
        """Returns the numbers of all ranks: float64 [ranks, len(values)]."""
        own = torch.tensor(values, dtype=torch.float64)
        if self.world_size == 1:
            return own.numpy()[None]
        rows = [torch.empty_like(own) for _ in range(self.world_size)]
        with self.watch():
            dist.all_gather(rows, own, group=self._control)
        return torch.stack(rows).numpy()

    def parallel(self, module: nn.Module, device: torch.device, bf16_gradients: bool = False) -> nn.Module:
        """Returns a module that does the same and averages its gradients over the ranks in each backward pass.

        They travel in buckets of 25 MB, while the backward pass goes on: in float32, or in bf16.
        """
        if self.world_size == 1:
            return module
        ids = [device] if device.type == "cuda" else None
        with self.watch():
            parallel = DistributedDataParallel(module, device_ids=ids, gradient_as_bucket_view=True)
        if bf16_gradients:
            parallel.register_comm_hook(dist.group.WORLD, _average_in_bf16)
        return parallel

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Turns the error of a broken connection into one line that names the ranks that are gone."""
        try:
            yield
        except RuntimeError as error:  # gloo raises these; NCCL's DistBackendError is one too
            if self.world_size == 1 or not _is_of_connection(error):
                raise
            absent = ", ".join(map(str, self._roll_call()))
            who = f"rank {absent} of {self.world_size} does not answer: it" if absent else None
            raise ConnectionError(
                f"{who or 'the ranks lost their connection: one of them'} ended or hangs, see its own message; the "
                "last checkpoint is unharmed and the same command goes on from it"
            ) from error

    def _roll_call(self) -> list[int]:
        """Returns the ranks that do not say that they are here; none where nobody can tell."""
        absent: list[int] = []

        def call() -> None:
            deadline, silent = time.monotonic() + ROLL_CALL_SECONDS, list(range(self.world_size))
            try:
                self._store.set(f"here/{self.rank}", b"1")
                while silent and time.monotonic() < deadline:
                    silent = [rank for rank in silent if not self._store.check([f"here/{rank}"])]
                    time.sleep(0.05)
            except dist.DistError:  # the store is gone too, with whoever kept it
                return
            absent.extend(silent)

        caller = threading.Thread(target=call, daemon=True)  # which a network that was cut keeps waiting
        caller.start()
        caller.join(ROLL_CALL_SECONDS + 1)
        return absent


@contextmanager
def joined() -> Iterator[Group]:
    """Gives the group that torchrun made this process a part of, or a group of one.

    Raises ValueError where WORLD_SIZE is set without the rest of what torchrun sets, and where torchrun could not start
    the ranks of several machines again.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield Group()
        return
    missing = [name for name in VARIABLES if name not in os.environ]
    if missing:
        raise ValueError(f"WORLD_SIZE={os.environ['WORLD_SIZE']} without {missing[0]}: start with torchrun or unset it")
    machines, shared = int(os.environ.get("GROUP_WORLD_SIZE", "1")), _agent_keeps_store()
    if machines > 1 and shared and restarts() and "TORCHELASTIC_RUN_ID" in os.environ:
        raise ValueError(
            f"--max-restarts={restarts()} on {machines} machines: start every torchrun with "
            "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 in its environment; without it, ranks that are started again meet "
            "addresses of those before them"
        )
    store, rank, world_size = next(iter(rendezvous("env://", timeout=timedelta(minutes=5))))
    yield Group(rank, world_size, store)
    if dist.is_initialized():  # only after success: with a lost rank there is nobody to take leave of
        dist.destroy_process_group()


def without_sync(module: nn.Module) -> AbstractContextManager:
    """Returns a context in which backward passes leave gradients unsynchronised (all micro-batches but the last)."""
    return module.no_sync() if isinstance(module, DistributedDataParallel) else nullcontext()


def restarts() -> int:
    """Returns how often torchrun starts the ranks again when one is lost; 0 without torchrun."""
    return int(os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0"))


def local_rank() -> int:
    """Returns the number of this process on its machine, which is the number of its GPU."""
    return int(os.environ.get("LOCAL_RANK", "0"))


def _agent_keeps_store() -> bool:
    return os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"


def _attempt() -> str:
    """Returns a name that no earlier start of the ranks had, where the store outlives them (of one torchrun)."""
    return f"mt{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}" if _agent_keeps_store() else "mt"


def _average_in_bf16(group: dist.ProcessGroup, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
    """Returns the bucket's mean over the ranks, in its own type: as torch's bf16_compress_hook, which refuses gloo."""
    compressed = bucket.buffer().to(torch.bfloat16).div_(group.size())
    summed = dist.all_reduce(compressed, group=group, async_op=True).get_future()
    return summed.then(lambda done: bucket.buffer().copy_(done.value()[0]))


def _is_of_connection(error: RuntimeError) -> bool:
    text = str(error).lower()
    return isinstance(error, dist.DistError) or any(word in text for word in ("gloo", "connection", "timed out"))
