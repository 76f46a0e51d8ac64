"""Times up to which neighbours are drawn."""

from torch import Tensor

from match_graph.errors import GraphError


def check_times(
    time: Tensor | None, num_nodes: int, seed_type: str, limit: Tensor, num_seeds: int
) -> None:
    """Checks the times of nodes, and those up to which to draw.

    Args:
        time: Time of each node of the seeds' type, [num_nodes]; None where the graph has none.
        num_nodes: Number of these nodes.
        seed_type: Node type of the seeds.
        limit: Times up to which to draw, [num_seeds].
        num_seeds: Number of seeds.

    Raises:
        GraphError: The nodes have no times; times are not one number for each node, or for each
            seed; or those of the seeds are not of the form of the nodes'.
    """
    if time is None:
        raise GraphError(
            f"Neighbours up to a time can be drawn only where '{seed_type}' has a time, found none "
            f"in the graph; set data['{seed_type}'].time, [num_nodes]."
        )
    if list(time.shape) != [num_nodes] or _count_nan(time):
        raise GraphError(
            f"The time of '{seed_type}' must be one number for each of its {num_nodes} nodes, "
            f"found {list(time.shape)}, of which {_count_nan(time)} are NaN; give every node a "
            f"time."
        )
    if (
        list(limit.shape) != [num_seeds]
        or limit.is_floating_point() != time.is_floating_point()
        or _count_nan(limit)
    ):
        raise GraphError(
            f"The times up to which to draw must be {num_seeds} numbers of the kind of the "
            f"graph's, {time.dtype}, found {limit.dtype} {list(limit.shape)}, of which "
            f"{_count_nan(limit)} are NaN; give every seed a time."
        )


def _count_nan(values: Tensor) -> int:
    return int(values.isnan().sum()) if values.is_floating_point() else 0
