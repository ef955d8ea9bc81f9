"""A batch of pairs as packed streams of tokens."""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from mt.model.layout import Layout
from mt.tokenizer import BOS_ID, EOS_ID, PAD_ID

DEAD_TOKENS = 128  # of one sentence of padding, at most: attention is quadratic in a sentence's length
ROUND_TO = 128  # sizes of streams, and numbers of sentences, where shapes are to repeat


@dataclass(frozen=True)
class Batch:
    """B pairs. Streams are int64; source sentences end in </s>, target inputs begin with <s>, outputs end in </s>."""

    source: Tensor  # [N_src]
    source_layout: Layout
    target_input: Tensor  # [N_tgt]
    target_output: Tensor  # [N_tgt]: what the decoder should say at each position; PAD_ID: nothing is asked
    target_layout: Layout
    pairs: tuple[int, ...]  # indices in the corpus; of two pairs joined in one sentence, the first's
    source_tokens: int  # real tokens, </s> counted
    target_tokens: int
    dropout_seed: int = 0  # of the random masks: they depend on the batch's place in the run, not on what ran before

    def split(self, count: int) -> list["Batch"]:
        """Returns the same pairs in up to `count` batches of about equal work, each with dropout masks of its own."""
        lengths = np.array([self.source_layout.lengths, self.target_layout.lengths], dtype=np.int64)  # [2, B]
        work = np.cumsum(lengths[0] + 2 * lengths[1])  # the decoder, and the output layer on top, do more
        cuts = np.searchsorted(work, work[-1] * np.arange(1, count) / count) + 1
        edges = np.unique([0, *cuts, len(work)])
        starts = np.concatenate([[[0], [0]], np.cumsum(lengths, axis=1)], axis=1)
        parts = []
        for number, (first, end) in enumerate(zip(edges[:-1], edges[1:], strict=True)):
            source, target = (slice(int(side[first]), int(side[end])) for side in starts)
            parts.append(
                Batch(
                    self.source[source],
                    Layout.from_lengths(self.source_layout.lengths[first:end]),
                    self.target_input[target],
                    self.target_output[target],
                    Layout.from_lengths(self.target_layout.lengths[first:end]),
                    self.pairs[first:end],
                    int((self.source[source] != PAD_ID).sum()),
                    int((self.target_output[target] != PAD_ID).sum()),
                    self.dropout_seed + number,
                )
            )
        return parts

    def to(self, device: torch.device) -> "Batch":
        if device.type == "cpu":
            return self
        return self._moved(lambda tensor: tensor.to(device, non_blocking=True))

    def pin(self) -> "Batch":
        """Returns the batch in page-locked memory, from which a GPU copies while the host goes on."""
        return self._moved(Tensor.pin_memory)

    def _moved(self, move: Callable[[Tensor], Tensor]) -> "Batch":
        return dataclasses.replace(
            self,
            source=move(self.source),
            source_layout=self.source_layout.moved(move),
            target_input=move(self.target_input),
            target_output=move(self.target_output),
            target_layout=self.target_layout.moved(move),
        )


def collate(
    source_ids: Sequence[np.ndarray], target_ids: Sequence[np.ndarray], pairs: Sequence[int], stream_tokens: int = 0
) -> Batch:
    """Returns the batch of these pairs, given as token ids without <s> and </s>, as `pack` does for ids end to end.

    Sentences are put in order of (target, source) length, so that neighbours of equal lengths need no padding in
    attention.
    """
    order = sorted(range(len(pairs)), key=lambda i: (len(target_ids[i]), len(source_ids[i])))
    empty = [np.empty(0, dtype=np.int32)]
    return pack(
        np.concatenate([source_ids[i] for i in order] or empty),
        np.array([len(source_ids[i]) for i in order], dtype=np.int64),
        np.concatenate([target_ids[i] for i in order] or empty),
        np.array([len(target_ids[i]) for i in order], dtype=np.int64),
        np.array([pairs[i] for i in order], dtype=np.int64),
        stream_tokens,
    )


