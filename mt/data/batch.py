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
        )


def collate(
    source_ids: Sequence[np.ndarray], target_ids: Sequence[np.ndarray], pairs: Sequence[int], stream_tokens: int = 0
) -> Batch:
    """Returns the batch of these pairs, given as token ids without <s> and </s>.

    Sentences are put in order of (target, source) length, so that neighbours of equal lengths need no padding in
    attention. With stream_tokens both streams are filled up to the next multiple of it by one dead sentence of padding
    that nothing is asked of, so that shapes repeat from batch to batch.
    """
    order = sorted(range(len(pairs)), key=lambda i: (len(target_ids[i]), len(source_ids[i])))
    sources = [np.append(source_ids[i], EOS_ID) for i in order]
    inputs = [np.concatenate([[BOS_ID], target_ids[i]]) for i in order]
    outputs = [np.append(target_ids[i], EOS_ID) for i in order]
    source_tokens, target_tokens = sum(map(len, sources)), sum(map(len, inputs))
    if stream_tokens:
        for streams, tokens in ((sources, source_tokens), (inputs, target_tokens), (outputs, target_tokens)):
            # at least one dead token, so that both streams have equally many sentences
            streams.append(np.full(stream_tokens - tokens % stream_tokens, PAD_ID))
    return Batch(
        torch.from_numpy(np.concatenate(sources).astype(np.int64)),
        Layout.from_lengths([len(s) for s in sources]),
        torch.from_numpy(np.concatenate(inputs).astype(np.int64)),
        torch.from_numpy(np.concatenate(outputs).astype(np.int64)),
        Layout.from_lengths([len(s) for s in inputs]),
        tuple(int(pairs[i]) for i in order),
        source_tokens,
        target_tokens,
    )
