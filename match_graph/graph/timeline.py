"""Times of nodes, and of draws up to a time."""

from functools import cached_property

from torch import Tensor

from match_graph.errors import GraphError
from match_graph.graph.view import Graph, view_graph


class Timeline:
    """The times of the nodes of the seeds' type.

    Args:
        data: The graph.
        seed_type: Node type of the seeds.
    """

    def __init__(self, data: Graph, seed_type: str) -> None:
        graph = view_graph(data)
        self.seed_type = seed_type
        self._num_nodes = graph.num_nodes(seed_type)
        self._time = graph.node_tensor(seed_type, "time")

    @cached_property
    def times(self) -> Tensor:
        """The time of each node, [num_nodes], as the graph has it.

        Raises:
            GraphError: There are no times, or they are no numbers.
        """
        if self._time is None:
            raise GraphError(
                f"Neighbours up to a time can be drawn only where '{self.seed_type}' has a time, "
                f"found none in the graph; set data['{self.seed_type}'].time, [num_nodes]."
            )
        if list(self._time.shape) != [self._num_nodes] or _count_nan(self._time):
            raise GraphError(
                f"The time of '{self.seed_type}' must be one number for each of its "
                f"{self._num_nodes} nodes, found {list(self._time.shape)}, of which "
                f"{_count_nan(self._time)} are NaN; give every node a time."
            )
        return self._time

    def check_limits(self, limit: Tensor, num_seeds: int) -> None:
        """Checks the times up to which to draw.

        Raises:
            GraphError: They are not one number for each seed, or of another form than the graph's;
                or the graph has no times.
        """
        times = self.times
        if (
            list(limit.shape) != [num_seeds]
            or limit.is_floating_point() != times.is_floating_point()
            or _count_nan(limit)
        ):
            raise GraphError(
                f"The times up to which to draw must be {num_seeds} numbers of the kind of the "
                f"graph's, {times.dtype}, found {limit.dtype} {list(limit.shape)}, of which "
                f"{_count_nan(limit)} are NaN; give every seed a time."
            )


def _count_nan(values: Tensor) -> int:
    return int(values.isnan().sum()) if values.is_floating_point() else 0
