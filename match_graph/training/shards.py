"""Tensors sharded over the processes of a run."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from match_graph.io.exchange import RowShard
from match_graph.nn.tables import put_rows


def is_sharded(value: Any) -> bool:
    """Whether a value is a tensor sharded over several processes."""
    return hasattr(value, "full_tensor")


def find_shard(value: Tensor) -> Tensor:
    """Local shard of a tensor; the tensor itself unless it is sharded."""
    shard: Tensor = value.to_local() if hasattr(value, "to_local") else value
    return shard


def spread(value: Tensor, like: Tensor, shard: RowShard | None = None) -> Tensor:
    """A whole tensor placed as another one.

    Args:
        value: Whole tensor.
        like: Whole tensor, shard or share of a table.
        shard: Rows of the table that ``like`` is; None if it is no share.
    """
    if shard is not None:
        own = torch.empty_like(like)
        put_rows(own, shard, 0, value)
        return own
    if not is_sharded(like):
        return value.to(like.device)
    from torch.distributed.tensor import distribute_tensor

    placed: Any = like
    return distribute_tensor(value.to(like.device), placed.device_mesh, placed.placements)


def load_moments(
    optimizer: torch.optim.Optimizer, groups: Any, state: Mapping[int, Mapping[str, Tensor]]
) -> None:
    """Loads moments into an optimizer, each placed as its parameter.

    Raises:
        ValueError: They are of another optimizer.
    """
    kinds = [
        [{name: type(value) for name, value in group.items()} for group in some]
        for some in (optimizer.state_dict()["param_groups"], groups)
    ]
    if kinds[0] != kinds[1]:
        raise ValueError("the optimizer has other settings")
    for number, moments in state.items():
        shape = list_parameters(optimizer)[number].shape
        if any(value.dim() and value.shape != shape for value in moments.values()):
            raise ValueError(f"the moments of parameter {number} have another shape")
    optimizer.load_state_dict({"param_groups": groups, "state": dict(state)})


def list_parameters(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """Parameters by their indices in the optimizer's state."""
    return [value for group in optimizer.param_groups for value in group["params"]]
