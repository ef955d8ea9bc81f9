"""The order in which a run sees its corpus: windows of batches, with a position that can be saved and restored.

Everything about a batch, its dropout masks included, is a function of the seed and its place (epoch, number in the
epoch's plan). So a position is all that has to be saved, batches prepared ahead and not used are not lost, and any
number of ranks sees the same batches. Where the mixture of corpora changes with the updates, a stage begins with an
epoch: the last one of the stage before is cut short.
"""

import dataclasses
import math
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mt.config import TrainConfig
from mt.data.batch import Batch, repeating_stream_tokens
from mt.data.batching import plan_epoch
from mt.data.encoded import EncodedCorpus
from mt.data.mixture import Stage, epoch_order, plan_stages
from mt.data.streamed import Place
from mt.tokenizer import TokenizerPair
from mt.training.batch_maker import BatchMaker
from mt.training.distributed import Group


@dataclass(frozen=True)
class Window:
    """This rank's micro-batches of one update, and where the stream stands after it."""

    batches: list[Batch]  # empty where the update has fewer micro-batches than there are ranks
    epoch: int
    next_batch: int
    epochs_done: float  # as a fraction; an epoch that a stage cut short counts
    places: dict[int, Place] = field(default_factory=dict)  # of a streamed corpus's strands, after it
    notes: tuple[str, ...] = ()  # what there is to tell


