"""The order in which a run sees its corpus: windows of batches, with a position that can be saved and restored.

Everything about a batch, its dropout masks included, is a function of the seed and its place (epoch, number in the
epoch's plan). So a position is all that has to be saved, batches prepared ahead and not used are not lost, and any
number of ranks sees the same batches.
"""

import dataclasses
import math
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mt.config import TrainConfig
from mt.data.batch import Batch, pack, repeating_stream_tokens
from mt.data.batching import plan_epoch
from mt.data.encoded import EncodedCorpus, gather
from mt.data.streamed import Place
from mt.tokenizer import Tokenizer, TokenizerPair
from mt.training.distributed import Group

Side = tuple[np.ndarray, np.ndarray, np.ndarray]  # tokens, and where each sentence begins in them, and its length
FINAL_STOPS = ".!?。！？"


@dataclass(frozen=True)
class Window:
    """This rank's micro-batches of one update, and where the stream stands after it."""

    batches: list[Batch]  # empty where the update has fewer micro-batches than there are ranks
    epoch: int
    next_batch: int
    epochs_done: float  # as a fraction
    places: dict[int, Place] = field(default_factory=dict)  # of a streamed corpus's strands, after it
    notes: tuple[str, ...] = ()  # what there is to tell


class BatchStream:
    """Endless windows of `batches_per_update` micro-batches, of which this rank gets every world_size-th.

    `epoch` and `next_batch` say where it stands; `seek` continues from elsewhere. With prefetch_updates a thread
    prepares windows ahead, in page-locked memory for a GPU: `close` ends it. With repeating_shapes batches have one
    size, as `pack` makes it from stream_tokens.
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
        self.corpus, self.tokenizers, self.config = corpus, tokenizers, config.trainer
        self.on_gpu = on_gpu
        self.stream_tokens = repeating_stream_tokens(config.trainer.batch_tokens) if repeating_shapes else 0
        self.prefetch_updates = config.trainer.prefetch_updates
        if self.prefetch_updates is None:
            self.prefetch_updates = 2 if on_gpu else 0
        self.strip_probability = config.data.strip_final_stop_probability
        self.sampling_alpha = config.tokenizer.bpe_dropout or config.tokenizer.unigram_alpha
        self.batches_per_update, self.rank, self.world_size = batches_per_update, rank, world_size
        self.source_stops, self.target_stops = _stop_ids(tokenizers.source), _stop_ids(tokenizers.target)
        self._plans: dict[int, list[np.ndarray]] = {}
        self._planner = ThreadPoolExecutor(max_workers=1, thread_name_prefix="plan")
        self._next_plan: tuple[int, Future[list[np.ndarray]]] | None = None
        self._ahead: _Ahead | None = None
        self.seek(0, 0)

    def seek(self, epoch: int, next_batch: int) -> None:
        """Moves to a place; `next_batch` counts micro-batches of that epoch."""
        self.close()
        if next_batch and not 0 <= next_batch < len(self.plan(epoch)):
            raise ValueError(f"micro-batch {next_batch} of epoch {epoch + 1}: the epoch has {len(self.plan(epoch))}")
        self.epoch, self.next_batch = epoch, next_batch

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

    def plan(self, epoch: int) -> list[np.ndarray]:
        """Returns the micro-batches of an epoch, each an array of pair indices."""
        if epoch not in self._plans:
            ahead, self._plans, self._next_plan = self._next_plan, {}, None  # the last epoch's makes room
            self._plans = {epoch: ahead[1].result() if ahead and ahead[0] == epoch else self._planned(epoch)}
        return self._plans[epoch]

    def _planned(self, epoch: int) -> list[np.ndarray]:
        c, lengths = self.config, (self.corpus.source_lengths, self.corpus.target_lengths)
        return plan_epoch(*lengths, c.batch_tokens, c.shuffle_pool_batches, c.seed, epoch)

    def next_window(self) -> Window:
        """Returns the next update's share of this rank; the last window of an epoch may be smaller than the others."""
        if self.prefetch_updates and self._ahead is None:
            self._ahead = _Ahead(self, self.prefetch_updates)
        window = self._ahead.next() if self._ahead else self.window(self.epoch, self.next_batch)
        self.epoch, self.next_batch = window.epoch, window.next_batch
        return window

    def window(self, epoch: int, start: int) -> Window:
        """Returns the window that begins at a place, without moving."""
        plan = self.plan(epoch)
        end = min(start + self.batches_per_update, len(plan))
        if 2 * end >= len(plan) and self._next_plan is None and epoch + 1 < (self.config.max_epochs or math.inf):
            self._next_plan = epoch + 1, self._planner.submit(self._planned, epoch + 1)  # of millions it takes seconds
        batches = [self.batch(epoch, index) for index in range(start + self.rank, end, self.world_size)]
        if end == len(plan):
            return Window(batches, epoch + 1, 0, epoch + 1.0)
        return Window(batches, epoch, end, epoch + end / len(plan))

    def batch(self, epoch: int, index: int) -> Batch:
        """Returns one micro-batch of an epoch's plan."""
        return self.made(self.corpus, self.plan(epoch)[index], self._random(0, index, epoch))

    def _random(self, strand: int, index: int, epoch: int) -> np.random.Generator:
        return np.random.Generator(np.random.Philox(key=self.config.seed, counter=[strand, 1, index, epoch]))

    def made(self, corpus: EncodedCorpus, pairs: np.ndarray, random: np.random.Generator) -> Batch:
        """Returns the micro-batch of these pairs of a corpus."""
        dropout_seed = int(random.integers(2**63))
        stored = self.sampling_alpha is None
        sides = self._stored(corpus, pairs) if stored else self._sampled(corpus, pairs, random)
        (source_words, source_starts, source_lengths), (target_words, target_starts, target_lengths) = sides
        if self.strip_probability:
            stripped = random.random(len(pairs)) < self.strip_probability
            for (words, starts, lengths), stops in zip(sides, (self.source_stops, self.target_stops), strict=True):
                stripped &= (lengths > 1) & np.isin(words[starts + lengths - 1], stops)
            source_lengths, target_lengths = source_lengths - stripped, target_lengths - stripped
        order = np.lexsort((source_lengths, target_lengths))  # equal lengths side by side: attention needs no padding
        source_lengths, target_lengths = source_lengths[order], target_lengths[order]
        return pack(
            gather(source_words, source_starts[order], source_lengths),
            source_lengths,
            gather(target_words, target_starts[order], target_lengths),
            target_lengths,
            pairs[order],
            self.stream_tokens,
            dropout_seed,
        )

    def _stored(self, c: EncodedCorpus, pairs: np.ndarray) -> tuple[Side, Side]:
        source_lengths, target_lengths = c.source_lengths[pairs], c.target_lengths[pairs]
        source = c.source_tokens(pairs), np.cumsum(source_lengths) - source_lengths, source_lengths
        return source, (c.target_tokens(pairs), np.cumsum(target_lengths) - target_lengths, target_lengths)

    def _sampled(
        self, corpus: EncodedCorpus, pairs: np.ndarray, random: np.random.Generator
    ) -> tuple[Side, Side]:
        """Cuts the sentences into pieces anew. (The plan goes by their usual lengths.)"""
        sides = []
        for texts, tokenizer in zip(
            zip(*(corpus.texts(int(i)) for i in pairs), strict=True),
            (self.tokenizers.source, self.tokenizers.target),
            strict=True,
        ):
            ids = tokenizer.sample(list(texts), self.sampling_alpha, int(random.integers(2**32)))
            lengths = np.array([len(i) for i in ids], dtype=np.int64)
            sides.append((np.array([i for sentence in ids for i in sentence]), np.cumsum(lengths) - lengths, lengths))
        return tuple(sides)


class _Ahead:
    """Prepares a stream's windows in order in a thread, `count` of them before they are asked for."""

    def __init__(self, stream: BatchStream, count: int) -> None:
        self._stream, self._place = stream, (stream.epoch, stream.next_batch)
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="batches")
        self._windows = deque(self._thread.submit(self._prepare) for _ in range(count))

    def next(self) -> Window:
        self._windows.append(self._thread.submit(self._prepare))
        return self._windows.popleft().result()

    def close(self) -> None:
        self._thread.shutdown(cancel_futures=True)

    def _prepare(self) -> Window:
        window = self._stream.window(*self._place)
        self._place = window.epoch, window.next_batch
        if self._stream.on_gpu:
            return dataclasses.replace(window, batches=[batch.pin() for batch in window.batches])
        return window


def _stop_ids(tokenizer: Tokenizer) -> np.ndarray:
    """Returns the ids of pieces that are nothing but one final stop."""
    pieces = tokenizer.pieces(list(range(tokenizer.size)))
    return np.array([index for index, piece in enumerate(pieces) if len(piece) == 1 and piece in FINAL_STOPS], np.int64)
