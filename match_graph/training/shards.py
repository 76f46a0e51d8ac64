"""Tensors sharded over the processes of a run."""

from typing import Any

from torch import Tensor


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
