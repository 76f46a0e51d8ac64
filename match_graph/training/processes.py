"""Collectives of a run's processes: lead, sum, gather."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import cache
from typing import Any, TypeVar

import torch
from lightning_fabric import Fabric
from torch import Tensor, distributed

from match_graph.training.heartbeat import alone

T = TypeVar("T")
#: How long processes wait for the one that builds or pre-trains, while its heartbeat goes on.
_PATIENCE = timedelta(days=30)


def lead(fabric: Fabric, work: Callable[[], T]) -> T | None:
    """Runs work, such as writing, on process 0 only; the others wait until it is done.

    They wait as long as it takes: a build or a pre-training may outlast the time after which a
    process counts as lost elsewhere.

    Returns:
        What ``work`` returned; None on the other processes.

    Raises:
        SystemExit: On the others, where ``work`` failed; process 0 raises its error and says why.
    """
    if fabric.world_size == 1:
        return work()
    result, failure = None, None
    if fabric.is_global_zero:
        try:
            with alone():
                result = work()
        except BaseException as error:
            failure = error
    failed = any_of(fabric, failure is not None)
    if failure is not None:
        raise failure
    if failed:
        raise SystemExit(1)
    return result


def sum_up(fabric: Fabric, values: Tensor) -> Tensor:
    """The sum of a tensor over all processes, on the CPU of every process."""
    values = values.detach().cpu().clone()
    if fabric.world_size > 1:
        distributed.all_reduce(values, group=_patient_group())
    return values


def lead_all(fabric: Fabric, work: Callable[[], T]) -> T:
    """Runs work on process 0 first, then on the others, which open what it built."""
    found = lead(fabric, work)
    return work() if found is None else found


def any_of(fabric: Fabric, flag: bool) -> bool:
    """Logical or of a flag over all processes."""
    return bool(sum_up(fabric, torch.tensor(int(flag))))


def sum_squares(values: Sequence[Tensor], device: torch.device) -> Tensor:
    """Sum of the squares of all processes' values, on the device."""
    norms = [torch.linalg.vector_norm(value) for value in values if value.numel()]
    total = torch.stack(norms).square().sum() if norms else torch.zeros((), device=device)
    distributed.all_reduce(total)
    return total


def gather(fabric: Fabric, values: Tensor) -> Tensor:
    """The tensors of all processes, of one shape, by their ranks: [num_processes, ...], CPU."""
    values = values.detach().cpu().contiguous()
    if fabric.world_size == 1:
        return values.unsqueeze(0)
    parts = [torch.empty_like(values) for _ in range(fabric.world_size)]
    distributed.all_gather(parts, values, group=_patient_group())
    return torch.stack(parts)


def gather_objects(fabric: Fabric, content: T) -> list[T]:
    """Values of all processes, by rank; pickled in transit."""
    found: list[Any] = [None] * fabric.world_size
    distributed.all_gather_object(found, content, group=_patient_group())
    return found


@cache
def _patient_group() -> distributed.ProcessGroup:
    """All processes, by gloo on CPU tensors: waiting there blocks no GPU."""
    return distributed.new_group(backend="gloo", timeout=_PATIENCE)
