"""Tensors sharded over the processes of a run."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn


def is_sharded(value: Any) -> bool:
    """Whether a value is a tensor sharded over several processes."""
    return hasattr(value, "full_tensor")


def find_shard(value: Tensor) -> Tensor:
    """Local shard of a tensor; the tensor itself unless it is sharded."""
    shard: Tensor = value.to_local() if hasattr(value, "to_local") else value
    return shard


def spread(value: Tensor, like: Tensor) -> Tensor:
    """A whole tensor placed as another one."""
    if not is_sharded(like):
        return value.to(like.device)
    from torch.distributed.tensor import distribute_tensor

    placed: Any = like
    return distribute_tensor(value.to(like.device), placed.device_mesh, placed.placements)


def spread_weights(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Loads whole weights into a model, whose parameters may be shards.

    Raises:
        ValueError: They are not finite.
        RuntimeError: They are of another model.
    """
    here = model.state_dict()
    for name, value in weights.items():
        if value.is_floating_point() and not bool(value.isfinite().all()):
            raise ValueError(f"the weights '{name}' are not finite")
    placed = {
        name: spread(value, here[name]) if name in here else value
        for name, value in weights.items()
    }
    model.load_state_dict(placed)


def spread_moments(optimizer: torch.optim.Optimizer, content: Mapping[str, Any]) -> None:
    """Loads whole moments into an optimizer, whose parameters may be shards.

    Raises:
        ValueError: They are of another optimizer.
    """
    parameters = [value for group in optimizer.param_groups for value in group["params"]]
    groups = [
        [{name: type(value) for name, value in group.items()} for group in state["param_groups"]]
        for state in (optimizer.state_dict(), content)
    ]
    if groups[0] != groups[1]:
        raise ValueError("the optimizer has other settings")
    for number, moments in content["state"].items():
        if not 0 <= number < len(parameters):
            raise ValueError(f"there is no parameter {number}")
        for value in moments.values():
            if value.dim() and value.shape != parameters[number].shape:
                raise ValueError(f"the moments of parameter {number} have another shape")
    state = {
        number: {
            name: spread(value, parameters[number]) if value.dim() else value  # or a count
            for name, value in moments.items()
        }
        for number, moments in content["state"].items()
    }
    optimizer.load_state_dict({**content, "state": state})
