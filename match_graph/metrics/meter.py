"""Base of meters: counted batch by batch, summed over processes."""

from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor


class Meter:
    """Counts over batches, from which measures are computed at the end.

    A subclass names the attributes that are ``summed`` over the processes that share the batches:
    tensors and numbers.
    """

    summed: ClassVar[tuple[str, ...]]

    def reduce(self, total: Callable[[Tensor], Tensor]) -> None:
        """Sums the counts over all processes; ``total`` sums a tensor over them."""
        for name in self.summed:
            value = getattr(self, name)
            if isinstance(value, Tensor):
                setattr(self, name, total(value))
            else:
                dtype = torch.float64 if isinstance(value, float) else torch.int64
                setattr(self, name, total(torch.tensor(value, dtype=dtype)).item())


def add_to_bins(histogram: Tensor, place: Tensor) -> None:
    """Adds one at flat places [N], int64, which may repeat, of a histogram of any shape."""
    one = torch.ones(1, dtype=histogram.dtype).expand(place.numel())
    histogram.view(-1).index_add_(0, place, one)