def pack(
    source_ids: np.ndarray,
    source_lengths: np.ndarray,
    target_ids: np.ndarray,
    target_lengths: np.ndarray,
    pairs: np.ndarray,
    stream_tokens: int = 0,
    dropout_seed: int = 0,
) -> Batch:
    """Returns the batch of B pairs whose ids, without <s> and </s>, lie end to end.

    source_ids: [sum of source_lengths]; source_lengths: [B] (targets likewise); pairs: [B] indices in the corpus.
    With stream_tokens both streams have that many tokens (where the pairs do not fit in, the next size above), so that
    shapes repeat from batch to batch: sentences of padding, which nothing is asked of, fill them up, empty sentences
    follow, and `longest` is 128 or the next power of two.
    """
    n_source, n_target = source_lengths + 1, target_lengths + 1
    source_tokens, target_tokens = int(n_source.sum()), int(n_target.sum())
    if stream_tokens:
        size, dead = _filled(stream_tokens, source_tokens, target_tokens)
        empty = np.zeros(-(len(n_source) + dead) % ROUND_TO, dtype=np.int64)
        n_source = np.concatenate([n_source, _spread(size - source_tokens, dead), empty])
        n_target = np.concatenate([n_target, _spread(size - target_tokens, dead), empty])
    source_end, target_end = int(n_source.sum()), int(n_target.sum())
    source, target_input, target_output = (np.full(n, PAD_ID, np.int64) for n in (source_end, target_end, target_end))
    source_last, target_last = np.cumsum(source_lengths + 1) - 1, np.cumsum(target_lengths + 1) - 1
    source[:source_tokens] = _with(source_ids, source_last, EOS_ID)
    target_output[:target_tokens] = _with(target_ids, target_last, EOS_ID)
    target_input[:target_tokens] = _with(target_ids, target_last - target_lengths, BOS_ID)
    source_layout, target_layout = Layout.from_lengths(n_source.tolist()), Layout.from_lengths(n_target.tolist())
    if stream_tokens:  # one for both sides: fewer different shapes
        longest = max(DEAD_TOKENS, 1 << (max(source_layout.longest, target_layout.longest) - 1).bit_length())
        source_layout, target_layout = (dataclasses.replace(s, longest=longest) for s in (source_layout, target_layout))
    return Batch(
        torch.from_numpy(source),
        source_layout,
        torch.from_numpy(target_input),
        torch.from_numpy(target_output),
        target_layout,
        tuple(pairs.tolist()),
        source_tokens,
        target_tokens,
        dropout_seed,
    )


def nothing_asked(stream_tokens: int) -> Batch:
    """Returns a batch without a target, for a rank that has none while the others train: it gives zero gradients."""
    empty = np.empty(0, dtype=np.int64)
    batch = pack(empty, np.zeros(1, dtype=np.int64), empty, np.zeros(1, dtype=np.int64), empty, stream_tokens)
    return dataclasses.replace(batch, target_output=torch.full_like(batch.target_output, PAD_ID), target_tokens=0)


def repeating_stream_tokens(batch_tokens: int) -> int:
    """Returns the size of streams that hold any batch of up to batch_tokens tokens a side: a multiple of 128.

    There is room for the sentences of padding of the other side, each of which needs a token on this side too.
    """
    size = batch_tokens + -batch_tokens % ROUND_TO
    while _filled(size, batch_tokens, 1)[0] > size:
        size += ROUND_TO
    return size


def _filled(stream_tokens: int, source_tokens: int, target_tokens: int) -> tuple[int, int]:
    """Returns the size of both streams and the number of sentences of padding, each with a token on both sides."""
    longer, shorter = max(source_tokens, target_tokens), min(source_tokens, target_tokens)
    size, step = stream_tokens, max(ROUND_TO, stream_tokens // 4 // ROUND_TO * ROUND_TO)
    while (dead := max(1, -(-(size - shorter) // DEAD_TOKENS))) > size - longer:
        size += step  # steps of a quarter: few sizes
    return size, dead


def _spread(tokens: int, count: int) -> np.ndarray:
    """Returns the lengths of `count` sentences that have so many tokens together and differ by one at most."""
    lengths = np.full(count, tokens // count)
    lengths[: tokens % count] += 1
    return lengths


def _with(ids: np.ndarray, places: np.ndarray, special: int) -> np.ndarray:
    """Returns the ids with a special token put in so that it lands on each of `places`: [len(ids) + len(places)]."""
    stream = np.empty(len(ids) + len(places), dtype=np.int64)
    others = np.ones(len(stream), dtype=bool)
    others[places] = False
    stream[places], stream[others] = special, ids
    return stream
