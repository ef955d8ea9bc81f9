"""What the decoder remembers between steps of a search."""

import torch
from torch import Tensor

SLOTS = 64  # by which the cache grows


class DecoderState:
    """Keys and values of B sentences with W hypotheses each, R = B * W rows.

    The hypotheses of a sentence share its slots, one for each token that any of them has had in any step, and `unseen`
    says which slots are not theirs. So nothing of the cache moves when a hypothesis takes another's place, and the
    queries of a sentence meet their keys in one product.

    memory_cache: [L, 2, B, H, S, K], computed once; memory_bias: [B*H, 1, S], 0 at tokens and -inf at padding, None
    where there is no padding;
    self_cache: [L, 2, B, H, C, K], of which the first `used` slots are filled; unseen: [B, W, C], 0 at slots of a
    hypothesis and -inf at others, None while each sentence has had one hypothesis.
    """

    def __init__(self, memory_cache: Tensor, memory_mask: Tensor) -> None:
        """memory_mask: [B, S], True at tokens. Each sentence begins with one hypothesis."""
        layers, _, sentences, n_heads, _, head_size = memory_cache.shape
        self.memory_cache = memory_cache
        self.memory_bias = None
        if not memory_mask.all():
            self.memory_bias = memory_cache.new_zeros(sentences, n_heads, 1, memory_mask.shape[1])
            self.memory_bias = self.memory_bias.masked_fill_(~memory_mask[:, None, None], -torch.inf).flatten(0, 1)
        self.self_cache = memory_cache.new_empty(layers, 2, sentences, n_heads, SLOTS, head_size)
        self.unseen: Tensor | None = None
        self.width = 1  # W
        self.used = 0
        self.length = 0  # steps so far

    def grow(self) -> Tensor | None:
        """Makes room for one more token of each hypothesis; returns the bias [B*H, W, used] of scores over slots."""
        self.length += 1
        first, self.used = self.used, self.used + self.width
        sentences, n_heads, capacity = self.self_cache.shape[2:5]
        if self.used > capacity:
            more = max(SLOTS, self.used - capacity)
            self.self_cache = torch.nn.functional.pad(self.self_cache, (0, 0, 0, more))
            if self.unseen is not None:
                self.unseen = torch.nn.functional.pad(self.unseen, (0, more), value=-torch.inf)
        if self.unseen is None:
            return None
        self.unseen[:, :, first : self.used].diagonal(dim1=1, dim2=2).zero_()
        bias = self.unseen[:, None, :, : self.used].expand(-1, n_heads, -1, -1)
        return bias.reshape(sentences * n_heads, self.width, self.used)

    def select(self, rows: Tensor) -> None:
        """Makes row i continue what was row rows[i]: reorders, drops or repeats rows.

        rows: [B', W']; those of a line are of one sentence, and get slots of their own.
        """
        chosen = rows[:, 0] // self.width  # [B']
        sentences, n_heads, capacity = self.self_cache.shape[2:5]
        if self.unseen is None and rows.shape[1] > 1:
            self.unseen = self.self_cache.new_full((sentences, 1, capacity), -torch.inf)
            self.unseen[:, :, : self.used] = 0
        if self.unseen is not None:
            self.unseen = self.unseen.flatten(0, 1)[rows]  # [B', W', C]
        self.width = rows.shape[1]
        if len(chosen) != sentences or not torch.equal(chosen, torch.arange(sentences, device=rows.device)):
            self.memory_cache = self.memory_cache.index_select(2, chosen)
            self.self_cache = self.self_cache.index_select(2, chosen)
            if self.memory_bias is not None:
                self.memory_bias = self.memory_bias.unflatten(0, (sentences, n_heads)).index_select(0, chosen)
                self.memory_bias = self.memory_bias.flatten(0, 1)
