"""Polynomial-decay averaging of a model's weights."""

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from match_graph.errors import CheckpointError
from match_graph.training.shards import find_shard

#: Every step up to this one is averaged, then one in `_EVERY`.
_SETTLED, _EVERY = 64, 8


class WeightAverage:
    r"""Average of a model's parameters over a share of the steps so far; buffers stay its own.

    .. math::
        \bar w_t = \bar w_{t-1} + \frac{\eta + 1}{t + \eta} (w_t - \bar w_{t-1}),
        \quad \eta = \frac{1}{share} - 2

    so that the weights averaged at step t are share * t steps old on average. Source: the
    polynomial-decay averaging of Shamir and Zhang 2013, https://arxiv.org/abs/1212.1824. An
    exponential average that reaches as far back at the end of a training lags at its beginning.
    With a share of 1/2 all steps count alike: from a later epoch on, that is stochastic weight
    averaging (Izmailov et al. 2018, https://arxiv.org/abs/1803.05407).

    After the first steps only every 8th is averaged, with the weight of all 8: to read and write
    all parameters at every step would cost time. An update depends on the step and the two sets of
    weights alone, so that a resumed training needs no other state.

    As `torch.optim.swa_utils.AveragedModel`, but without a second model: so it also serves sharded
    models, which cannot be copied.

    Args:
        model: Model on its device; its parameters are read at every `update`.
        share: Share of the steps so far to average over, in 0..0.5 without 0; 0.5 is the mean of
            all.
        after: Number of epochs before the average starts, which the caller keeps to.
    """

    def __init__(self, model: nn.Module, share: float, after: int = 0) -> None:
        parameters = [
            parameter.detach() for parameter in model.parameters() if parameter.requires_grad
        ]
        self.eta, self.after = 1 / share - 2, after
        self.values = [parameter.clone() for parameter in parameters]
        self._own, self._averages = (
            [find_shard(value) for value in values] for values in (parameters, self.values)
        )
        self._left_out: set[int] = set()  # indices of parameters

    def update(self, step: int) -> None:
        """Updates the average, unless `keeps` leaves the step out.

        Args:
            step: Step number, 1 for the first that is averaged; nothing happens before it. Steps
                must be given in order.
        """
        kept = self.keeps(step)
        if kept == 1:
            return
        averages, own = (
            [value for place, value in enumerate(values) if place not in self._left_out]
            for values in (self._averages, self._own)
        )
        if own:
            torch._foreach_lerp_(averages, own, 1 - kept)

    def keeps(self, step: int) -> float:
        """Weight of the old average in the update of a step; 1 if the step is not averaged.

        Args:
            step: Step number, as for `update`.
        """
        number = 1 if step <= _SETTLED else _EVERY
        if step < 1 or step % number:
            return 1.0
        taken = range(step - number + 1, step + 1)
        return math.prod(1 - (self.eta + 1) / (one + self.eta) for one in taken)

    def leave_out(self, parameter: Tensor) -> Tensor:
        """Excludes a parameter from `update`; returns its average, which the caller updates."""
        place = self._place(parameter)
        self._left_out.add(place)
        return self._averages[place]

    def take_in(self, parameter: Tensor) -> None:
        """Includes a parameter in `update` again."""
        self._left_out.discard(self._place(parameter))

    def _place(self, parameter: Tensor) -> int:
        pointers = [value.data_ptr() for value in self._own]
        return pointers.index(find_shard(parameter).data_ptr())

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
        """Restores averages, each of its parameter's shape and placement.

        Raises:
            CheckpointError: They are of another model.
        """
        here, there = ([list(value.shape) for value in part] for part in (self.values, values))
        if here != there:
            raise CheckpointError(f"Averages must be of the shapes {here}, found {there}.")
        torch._foreach_copy_(self._averages, [find_shard(value) for value in values])
