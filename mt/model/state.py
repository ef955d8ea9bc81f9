"""What the decoder remembers between steps of a search."""

import torch
from torch import Tensor

CAPACITY_STEP = 16  # positions by which the cache grows


class DecoderState:
    """Keys and values of R rows over B sentences; rows of one sentence are neighbours and equally many.

    memory_cache: [L, 2, B, H, S, K], computed once; memory_mask: [B, 1, 1, S], True at tokens;
    self_cache: [L, 2, R, T, H, K], of which the first `length` positions are filled.
    """

    def __init__(self, memory_cache: Tensor, memory_mask: Tensor, rows_per_sentence: int) -> None:
        layers, _, sentences, n_heads, _, head_size = memory_cache.shape
        self.memory_cache, self.memory_mask = memory_cache, memory_mask
        self.sentence_of_row = torch.arange(sentences, device=memory_cache.device).repeat_interleave(rows_per_sentence)
        self.length = 0
        self.self_cache = memory_cache.new_empty(
            layers, 2, len(self.sentence_of_row), CAPACITY_STEP, n_heads, head_size
        )

    def grow(self) -> None:
        """Makes room for one more position."""
        if self.length == self.self_cache.shape[3]:
            more = self.self_cache.new_empty(*self.self_cache.shape[:3], CAPACITY_STEP, *self.self_cache.shape[4:])
            self.self_cache = torch.cat([self.self_cache, more], dim=3)
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
            self.memory_mask = self.memory_mask.index_select(0, sentences)
        self.sentence_of_row = self._all_sentences().repeat_interleave(len(rows) // max(len(sentences), 1))
        if len(rows) != self.self_cache.shape[2] or not torch.equal(rows, torch.arange(len(rows), device=rows.device)):
            self.self_cache = self.self_cache.index_select(2, rows)

    def _all_sentences(self) -> Tensor:
        return torch.arange(self.memory_cache.shape[2], device=self.memory_cache.device)