class BatchStream:
    """Endless windows of `batches_per_update` micro-batches, of which this rank gets every world_size-th.

    `epoch`, `next_batch` and `update` say where it stands; `seek` continues from elsewhere. With prefetch_updates a
    thread prepares windows ahead, in page-locked memory for a GPU: `close` ends it. With repeating_shapes batches have
    one size, as `pack` makes it from stream_tokens.
    """

    def __init__(
        self,
        corpus: EncodedCorpus,
        tokenizers: TokenizerPair,
        config: TrainConfig,
        batches_per_update: int,
        rank: int = 0,
        world_size: int = 1,
        on_gpu: bool = False,
        repeating_shapes: bool = False,
    ) -> None:
        self.corpus, self.config = corpus, config.trainer
        self.on_gpu = on_gpu
        self.stream_tokens = repeating_stream_tokens(config.trainer.batch_tokens) if repeating_shapes else 0
        self.prefetch_updates = config.trainer.prefetch_updates
        if self.prefetch_updates is None:
            self.prefetch_updates = 2 if on_gpu else 0
        self.stages: list[Stage] = []
        self._open(corpus, tokenizers, config)
        self.batches_per_update, self.rank, self.world_size = batches_per_update, rank, world_size
        self._plans: dict[tuple[int, int], list[np.ndarray]] = {}
        self._planner = ThreadPoolExecutor(max_workers=1, thread_name_prefix="plan")
        self._next_plan: tuple[tuple[int, int], Future[list[np.ndarray]]] | None = None
        self._ahead: _Ahead | None = None
        self.seek(0, 0, 0)

    def _open(self, corpus: EncodedCorpus, tokenizers: TokenizerPair, config: TrainConfig) -> None:
        self.maker = BatchMaker(corpus, tokenizers, config, self.stream_tokens)
        self.stages = plan_stages(config.data, corpus.corpus_pairs)

    def seek(self, epoch: int, next_batch: int, update: int) -> None:
        """Moves to a place; `next_batch` counts micro-batches of that epoch, `update` the updates before it."""
        self.close()
        if next_batch and not 0 <= next_batch < (count := len(self.plan(epoch, update))):
            raise ValueError(f"micro-batch {next_batch} of epoch {epoch + 1}: the epoch has {count}")
        self.epoch, self.next_batch, self.update = epoch, next_batch, update

    def close(self) -> None:
        """Ends the threads that prepare windows and plans; `next_window` starts others when asked."""
        if self._ahead is not None:
            self._ahead.close()
            self._ahead = None
        self._planner.shutdown(cancel_futures=True)
        self._planner = ThreadPoolExecutor(max_workers=1, thread_name_prefix="plan")
        self._next_plan = None

    def saved(self, group: Group) -> list[dict[str, Any]]:
        """Returns what there is to save besides the place; all ranks ask at once."""
        return []

    def restore(self, saved: list[dict[str, Any]]) -> None:
        """Takes back what `saved` returned; `seek` comes next."""

    def stage(self, update: int) -> int:
        """Returns the number of the stage that an update belongs to, given how many came before."""
        return sum(stage.from_step <= update for stage in self.stages) - 1

    def plan(self, epoch: int, update: int = 0) -> list[np.ndarray]:
        """Returns the micro-batches of an epoch, each an array of pair indices; `update`: any of its updates."""
        key = epoch, self.stage(update)
        if key not in self._plans:
            ahead, self._plans, self._next_plan = self._next_plan, {}, None  # the last epoch's makes room
            self._plans = {key: ahead[1].result() if ahead and ahead[0] == key else self._planned(*key)}
        return self._plans[key]

    def _planned(self, epoch: int, number: int) -> list[np.ndarray]:
        c, stage = self.config, self.stages[number]
        order = None if stage.shares is None else epoch_order(stage, number, c.seed, epoch)
        lengths = self.maker.source_lengths(), self.corpus.target_lengths
        return plan_epoch(*lengths, c.batch_tokens, c.shuffle_pool_batches, c.seed, epoch, order)

    def _plan_ahead(self, epoch: int, left: int, update: int) -> None:
        """Begins the next epoch's plan, which of millions of pairs takes seconds. left: micro-batches of this one."""
        if self._next_plan is None and epoch + 1 < (self.config.max_epochs or math.inf):
            key = epoch + 1, self.stage(update + 1 + -(-left // self.batches_per_update))
            self._next_plan = key, self._planner.submit(self._planned, *key)

    def next_window(self) -> Window:
        """Returns the next update's share of this rank; the last window of an epoch may be smaller than the others."""
        if self.prefetch_updates and self._ahead is None:
            self._ahead = _Ahead(self, self.prefetch_updates)
        window = self._ahead.next() if self._ahead else self.window(self.epoch, self.next_batch, self.update)
        self.epoch, self.next_batch, self.update = window.epoch, window.next_batch, self.update + 1
        return window

    def window(self, epoch: int, start: int, update: int) -> Window:
        """Returns the window that begins at a place, without moving."""
        plan = self.plan(epoch, update)
        end = min(start + self.batches_per_update, len(plan))
        if 2 * end >= len(plan):
            self._plan_ahead(epoch, len(plan) - end, update)
        batches = [self.batch(epoch, i, plan[i]) for i in range(start + self.rank, end, self.world_size)]
        if end == len(plan) or self.stage(update + 1) != self.stage(update):
            return Window(batches, epoch + 1, 0, epoch + 1.0)
        return Window(batches, epoch, end, epoch + end / len(plan))

    def batch(self, epoch: int, index: int, pairs: np.ndarray) -> Batch:
        """Returns one micro-batch of an epoch's plan."""
        return self.maker.make(pairs, self._random(0, index, epoch))

    def _random(self, strand: int, index: int, epoch: int) -> np.random.Generator:
        return np.random.Generator(np.random.Philox(key=self.config.seed, counter=[strand, 1, index, epoch]))


class _Ahead:
    """Prepares a stream's windows in order in a thread, `count` of them before they are asked for."""

    def __init__(self, stream: BatchStream, count: int) -> None:
        self._stream, self._place = stream, (stream.epoch, stream.next_batch, stream.update)
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="batches")
        self._windows = deque(self._thread.submit(self._prepare) for _ in range(count))

    def next(self) -> Window:
        self._windows.append(self._thread.submit(self._prepare))
        return self._windows.popleft().result()

    def close(self) -> None:
        self._thread.shutdown(cancel_futures=True)

    def _prepare(self) -> Window:
        window = self._stream.window(*self._place)
        self._place = window.epoch, window.next_batch, self._place[2] + 1
        if self._stream.on_gpu:
            return dataclasses.replace(window, batches=[batch.pin() for batch in window.batches])
        return window
