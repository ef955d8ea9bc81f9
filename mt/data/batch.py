"""A batch of pairs as packed streams of tokens."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from mt.model.layout import Layout
from mt.tokenizer import BOS_ID, EOS_ID, PAD_ID


@dataclass(frozen=True)
class Batch:
    """B pairs. Streams are int64; source sentences end in </s>, target inputs begin with <s>, outputs end in </s>."""

    source: Tensor  # [N_src]
    source_layout: Layout
    target_input: Tensor  # [N_tgt]
    target_output: Tensor  # [N_tgt]: what the decoder should say at each position; PAD_ID: nothing is asked
    target_layout: Layout
    pairs: tuple[int, ...]  # indices in the corpus
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
                    source.stop - source.start,
                    target.stop - target.start,
                    self.dropout_seed + number,
                )
            )
        return parts

    def to(self, device: torch.device) -> "Batch":
        if device.type == "cpu":
            return self
        return Batch(
            self.source.to(device, non_blocking=True),
            self.source_layout.to(device),
            self.target_input.to(device, non_blocking=True),
            self.target_output.to(device, non_blocking=True),
            self.target_layout.to(device),
            self.pairs,
            self.source_tokens,
            self.target_tokens,
            self.dropout_seed,
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
    With stream_tokens both streams are filled up to the next multiple of it by one dead sentence of padding that
    nothing is asked of, so that shapes repeat from batch to batch.
    """
    n_source, n_target = source_lengths + 1, target_lengths + 1
    source_tokens, target_tokens = int(n_source.sum()), int(n_target.sum())
    source_end, target_end = source_tokens, target_tokens
    if stream_tokens:  # at least one dead token on each side, so that both streams have equally many sentences
        source_end += stream_tokens - source_tokens % stream_tokens
        target_end += stream_tokens - target_tokens % stream_tokens
        n_source = np.append(n_source, source_end - source_tokens)
        n_target = np.append(n_target, target_end - target_tokens)
    source, target_input, target_output = (np.full(n, PAD_ID, np.int64) for n in (source_end, target_end, target_end))
    source_last, target_last = np.cumsum(source_lengths + 1) - 1, np.cumsum(target_lengths + 1) - 1
    source[:source_tokens] = _with(source_ids, source_last, EOS_ID)
    target_output[:target_tokens] = _with(target_ids, target_last, EOS_ID)
    target_input[:target_tokens] = _with(target_ids, target_last - target_lengths, BOS_ID)
    return Batch(
        torch.from_numpy(source),
        Layout.from_lengths(n_source.tolist()),
        torch.from_numpy(target_input),
        torch.from_numpy(target_output),
        Layout.from_lengths(n_target.tolist()),
        tuple(pairs.tolist()),
        source_tokens,
        target_tokens,
        dropout_seed,
    )


def _with(ids: np.ndarray, places: np.ndarray, special: int) -> np.ndarray:
    """Returns the ids with a special token put in so that it lands on each of `places`: [len(ids) + len(places)]."""
    stream = np.empty(len(ids) + len(places), dtype=np.int64)
    others = np.ones(len(stream), dtype=bool)
    others[places] = False
    stream[places], stream[others] = special, ids
    return stream
