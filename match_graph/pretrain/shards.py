"""Tables of unit vectors sharded by rows over processes, and the exchange of their rows.

All tables of a process are one matrix, and the rows of many steps are requested at once, so that a
step takes two exchanges, of a millisecond; by `match_graph.io.exchange`, with which models shard
one table, it would take four.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, distributed

from match_graph.pretrain.sphere import random_unit_rows, riemannian_step_

#: Values in a block of rows that is gathered from all processes: 64 MiB.
_BLOCK_VALUES = 1 << 24


@dataclass(frozen=True)
class Share:
    """Rank of a process among those that share tables.

    Row r of a table is on process r % number, at place r // number of its shard. Tables are ordered
    by frequency: with shards of consecutive rows the first process would own the frequent rows, and
    handle nearly all of the exchange.

    Args:
        rank: Rank of this process.
        number: Number of processes.
    """

    rank: int = 0
    number: int = 1

    def count(self, num_rows: int) -> int:
        """Number of this process's rows of a table."""
        return (num_rows - self.rank + self.number - 1) // self.number

    def split(self, number: int) -> int:
        """This process's part of a number of pairs; the parts differ by at most one."""
        return number // self.number + (self.rank < number % self.number)


@dataclass(frozen=True)
class Exchange:
    """Row exchange of one step of all processes.

    Args:
        index: Index of the requested rows among this process's distinct ones, by request.
        taken: Number of distinct rows that this process takes from each owner.
        asked: Places in this process's shard of the rows that others take, by process, [A].
        given: Number of rows of ``asked`` for each process.
    """

    index: list[Tensor]
    taken: list[int]
    asked: Tensor
    given: list[int]


class ShardedRows:
    """The rows of all tables that one process holds, as one matrix, and their exchange.

    A table has the same number of places on every process, so that a row's place follows from its
    number; if the rows do not divide evenly, some processes leave one place unused.

    Args:
        sizes: Number of rows of each table.
        channels: Number of channels C.
        generator: Generator of the initial vectors.
        group: Processes that share the tables.
    """

    def __init__(
        self,
        sizes: Mapping[str, int],
        channels: int,
        generator: torch.Generator,
        group: distributed.ProcessGroup,
    ) -> None:
        self.group, self.sizes = group, dict(sorted(sizes.items()))
        self.share = Share(distributed.get_rank(group), distributed.get_world_size(group))
        self.first: dict[str, int] = {}
        self.num_places = 0
        for name, size in self.sizes.items():
            self.first[name] = self.num_places
            self.num_places += -(-size // self.share.number)
        self.rows = random_unit_rows(self.num_places, channels, generator, generator.device)
        self.tables = {
            name: self.rows.narrow(0, self.first[name], self.share.count(size))
            for name, size in self.sizes.items()
        }

    def plan(self, steps: Sequence[Sequence[tuple[str, Tensor]]]) -> list[Exchange]:
        """Plans the row exchanges of the next steps, with two collective calls for all of them.

        Args:
            steps: Tables and rows, int64, of each step; a row may repeat, also between the tensors
                of a step, and is sent once. Every process has the same number of steps.
        """
        number = self.share.number
        bounds = torch.arange(number + 1, device=self.rows.device) * self.num_places
        indices, places, lengths = [], [], []
        for wanted in steps:
            distinct, index = torch.unique(
                torch.cat([self._find_keys(name, rows) for name, rows in wanted]),
                return_inverse=True,
            )
            indices.append(list(index.split([rows.numel() for _, rows in wanted])))
            places.append(distinct % self.num_places)
            lengths.append(torch.searchsorted(distinct, bounds).diff())
        taken = torch.stack(lengths)  # [steps, processes]
        given = torch.empty_like(taken.t().contiguous())  # [processes, steps]
        distributed.all_to_all_single(given, taken.t().contiguous(), group=self.group)
        taken_counts, given_counts = taken.tolist(), given.tolist()
        by_step = [place.split(counts) for place, counts in zip(places, taken_counts, strict=True)]
        outgoing = torch.cat([parts[owner] for owner in range(number) for parts in by_step])
        incoming = outgoing.new_empty(sum(map(sum, given_counts)))
        distributed.all_to_all_single(
            incoming,
            outgoing,
            [sum(counts) for counts in given_counts],
            [sum(counts[owner] for counts in taken_counts) for owner in range(number)],
            group=self.group,
        )
        asked = incoming.split([count for counts in given_counts for count in counts])
        return [
            Exchange(
                indices[step],
                taken_counts[step],
                torch.cat(asked[step :: len(steps)]),
                [counts[step] for counts in given_counts],
            )
            for step in range(len(steps))
        ]

    def _find_keys(self, name: str, rows: Tensor) -> Tensor:
        """Keys of rows, which are sorted by owner, then by place."""
        number = self.share.number
        return rows % number * self.num_places + rows // number + self.first[name]

    def fetch(self, exchange: Exchange) -> Tensor:
        """The distinct rows that this process updates, [R, C], for ``exchange.index``."""
        fetched = self.rows.new_empty(sum(exchange.taken), self.rows.size(1))
        given = self.rows.index_select(0, exchange.asked)
        sizes = exchange.taken, exchange.given
        distributed.all_to_all_single(fetched, given, *sizes, group=self.group)
        return fetched

    def move(self, exchange: Exchange, tangents: Tensor, learning_rate: float) -> None:
        """Sends the Riemannian gradients of distinct rows to their owners, who take the step.

        Args:
            exchange: Exchange that `fetch` was called with.
            tangents: Riemannian gradients of the fetched rows, [R, C].
            learning_rate: Factor of the step.
        """
        sent = tangents.new_empty(exchange.asked.numel(), tangents.size(1))
        sizes = exchange.given, exchange.taken
        distributed.all_to_all_single(sent, tangents, *sizes, group=self.group)
        riemannian_step_([(self.rows, [exchange.asked], [sent])], learning_rate)

    def gather(self, name: str) -> Iterator[Tensor]:
        """The rows of a table in order, in blocks, on process 0; empty blocks on the others.

        All processes iterate together, each over all blocks.
        """
        size, number, channels = self.sizes[name], self.share.number, self.rows.size(1)
        places = -(-size // number)
        length = max(1, _BLOCK_VALUES // (number * channels))
        for start in range(0, places, length):
            stop = min(start + length, places)
            own = self.rows[self.first[name] + start : self.first[name] + stop]
            if self.share.rank:
                distributed.gather(own, None, group=self.group, group_dst=0)
                yield own[:0]
                continue
            parts = [torch.empty_like(own) for _ in range(number)]
            distributed.gather(own, parts, group=self.group, group_dst=0)
            block = torch.stack(parts, dim=1).view(-1, channels)
            yield block[: size - start * number]

    def sum_up(self, values: Tensor) -> Tensor:
        """The sum of a tensor over the processes, in place."""
        distributed.all_reduce(values, group=self.group)
        return values
