"""The order in which a run sees a streamed corpus: each micro-batch of an update comes from a strand of its own.

An update keeps its micro-batches however many ranks there are, and so its strands: rank r of W reads every W-th from
the r-th. Each strand shuffles its pairs part by part. A thread encodes a part while the one before it
is trained on.
"""

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from mt.config import TrainConfig
from mt.data.batching import plan_epoch
from mt.data.encoded import EncodedCorpus
from mt.data.own_settings import own_settings
from mt.data.streamed import Part, Place, Strand, StreamedCorpus
from mt.tokenizer import TokenizerPair
from mt.training.batch_maker import BatchMaker
from mt.training.distributed import Group
from mt.training.stream import BatchStream, Window


def open_stream(
    corpus: EncodedCorpus | StreamedCorpus,
    tokenizers: TokenizerPair,
    config: TrainConfig,
    batches_per_update: int,
    group: Group,
    on_gpu: bool,
    repeating_shapes: bool,
) -> BatchStream:
    """Returns this rank's batches of a corpus, as BatchStream explains."""
    kind, shape = PartStream if isinstance(corpus, StreamedCorpus) else BatchStream, (group.rank, group.world_size)
    return kind(corpus, tokenizers, config, batches_per_update, *shape, on_gpu, repeating_shapes)


def check_streaming(config: TrainConfig) -> None:
    """Raises ValueError for settings that a streamed corpus, which is never known whole, cannot have."""
    data, trainer = config.data, config.trainer
    streamed = [name for name, corpus in data.train.items() if corpus.streaming]
    if not streamed:
        return
    setting = f"data.train.{streamed[0]}.streaming=true"
    if len(data.train) > 1:
        raise ValueError(f"{setting}: must be the only corpus of data.train: leave the others out")
    corpus = data.train[streamed[0]]
    cleaning = own_settings(data, corpus, f"data.train.{streamed[0]}").cleaning
    for key, value in (
        ("data.cleaning.drop_duplicates", cleaning.drop_duplicates),
        ("data.cleaning.drop_near_duplicates", cleaning.drop_near_duplicates),
        ("data.cleaning.min_scores", cleaning.min_scores),
        (f"data.train.{streamed[0]}.upsample", corpus.upsample if corpus.upsample != 1 else None),
        ("data.stages", list(data.stages)),
        ("trainer.max_epochs", trainer.max_epochs),
        ("trainer.fit_batch", trainer.fit_batch),
    ):
        if value:
            raise ValueError(f"{key}={value}: needs the whole corpus, which {setting} never has: leave it out")


class PartStream(BatchStream):
    """As BatchStream, of a streamed corpus. A place is the number of updates, and a place of each strand.

    `places` are those of the strands, of which this rank's follow the last window.
    """

    def _open(self, corpus: StreamedCorpus, tokenizers: TokenizerPair, config: TrainConfig) -> None:
        self._tokenizers, self._all_settings = tokenizers, config  # of the makers, one a part
        self._running: dict[int, _Running] = {}
        self._encoding = ThreadPoolExecutor(max_workers=1, thread_name_prefix="parts")
        self._restored: list[Place] = []

    def restore(self, saved: list[dict[str, Any]]) -> None:
        """Takes the places of all strands; `seek` goes there. Raises ValueError where there are others now."""
        if len(saved) != self.batches_per_update:
            raise ValueError(
                f"trainer.accumulate_batches={self.config.accumulate_batches}: a streamed corpus stays cut into the "
                f"{len(saved)} strands that the run was begun with: set it back"
            )
        self._restored = [Place(**place) for place in saved]

    def saved(self, group: Group) -> list[dict[str, Any]]:
        """Returns the places of the strands of all ranks."""
        shares = group.gather([asdict(self.places[strand]) for strand in self._strands()])
        return [share[i] for i in range(len(shares[0])) for share in shares if i < len(share)]

    def seek(self, epoch: int, next_batch: int, update: int) -> None:
        """Moves to the restored places, or to the beginning; without `next_batch` parts begin anew."""
        self.close()
        self.places = {strand: Place() for strand in range(self.batches_per_update)}
        for strand, place in enumerate(self._restored):
            self.places[strand] = place if next_batch else replace(place, next_batch=0)
        self.epoch, self.next_batch, self.update = epoch, next_batch, update

    def close(self) -> None:
        """Ends the threads; windows prepared ahead are made again when asked for."""
        super().close()
        self._encoding.shutdown(cancel_futures=True)
        self._encoding = ThreadPoolExecutor(max_workers=1, thread_name_prefix="parts")
        self._running = {}

    def next_window(self) -> Window:
        """Returns the next update's share of this rank."""
        window = super().next_window()
        self.places = {**self.places, **window.places}
        return window

    def window(self, epoch: int, start: int, update: int) -> Window:
        """Returns the window of an update; they have to be asked for in order."""
        batches, places, notes = [], {}, []
        for strand in self._strands():
            if strand not in self._running:
                self._running[strand] = self._begun(strand, self.places[strand])
            running = self._running[strand]
            if running.next_batch == len(running.plan):
                running = self._running[strand] = self._begun(strand, running.part.following, running)
            if running.next_batch == 0:
                notes.append(_told(strand, running.part))
            place = running.part.place
            random = self._random(strand + 1, running.next_batch, place.part)
            batches.append(running.maker.make(running.plan[running.next_batch], random))
            running.next_batch += 1
            places[strand] = replace(place, next_batch=running.next_batch)
        return Window(batches, epoch, start + 1, 0.0, places, tuple(notes))

    def _strands(self) -> range:
        return range(self.rank, self.batches_per_update, self.world_size)

    def _begun(self, number: int, place: Place, before: "_Running | None" = None) -> "_Running":
        """Returns a strand at a place; the part after it is on its way."""
        strand = Strand(self.corpus, number, self.batches_per_update) if before is None else before.strand
        part = strand.part(place) if before is None else before.next_part.result()
        strand.remove_before(part.place.part - 1)  # the one before may be saved as the place to go on from
        maker = BatchMaker(part.corpus, self._tokenizers, self._all_settings, self.stream_tokens)
        c, lengths = self.config, (maker.source_lengths(), part.corpus.target_lengths)
        plan = plan_epoch(*lengths, c.batch_tokens, c.shuffle_pool_batches, c.seed + number, part.place.part)
        next_part = self._encoding.submit(strand.part, part.following)
        return _Running(strand, part, maker, plan, place.next_batch if before is None else 0, next_part)


class _Running:
    """A strand, the part that it is in, and the one that follows."""

    def __init__(
        self,
        strand: Strand,
        part: Part,
        maker: BatchMaker,
        plan: list[np.ndarray],
        next_batch: int,
        next_part: Future[Part],
    ) -> None:
        self.strand, self.part, self.maker, self.plan = strand, part, maker, plan
        self.next_batch, self.next_part = next_batch, next_part


def _told(strand: int, part: Part) -> str:
    dropped = ", ".join(f"{count} {reason}" for reason, count in part.corpus.counts.most_common()) or "none"
    where = f"part {part.place.part + 1} (pass {part.place.round + 1}) of strand {strand + 1} of the stream"
    return f"{where}: {len(part.corpus):,} training pairs (dropped: {dropped})"
