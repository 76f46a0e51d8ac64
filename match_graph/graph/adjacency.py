"""Neighbour lists (CSR), in memory or memory-mapped, and their reachable part."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch_geometric.utils import lexsort

from match_graph.errors import GraphError
from match_graph.graph.csr import make_ptr, ragged_arange, row_index, sorted_row_ptr
from match_graph.typing import EdgeType


@dataclass(frozen=True)
class Adjacency:
    """The neighbours of every node by one edge type, followed forwards or backwards.

    Args:
        edge_type: Edge type as it stands in the graph.
        backwards: Whether the edge type is followed from the second row of ``edge_index`` to the
            first.
        ptr: Offsets per source node, [num_nodes + 1], int64.
        node: Packed neighbours, [E], int32 or int64.
        edge: Index into ``edge_index`` of each neighbour's edge, [E], dtype of ``node``; None if
            the packed order is that of ``edge_index``.
        stop: End of each list's training neighbours, which come first; both parts are sorted by
            time where the neighbours have one. [num_nodes], int64; None where the lists are not
            sorted so.
    """

    edge_type: EdgeType
    backwards: bool
    ptr: Tensor
    node: Tensor
    edge: Tensor | None
    stop: Tensor | None = None

    @classmethod
    def from_edges(
        cls,
        edge_type: EdgeType,
        edge_index: Tensor,
        num_sources: int,
        position: Tensor | None = None,
    ) -> "Adjacency":
        """Lists by source in the order of the edges; `by_training` gives those by target.

        Args:
            edge_type: Edge type as it stands in the graph.
            edge_index: Edges in any order, [2, E].
            num_sources: Number of nodes that have lists.
            position: Position of each edge, which then orders each list, [E]; None for none.

        Raises:
            GraphError: There is not one position for each edge.
        """
        row, col = edge_index
        edge = _find_order(edge_type, row, position)
        if edge is not None:
            row, col = row[edge], col[edge]
        return cls(edge_type, False, sorted_row_ptr(row, num_sources), col, narrow(edge))

    @classmethod
    def by_training(
        cls,
        edge_type: EdgeType,
        edge_index: Tensor,
        num_targets: int,
        train: Tensor | None,
        time: Tensor | None,
    ) -> "Adjacency":
        """Lists by target in the order of a built graph: training first, then by time, by index.

        Args:
            edge_type: Edge type as it stands in the graph.
            edge_index: Edges in any order, [2, E].
            num_targets: Number of nodes that have lists.
            train: Mask of the training sources, bool; None takes all as such.
            time: Time of each source; None if they have none.
        """
        row, col = edge_index
        keys = [row] if time is None else [row, time[row.long()]]
        num_train = torch.bincount(col, minlength=num_targets)
        if train is not None:
            is_train = train[row.long()]
            num_train = torch.bincount(col[is_train], minlength=num_targets)
            keys.append(~is_train)
        edge = lexsort([*keys, col])
        ptr = sorted_row_ptr(col[edge], num_targets)
        return cls(edge_type, True, ptr, row[edge], narrow(edge), ptr[:-1] + num_train)

    @property
    def source(self) -> str:
        """Type of the nodes that have neighbours here."""
        return self.edge_type[2] if self.backwards else self.edge_type[0]

    @property
    def target(self) -> str:
        """Type of the neighbours."""
        return self.edge_type[0] if self.backwards else self.edge_type[2]

    def bounds(self, node: Tensor) -> tuple[Tensor, Tensor]:
        """Start and end of the lists of nodes [R], int64; empty lists for nodes past the graph."""
        last = self.ptr.numel() - 1
        if not last:
            return torch.zeros_like(node), torch.zeros_like(node)
        known = node.clamp(max=last - 1)
        start = self.ptr[known]
        return start, torch.where(node < last, self.ptr[known + 1], start)

    def degree(self, node: Tensor) -> Tensor:
        """Number of neighbours of nodes [R], int64; 0 for nodes past the graph."""
        start, end = self.bounds(node)
        return end - start

    def find(self, node: Tensor, count: Tensor, offset: Tensor) -> tuple[Tensor, Tensor]:
        """Chosen neighbours and the edges that lead to them, [sum(count)], int64 each.

        Args:
            node: Source nodes, [R], int64.
            count: Number of neighbours chosen for each node, [R], int64.
            offset: Chosen positions in the nodes' neighbour lists, packed, [sum(count)], int64.
        """
        start = self.ptr[node.clamp(max=self.ptr.numel() - 1)]
        return self.look_up(
            torch.repeat_interleave(start, count, output_size=offset.numel()) + offset
        )

    def look_up(self, place: Tensor) -> tuple[Tensor, Tensor]:
        """Neighbours and edges at places [N] of the lists, int64 each."""
        edge = place if self.edge is None else self.edge[place].to(torch.int64)
        return self.node[place].to(torch.int64), edge


def narrow(index: Tensor | None) -> Tensor | None:
    """Indices as int32 where there are fewer than 2^31."""
    return index if index is None or index.numel() >= 2**31 else index.to(torch.int32)


@dataclass(frozen=True)
class ReachableLists:
    """Neighbour lists restricted to reachable neighbours, by a mask and by time.

    In lists that are sorted by training and time the reachable part is found by binary search;
    others (forward lists, which are short, and those under any other mask) are scanned.

    Args:
        lists: Neighbour lists, not copied.
        mask: Mask of the reachable neighbours, [num_targets], bool; None for all.
        is_training: Whether the mask is the training mask by which the lists are sorted.
        time: Time of each neighbour, [num_targets]; None without time limits.
    """

    lists: Adjacency
    mask: Tensor | None = None
    is_training: bool = False
    time: Tensor | None = None

    def find_candidates(self, node: Tensor, limit: Tensor | None) -> "Candidates":
        """Reachable neighbours of some nodes.

        Args:
            node: Nodes, [R], int64.
            limit: Latest time of each node's neighbours, [R]; None for any.
        """
        start, end = self.lists.bounds(node)
        limit = None if self.time is None else limit
        if self.mask is None and limit is None:
            return Candidates(self.lists, start, end - start)
        if self.lists.stop is None or (self.mask is not None and not self.is_training):
            return self._scan(start, end, limit)
        stop = self.lists.stop[node.clamp(max=max(self.lists.stop.numel() - 1, 0))]
        stop = torch.minimum(stop, end)  # empty for nodes past the graph
        if limit is None:
            return Candidates(self.lists, start, stop - start)
        first = self._search(start, stop, limit) - start
        if self.mask is not None:
            return Candidates(self.lists, start, first)
        return Candidates(
            self.lists, start, first + self._search(stop, end, limit) - stop, first, stop
        )

    def _search(self, start: Tensor, end: Tensor, limit: Tensor) -> Tensor:
        """The first place in each part of a list whose time is later than its limit, [R]."""
        assert self.time is not None
        low, high = start, end
        for _ in range(int((end - start).max()).bit_length() if start.numel() else 0):
            middle = (low + high) // 2
            is_open = low < high
            place = torch.where(is_open, middle, 0)  # a valid place
            early = self.time[self.lists.node[place].long()] <= limit
            low = torch.where(is_open & early, middle + 1, low)
            high = torch.where(is_open & ~early, middle, high)
        return low

    def _scan(self, start: Tensor, end: Tensor, limit: Tensor | None) -> "Candidates":
        place = ragged_arange(start, end - start)
        row = row_index(make_ptr(end - start))
        node = self.lists.node[place].long()
        kept = torch.ones_like(node, dtype=torch.bool) if self.mask is None else self.mask[node]
        if limit is not None and self.time is not None:
            time = self.time[node]
            kept = kept & (time <= limit[row])
            order = lexsort([time, row])
            place, row, kept = place[order], row[order], kept[order]
        count = torch.bincount(row[kept], minlength=start.numel())
        return Candidates(self.lists, make_ptr(count)[:-1], count, places=place[kept])


@dataclass(frozen=True)
class Candidates:
    """Reachable neighbours in R lists: a range of each list, two ranges, or listed places.

    Args:
        lists: Neighbour lists.
        start: Place of the first candidate of each list, or its index in ``places``, [R], int64.
        degree: Number of candidates of each list, [R], int64.
        first: Number of candidates in the first of two ranges, [R]; None for one range.
        other: Place at which the second range begins, [R].
        places: Places of all candidates, packed, int64; None where they are ranges.
    """

    lists: Adjacency
    start: Tensor
    degree: Tensor
    first: Tensor | None = None
    other: Tensor | None = None
    places: Tensor | None = None

    def take(self, row: Tensor, offset: Tensor) -> tuple[Tensor, Tensor]:
        """Neighbours and edges at offsets [N] among the candidates of lists [N], int64."""
        place = self.start[row] + offset
        if self.first is not None and self.other is not None:
            beyond = offset - self.first[row]
            place = torch.where(beyond < 0, place, self.other[row] + beyond)
        if self.places is not None:
            place = self.places[place]
        return self.lists.look_up(place)


def check_times(
    time: Tensor | None, num_nodes: int, seed_type: str, limit: Tensor, num_seeds: int
) -> None:
    """Checks the times of nodes, and those up to which to sample.

    Args:
        time: Time of each node of the seeds' type, [num_nodes]; None where the graph has none.
        num_nodes: Number of these nodes.
        seed_type: Node type of the seeds.
        limit: Times up to which to sample, [num_seeds].
        num_seeds: Number of seeds.

    Raises:
        GraphError: The nodes have no times; times are not one number for each node, or for each
            seed; or those of the seeds are not of the form of the nodes'.
    """
    if time is None:
        raise GraphError(
            f"Neighbours up to a time can be sampled only where '{seed_type}' has a time, found "
            f"none in the graph; set data['{seed_type}'].time, [num_nodes]."
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
            f"The times up to which to sample must be {num_seeds} numbers of the kind of the "
            f"graph's, {time.dtype}, found {limit.dtype} {list(limit.shape)}, of which "
            f"{_count_nan(limit)} are NaN; give every seed a time."
        )


def _find_order(edge_type: EdgeType, row: Tensor, position: Tensor | None) -> Tensor | None:
    """Order of edges by source, then position if they have one, [E]; None if already sorted.

    Raises:
        GraphError: There is not one position for each edge.
    """
    if position is None:
        return row.argsort(stable=True) if bool((row[1:] < row[:-1]).any()) else None
    if position.numel() != row.numel():
        raise GraphError(
            f"Each edge must have one position, but {edge_type} has {row.numel():,} edges and "
            f"positions {list(position.shape)}; give one number for each."
        )
    position = position.view(-1)
    same, ahead = row[1:] == row[:-1], row[1:] > row[:-1]
    is_sorted = bool((ahead | (same & (position[1:] >= position[:-1]))).all())
    return None if is_sorted else lexsort([position, row])


def _count_nan(values: Tensor) -> int:
    return int(values.isnan().sum()) if values.is_floating_point() else 0
