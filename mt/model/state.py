"""What the decoder remembers between steps of a search."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from mt.rows import NO_ROW, number_rows

SLOTS = 64  # by which the cache grows


@dataclass(frozen=True)
class Grid:
    """Where R rows, the hypotheses of B sentences, stand among B * W cells: what is computed by rows goes to cells of a
    head before attention and back after it. Cells of no hypothesis get row 0, and nothing reads what comes of it."""

    width: int  # W
    cell_of_row: Tensor  # [R] int64: b * W + w
    heads_of_cells: Tensor  # [B*H*W] int64, in [R*H]
    fused_of_cells: Tensor  # [3*B*H*W] int64, in [R*3*H]: the same for query, key and value
    rows_of_heads: Tensor  # [R*H] int64, in [B*H*W]: the way back

    @staticmethod
    def of(row_of_cell: Tensor, n_heads: int) -> "Grid":
        """row_of_cell: [B, W] int64, NO_ROW where there is none; rows are numbered in the order of their cells."""
        width, device = row_of_cell.shape[1], row_of_cell.device
        cells = (row_of_cell != NO_ROW).flatten().nonzero().flatten()
        heads = torch.arange(n_heads, device=device)
        rows = row_of_cell.clamp_min(0)[:, None]  # [B, 1, W]
        parts = torch.arange(3 * n_heads, device=device).view(3, 1, n_heads, 1)
        back = (cells + cells // width * (width * (n_heads - 1)))[:, None] + width * heads  # [R, H]
        return Grid(
            width,
            cells,
            (rows * n_heads + heads[:, None]).flatten(),
            (rows * (3 * n_heads) + parts).flatten(),
            back.flatten(),
        )

    def to_cells(self, x: Tensor, head_size: int) -> Tensor:
        """Returns [B*H, W, K] of x [R, H*K]."""
        return x.view(-1, head_size).index_select(0, self.heads_of_cells).view(-1, self.width, head_size)

    def fused_to_cells(self, x: Tensor, head_size: int) -> Tensor:
        """Returns [3, B*H, W, K] of x [R, 3*H*K]."""
        return x.view(-1, head_size).index_select(0, self.fused_of_cells).view(3, -1, self.width, head_size)

    def to_rows(self, x: Tensor) -> Tensor:
        """Returns [R, H*K] of x [B*H, W, K]."""
        return x.reshape(-1, x.shape[2]).index_select(0, self.rows_of_heads).view(len(self.cell_of_row), -1)


class DecoderState:
    """Keys and values of B sentences with up to W hypotheses each, R rows in all.

    The hypotheses of a sentence share its slots, one for each token that any of them has had in any step, and `unseen`
    says which slots are not theirs. So nothing of the cache moves when a hypothesis takes another's place, and the
    queries of a sentence meet their keys in one product.

    memory: keys and values [B*H, S, K] of each layer, computed once; memory_bias: [B*H, 1, S], 0 at tokens and -inf at
    padding, None where there is no padding;
    own: keys and values [B*H, C, K] of each layer, of which the first `used` slots are filled; unseen: [B, W, C], 0 at
    slots of a hypothesis and -inf at others, None while each sentence has had one hypothesis.
    """

    def __init__(self, memory: list[tuple[Tensor, Tensor]], memory_mask: Tensor) -> None:
        """memory: keys and values [B, H, S, K] of each layer; memory_mask: [B, S], True at tokens.

        Each sentence begins with one row.
        """
        first, device = memory[0][0], memory_mask.device
        sentences, self.n_heads = first.shape[:2]
        self.memory = [(keys.flatten(0, 1), values.flatten(0, 1)) for keys, values in memory]
        self.memory_bias = None
        if not memory_mask.all():
            bias = first.new_zeros(sentences, self.n_heads, 1, first.shape[2])
            self.memory_bias = bias.masked_fill_(~memory_mask[:, None, None], -torch.inf).flatten(0, 1)
        self.capacity = SLOTS
        empty = [first.new_empty(sentences * self.n_heads, SLOTS, first.shape[3]) for _ in range(2 * len(memory))]
        self.own = list(zip(empty[::2], empty[1::2], strict=True))
        self.unseen: Tensor | None = None
        self.grid = Grid.of(torch.arange(sentences, device=device)[:, None], self.n_heads)
        self.used = self.length = 0  # slots, steps

    def grow(self) -> Tensor | None:
        """Makes room for one more token of each hypothesis; returns the bias [B*H, W, used] of scores over slots."""
        self.length += 1
        first, self.used = self.used, self.used + self.grid.width
        more = max(SLOTS, self.used - self.capacity) if self.used > self.capacity else 0
        if more:
            self.capacity += more
            self.own = [(pad(keys, (0, 0, 0, more)), pad(values, (0, 0, 0, more))) for keys, values in self.own]
        if self.unseen is None:
            return None
        if more:
            self.unseen = pad(self.unseen, (0, more), value=-torch.inf)
        self.unseen[:, :, first : self.used].diagonal(dim1=1, dim2=2).zero_()
        bias = self.unseen[:, None, :, : self.used].expand(-1, self.n_heads, -1, -1)
        return bias.reshape(-1, self.grid.width, self.used)

    def select(self, rows: Tensor, sentences: Tensor | None = None) -> None:
        """Makes each new row continue what was row rows[b, w]: reorders, drops or repeats rows.

        rows: [B', W'], NO_ROW in cells of no hypothesis; the new rows are numbered in this order, without those.
        sentences: [B'] int64, the sentence of each line, where some are dropped or repeated.
        """
        cells = self.grid.cell_of_row[rows.clamp_min(0)]  # [B', W']
        if self.unseen is None and rows.shape[1] > 1:
            self.unseen = self.own[0][0].new_full((len(self.grid.cell_of_row), 1, self.capacity), -torch.inf)
            self.unseen[:, :, : self.used] = 0
        if self.unseen is not None:
            self.unseen = self.unseen.flatten(0, 1)[cells]  # [B', W', C]
        self.grid = Grid.of(number_rows(rows != NO_ROW), self.n_heads)
        if sentences is None:
            return
        heads = (sentences[:, None] * self.n_heads + torch.arange(self.n_heads, device=rows.device)).flatten()
        self.memory = [(keys.index_select(0, heads), values.index_select(0, heads)) for keys, values in self.memory]
        self.own = [(self._filled(keys, heads), self._filled(values, heads)) for keys, values in self.own]
        if self.memory_bias is not None:
            self.memory_bias = self.memory_bias.index_select(0, heads)

    def _filled(self, cache: Tensor, heads: Tensor) -> Tensor:
        """Returns a cache of these [B'*H] of [B*H], of which what is not filled is not copied."""
        chosen = cache.new_empty(len(heads), *cache.shape[1:])
        torch.index_select(cache[:, : self.used], 0, heads, out=chosen[:, : self.used])
        return chosen
