"""Tables sharded by rows over processes: rows are fetched from their owners and sent back.

Everything goes through ``all_to_all_single`` with ragged splits, which gloo and NCCL both have.
`RowShard` says who owns which row, `RowRoute` brings rows that a process names to it and values
for them back. Every process must make a route, and fetch and send by it, in the same order, also
where it names no row at all.

DTensor's embedding is no substitute: its weight in rows needs the same tokens on all processes and
sums full outputs [N, C], so that each would have to look up the documents of all.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, distributed

#: Decks that rows are dealt into.
_DECKS = 64
#: Rows that exist at once where a table goes by in blocks.
BLOCK_ROWS = 65_536


@dataclass(frozen=True)
class RowShard:
    """Rows of a table that one of several processes holds.

    Rows are dealt into 64 decks, row r into deck r % 64, and the decks stacked; a process holds an
    equal share of the stack, its last ones perhaps less. Rows are ordered by frequency within a
    type, so that consecutive ones would make one process serve all others. The stack does not
    depend on the number of processes: what was written by some can be read by others.

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
        """The share of this process among those of the default group; all rows without one."""
        if not distributed.is_initialized():
            return cls(num_rows, 0, 1)
        return cls(num_rows, distributed.get_rank(), distributed.get_world_size())

    @property
    def stops(self) -> list[int]:
        """The place of the stack behind the last one of each process."""
        most = -(-self.num_rows // self.num_processes)
        return [min(rank * most, self.num_rows) for rank in range(1, self.num_processes + 1)]

    @property
    def span(self) -> tuple[int, int]:
        """First place of the stack that the process holds, and the one behind its last."""
        start, stop = ([0, *self.stops])[self.rank : self.rank + 2]
        return start, stop

    @property
    def size(self) -> int:
        """Number of rows that the process holds, at most V / W rounded up."""
        start, stop = self.span
        return stop - start

    def place(self, row: Tensor) -> Tensor:
        """Places of rows in the stack, any shape, int64."""
        height, taller = divmod(self.num_rows, _DECKS)  # the first decks have one row more
        deck = row % _DECKS
        return deck * height + deck.clamp(max=taller) + row // _DECKS

    def find_own(self, first: int, last: int) -> tuple[Tensor, Tensor]:
        """The process's rows of a range: their numbers and where they lie in its share, [n]."""
        row = torch.arange(first, last)
        start, stop = self.span
        local = self.place(row) - start
        own = (local >= 0) & (local < stop - start)
        return row[own], local[own]


class RowRoute:
    """Way between the processes that name rows of a sharded table and those that hold them.

    Args:
        shard: Share of this process.
        row: Rows that this process names, [M], int64, on the device of the table.
    """

    def __init__(self, shard: RowShard, row: Tensor) -> None:
        place = shard.place(row)
        sorted_place, self._order = place.sort(stable=True)
        edges = torch.searchsorted(sorted_place, sorted_place.new_tensor(shard.stops))
        count = edges.diff(prepend=edges.new_zeros(1))
        asked = torch.empty_like(count)
        distributed.all_to_all_single(asked, count)
        #: How many rows go to each process and come from it, where this one names them.
        self._named: list[int] = count.tolist()
        self._held: list[int] = asked.tolist()
        received = exchange_rows(sorted_place, self._named, self._held)
        #: Where the rows that all processes name lie in this one's share, [R], int64, by rank.
        self.local = received - shard.span[0]

    def fetch(self, values: Tensor) -> Tensor:
        """Rows of the table in the order they were named, [M, ...].

        Args:
            values: This process's share of the table, [size, ...].
        """
        return self.deliver(values.index_select(0, self.local))

    def deliver(self, values: Tensor) -> Tensor:
        """Values of the rows at `local` to those who named them.

        Args:
            values: What this process holds for the rows at `local`, [R, ...].

        Returns:
            Values in the order in which the rows were named, [M, ...].
        """
        found = exchange_rows(values, self._held, self._named)
        return torch.empty_like(found).index_copy_(0, self._order, found)

    def send(self, values: Tensor) -> Tensor:
        """Values for the named rows to their owners.

        Args:
            values: Values in the order in which the rows were named, [M, ...].

        Returns:
            What all processes sent for the rows at `local`, [R, ...].
        """
        return exchange_rows(values.index_select(0, self._order), self._named, self._held)


def exchange_rows(values: Tensor, sent: list[int], received: list[int]) -> Tensor:
    """What all processes sent to this one, by rank, [sum of received, ...].

    Args:
        values: Rows for each process, by rank, [sum of sent, ...].
        sent: Number of rows for each process.
        received: Number of rows from each process.
    """
    found = values.new_empty(sum(received), *values.shape[1:])
    distributed.all_to_all_single(found, values.contiguous(), received, sent)
    return found
