"""The order in which a run sees its corpus: batches by epoch, with a position that can be saved and restored."""

import numpy as np

from mt.config import TrainerConfig
from mt.data.batch import Batch, collate
from mt.data.batching import plan_epoch
from mt.data.encoded import EncodedCorpus
from mt.tokenizer import TokenizerPair

FINAL_STOPS = ".!?。！？"


class BatchStream:
    """Endless micro-batches; `epoch` and `next_batch` say where it stands, and setting them continues from there."""

    def __init__(
        self,
        corpus: EncodedCorpus,
        tokenizers: TokenizerPair,
        config: TrainerConfig,
        strip_final_stop_probability: float,
    ) -> None:
        self.corpus, self.config = corpus, config
        self.strip_probability = strip_final_stop_probability
        self.source_stops = _stop_ids(tokenizers.source.pieces, tokenizers.source.size)
        self.target_stops = _stop_ids(tokenizers.target.pieces, tokenizers.target.size)
        self.epoch, self.next_batch = 0, 0
        self._planned_epoch, self._plan = -1, []

    @property
    def plan(self) -> list[np.ndarray]:
        """The batches of the present epoch, each an array of pair indices."""
        if self._planned_epoch != self.epoch:
            c = self.config
            lengths = self.corpus.source_lengths, self.corpus.target_lengths
            self._plan = plan_epoch(*lengths, c.batch_tokens, c.shuffle_pool_batches, c.seed, self.epoch)
            self._planned_epoch = self.epoch
        return self._plan

    @property
    def epochs_done(self) -> float:
        """Epochs seen so far, as a fraction."""
        return self.epoch + self.next_batch / len(self.plan)

    def next_window(self) -> list[Batch]:
        """Returns the micro-batches of the next update; the last window of an epoch may hold fewer than the others."""
        end = min(self.next_batch + self.config.accumulate_batches, len(self.plan))
        window = [self._collate(index) for index in range(self.next_batch, end)]
        self.next_batch = end
        if end == len(self.plan):
            self.epoch, self.next_batch = self.epoch + 1, 0
        return window

    def _collate(self, index: int) -> Batch:
        pairs = self.plan[index]
        sources = [self.corpus.source_ids(int(i)) for i in pairs]
        targets = [self.corpus.target_ids(int(i)) for i in pairs]
        if self.strip_probability:
            chance = np.random.Generator(np.random.Philox(key=self.config.seed, counter=[0, 1, index, self.epoch]))
            for i, stripped in enumerate(chance.random(len(pairs)) < self.strip_probability):
                if stripped and len(sources[i]) > 1 and len(targets[i]) > 1:
                    if int(sources[i][-1]) in self.source_stops and int(targets[i][-1]) in self.target_stops:
                        sources[i], targets[i] = sources[i][:-1], targets[i][:-1]
        return collate(sources, targets, pairs)


def _stop_ids(pieces, size: int) -> set[int]:  # noqa: ANN001
    """Returns the ids of pieces that are nothing but one final stop."""
    return {index for index, piece in enumerate(pieces(list(range(size)))) if len(piece) == 1 and piece in FINAL_STOPS}
