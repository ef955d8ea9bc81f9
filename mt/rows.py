"""Rows of a search: how hypotheses, some of them missing, are numbered. The search and the model agree on it."""

from torch import Tensor

NO_ROW = -1  # stands in cells of no hypothesis


def number_rows(there: Tensor) -> Tensor:
    """Returns the numbers [B, W] int64 of the rows in cells where there is one, NO_ROW elsewhere."""
    return (there.flatten().cumsum(0).view_as(there) - 1).masked_fill(~there, NO_ROW)
