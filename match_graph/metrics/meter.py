"""Base of meters, which count batch by batch and are summed over processes."""

from collections.abc import Callable, Mapping
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
            found = total(_as_tensor(getattr(self, name)))
            is_tensor = isinstance(getattr(self, name), Tensor)
            setattr(self, name, found if is_tensor else found.item())

    def state(self) -> dict[str, Tensor]:
        """Counts by name, as `add` takes them."""
        return {name.lstrip("_"): _as_tensor(getattr(self, name)) for name in self.summed}

    def add(self, state: Mapping[str, Tensor]) -> None:
        """Adds the counts of another meter, from its `state`."""
        for name in self.summed:
            value, more = getattr(self, name), state[name.lstrip("_")]
            setattr(self, name, value + (more if isinstance(value, Tensor) else more.item()))


def _as_tensor(value: Tensor | float) -> Tensor:
    if isinstance(value, Tensor):
        return value
    return torch.tensor(value, dtype=torch.float64 if isinstance(value, float) else torch.int64)


def add_to_bins(histogram: Tensor, place: Tensor) -> None:
    """Adds one at flat places [N], int64, which may repeat, of a histogram of any shape."""
    one = torch.ones(1, dtype=histogram.dtype).expand(place.numel())
    histogram.view(-1).index_add_(0, place, one)
