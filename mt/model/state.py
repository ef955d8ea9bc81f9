"""What the decoder remembers between steps of a search."""

import torch
from torch import Tensor

CAPACITY_STEP = 16  # positions by which the cache grows


class DecoderState:
    """Keys and values of R rows over B sentences; rows of one sentence are neighbours and equally many.

    memory_cache: [L, 2, B, H, S, K], computed once; memory_bias: [B, H, 1, S], 0 at tokens and -inf at padding, None
    where there is no padding;
    self_cache: [T, L, 2, R, D], of which the first `length` positions are filled: in front, so that what is moved when
    rows change their places is one piece of memory.
    """

    def __init__(self, memory_cache: Tensor, memory_mask: Tensor, rows_per_sentence: int) -> None:
        """memory_mask: [B, S], True at tokens."""
        layers, _, sentences, n_heads, _, head_size = memory_cache.shape
        self.memory_cache = memory_cache
        self.memory_bias = None
        if not memory_mask.all():
            self.memory_bias = memory_cache.new_zeros(sentences, n_heads, 1, memory_mask.shape[1])
            self.memory_bias.masked_fill_(~memory_mask[:, None, None], -torch.inf)
        self.sentence_of_row = torch.arange(sentences, device=memory_cache.device).repeat_interleave(rows_per_sentence)
        self.length = 0
        rows = len(self.sentence_of_row)
        self.self_cache = memory_cache.new_empty(CAPACITY_STEP, layers, 2, rows, n_heads * head_size)

    def grow(self) -> None:
        """Makes room for one more position."""
        if self.length == len(self.self_cache):
            more = self.self_cache.new_empty(CAPACITY_STEP, *self.self_cache.shape[1:])
            self.self_cache = torch.cat([self.self_cache, more])
        self.length += 1

    def select(self, rows: Tensor) -> None:
        """Makes row i continue what was row rows[i]: reorders, drops or repeats rows [R'].

        The rows kept of one sentence must be neighbours, and equally many for each sentence that stays.
        """
        wanted = self.sentence_of_row[rows]
        sentences, counts = torch.unique_consecutive(wanted, return_counts=True)
        if len(counts) and not bool((counts == counts[0]).all()):
            sentences = wanted  # uneven: give every row a memory of its own
        if len(sentences) != self.memory_cache.shape[2] or not bool((sentences == self._all_sentences()).all()):
            self.memory_cache = self.memory_cache.index_select(2, sentences)
            if self.memory_bias is not None:
                self.memory_bias = self.memory_bias.index_select(0, sentences)
        self.sentence_of_row = self._all_sentences().repeat_interleave(len(rows) // max(len(sentences), 1))
        layers, rows_before, size = self.self_cache.shape[1], self.self_cache.shape[3], self.self_cache.shape[4]
        if len(rows) != rows_before or not torch.equal(rows, torch.arange(len(rows), device=rows.device)):
            selected = self.self_cache.new_empty(len(self.self_cache), layers, 2, len(rows), size)
            torch.index_select(self.self_cache[: self.length], 3, rows, out=selected[: self.length])
            self.self_cache = selected

    def _all_sentences(self) -> Tensor:
        return torch.arange(self.memory_cache.shape[2], device=self.memory_cache.device)
