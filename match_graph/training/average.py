"""The moving average of a model's weights: validated and kept instead of the last ones."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from match_graph.errors import CheckpointError


class WeightAverage:
    """Exponential moving average of parameters; buffers and the wide term stay the model's own.

    Averaging the wide term would touch every row at every step, where the step itself touches the
    batch's.

    As `torch.optim.swa_utils.AveragedModel` with `get_ema_multi_avg_fn`, without a second model:
    so it also serves models whose parameters are spread over processes, which cannot be copied.

    Args:
        model: On its device; its parameters are read at every `update`.
        decay: Weight of the past.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        parameters = [
            parameter.detach()
            for name, parameter in model.named_parameters()
            if parameter.requires_grad and not name.startswith("wide.")
        ]
        self.decay = decay
        self.values = [parameter.clone() for parameter in parameters]
        self.is_empty = True
        self._own, self._averages = _find_shards(parameters), _find_shards(self.values)

    def update(self) -> None:
        """Takes the model's parameters in; the first time alone."""
        if self.is_empty:
            torch._foreach_copy_(self._averages, self._own)
        else:
            torch._foreach_lerp_(self._averages, self._own, 1 - self.decay)
        self.is_empty = False

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Within the block the model has the averaged parameters."""
        kept = [parameter.clone() for parameter in self._own]
        torch._foreach_copy_(self._own, self._averages)
        try:
            yield
        finally:
            torch._foreach_copy_(self._own, kept)

    def load(self, values: list[Tensor]) -> None:
        """Goes on from averages, each of its parameter's shape and placement.

        Raises:
            CheckpointError: They are of another model.
        """
        here, there = ([list(value.shape) for value in part] for part in (self.values, values))
        if here != there:
            raise CheckpointError(f"Averages must be of the shapes {here}, found {there}.")
        torch._foreach_copy_(self._averages, _find_shards(values))
        self.is_empty = False


def _find_shards(values: list[Tensor]) -> list[Tensor]:
    """What of each tensor lies in this process: the tensor itself, unless it lies in parts."""
    return [value.to_local() if hasattr(value, "to_local") else value for value in values]
