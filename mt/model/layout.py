"""Where each sentence lies in a packed stream of tokens."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor


@dataclass(frozen=True)
class Layout:
    """B sentences laid end to end in a stream of N tokens, without padding.

    `lengths` are kept on the host, so that shapes can be decided without waiting for a GPU.
    """

    lengths: tuple[int, ...]  # B sentence lengths in tokens
    cumulative_lengths: Tensor  # [B+1] int32: sentence b is stream[cumulative_lengths[b]:cumulative_lengths[b+1]]
    positions: Tensor  # [N] int64: index of each token in its sentence, from 0
    longest: int  # the largest of the lengths, or more where shapes are to repeat

    @staticmethod
    def from_lengths(lengths: Sequence[int], device: torch.device | str = "cpu") -> "Layout":
        """Returns the layout of sentences with these lengths."""
        count = torch.tensor(lengths, dtype=torch.int64)
        cumulative = torch.zeros(len(lengths) + 1, dtype=torch.int64)
        torch.cumsum(count, 0, out=cumulative[1:])
        positions = torch.arange(int(cumulative[-1])) - torch.repeat_interleave(cumulative[:-1], count)
        sizes = tuple(int(n) for n in lengths)
        return Layout(sizes, cumulative.to(torch.int32).to(device), positions.to(device), max(sizes, default=0))

    @cached_property
    def flat_index(self) -> Tensor:
        """[N] int64: where each token lies in the flattened padded form [B * longest]."""
        count = torch.tensor(self.lengths, dtype=torch.int64)
        sentence = torch.repeat_interleave(torch.arange(len(self.lengths)), count).to(self.positions.device)
        return sentence * self.longest + self.positions

    @cached_property
    def mask(self) -> Tensor:
        """[B, longest] bool: True where the padded form holds a token."""
        device = self.positions.device
        count = torch.tensor(self.lengths, dtype=torch.int64).to(device)
        return torch.arange(self.longest, device=device) < count[:, None]

    def moved(self, move: Callable[[Tensor], Tensor]) -> "Layout":
        """Returns the layout with its tensors passed through `move`: to another device or kind of memory."""
        return Layout(self.lengths, move(self.cumulative_lengths), move(self.positions), self.longest)

    def traceable(self) -> "Layout":
        """Returns the layout for code that torch.compile traces, and compiles anew where a number differs.

        Without the lengths, which differ in each batch; the number of sentences is marked as one that varies.
        """
        torch._dynamo.mark_dynamic(self.cumulative_lengths, 0)
        return Layout((), self.cumulative_lengths, self.positions, self.longest)

    def pad(self, stream: Tensor) -> Tensor:
        """Returns [B, longest, ...] of a stream [N, ...], zero where there is no token."""
        padded = stream.new_zeros(len(self.lengths) * self.longest, *stream.shape[1:])
        padded = padded.index_copy(0, self.flat_index, stream)
        return padded.view(len(self.lengths), self.longest, *stream.shape[1:])

    def unpad(self, padded: Tensor) -> Tensor:
        """Returns the stream [N, ...] of a padded tensor [B, longest, ...]."""
        return padded.flatten(0, 1).index_select(0, self.flat_index)


def equal_length_groups(q_layout: Layout, k_layout: Layout) -> list[tuple[int, slice, slice]]:
    """Returns runs of neighbouring sentences that agree in both lengths: how many, and where in the two streams.

    Inside a run the stream *is* the padded form, so attention needs neither padding nor masks.
    """
    groups: list[tuple[int, slice, slice]] = []
    pairs = zip(q_layout.lengths, k_layout.lengths, strict=True)
    q_start = k_start = 0
    for (q_length, k_length), run in itertools.groupby(pairs):
        count = sum(1 for _ in run)
        q_end, k_end = q_start + count * q_length, k_start + count * k_length
        groups.append((count, slice(q_start, q_end), slice(k_start, k_end)))
        q_start, k_start = q_end, k_end
    return groups
