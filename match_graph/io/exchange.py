"""Embedding tables sharded by rows over processes, with exchange of the rows that each needs.

All communication is ``all_to_all_single`` with ragged splits, which gloo and NCCL both support.
`RowShard` maps rows to the processes that own them; `RowRoute` fetches requested rows from their
owners and sends values for them back. These are collectives: every process must create a route,
fetch and send in the same order, even if it requests no row.

DTensor's row-sharded embedding is no substitute: it needs the same tokens on all processes and sums
full outputs [N, C], so that each process would look up the documents of all.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, distributed

#: Buckets over which rows are distributed round-robin.
_BUCKETS = 64
#: Rows in memory at once where a table is processed in blocks.
BLOCK_ROWS = 65_536


@dataclass(frozen=True)
class RowShard:
    """Shard of a table's rows that one of several processes owns.

    Row r belongs to bucket r % 64, the buckets are concatenated, and each process owns a contiguous
    range of that order, of equal size but for the last ones. As rows are sorted by frequency within
    a type, contiguous rows would make one process serve all others. The bucket order does not
    depend on the number of processes: a checkpoint of some can be read by others.

    Args:
        num_rows: Number of rows V of the table.
        rank: Rank of the process.
        num_processes: Number of processes W.
    """

    num_rows: int
    rank: int
    num_processes: int

    @classmethod
    def here(cls, num_rows: int) -> "RowShard":
        """Shard of this process in the default process group; all rows without a group."""
        if not distributed.is_initialized():
            return cls(num_rows, 0, 1)
        return cls(num_rows, distributed.get_rank(), distributed.get_world_size())

    @property
    def stops(self) -> list[int]:
        """End of each process's range in bucket order, exclusive."""
        most = -(-self.num_rows // self.num_processes)
        return [min(rank * most, self.num_rows) for rank in range(1, self.num_processes + 1)]

    @property
    def span(self) -> tuple[int, int]:
        """Range of the process in bucket order: start and exclusive end."""
        start, stop = ([0, *self.stops])[self.rank : self.rank + 2]
        return start, stop

    @property
    def size(self) -> int:
        """Number of rows that the process owns, at most V / W rounded up."""
        start, stop = self.span
        return stop - start

    def place(self, row: Tensor) -> Tensor:
        """Positions of rows in bucket order, any shape, int64."""
        height, taller = divmod(self.num_rows, _BUCKETS)  # the first buckets have one row more
        bucket = row % _BUCKETS
        return bucket * height + bucket.clamp(max=taller) + row // _BUCKETS

    def find_own(self, first: int, last: int) -> tuple[Tensor, Tensor]:
        """Rows of a range that the process owns: indices in the table and in its shard, [n]."""
        row = torch.arange(first, last)
        start, stop = self.span
        local = self.place(row) - start
        own = (local >= 0) & (local < stop - start)
        return row[own], local[own]


class RowRoute:
    """Exchange between the processes that request rows of a sharded table and their owners.

    Args:
        shard: Shard of this process.
        row: Rows that this process requests, [M], int64, on the device of the table.
    """

    def __init__(self, shard: RowShard, row: Tensor) -> None:
        place = shard.place(row)
        sorted_place, self._order = place.sort(stable=True)
        edges = torch.searchsorted(sorted_place, sorted_place.new_tensor(shard.stops))
        count = edges.diff(prepend=edges.new_zeros(1))
        asked = torch.empty_like(count)
        distributed.all_to_all_single(asked, count)
        # Rows requested from each process, and rows that each process requests from this one.
        self._requested: list[int] = count.tolist()
        self._served: list[int] = asked.tolist()
        received = exchange_rows(sorted_place, self._requested, self._served)
        #: Indices in this shard of the rows that all processes request, [R], int64, by rank.
        self.local = received - shard.span[0]

    def fetch(self, values: Tensor) -> Tensor:
        """Requested rows of the table, in the order of the request, [M, ...].

        Args:
            values: This process's shard of the table, [size, ...].
        """
        return self.deliver(values.index_select(0, self.local))

    def deliver(self, values: Tensor) -> Tensor:
        """Sends values of the rows at `local` to the processes that requested them.

        Args:
            values: Values of the rows at `local`, [R, ...].

        Returns:
            Values of this process's requested rows, in the order of the request, [M, ...].
        """
        found = exchange_rows(values, self._served, self._requested)
        return torch.empty_like(found).index_copy_(0, self._order, found)

    def send(self, values: Tensor) -> Tensor:
        """Sends values for the requested rows, such as gradients, to their owners.

        Args:
            values: Values in the order of the request, [M, ...].

        Returns:
            Values that all processes sent for the rows at `local`, [R, ...].
        """
        return exchange_rows(values.index_select(0, self._order), self._requested, self._served)


def exchange_rows(values: Tensor, sent: list[int], received: list[int]) -> Tensor:
    """All-to-all exchange of rows: those that all processes sent to this one, by rank.

    Args:
        values: Rows for each process, by rank, [sum of sent, ...].
        sent: Number of rows for each process.
        received: Number of rows from each process.

    Returns:
        Received rows, [sum of received, ...].
    """
    found = values.new_empty(sum(received), *values.shape[1:])
    distributed.all_to_all_single(found, values.contiguous(), received, sent)
    return found
