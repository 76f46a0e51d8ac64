"""Spherical pre-training by several processes, with tables sharded by rows."""

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor, distributed

from match_graph.config import PretrainConfig
from match_graph.graph.view import Graph
from match_graph.pretrain.pairs import Chunk, Relation
from match_graph.pretrain.shards import ShardedRows, Share
from match_graph.pretrain.trainer import SphericalTrainer, Step
from match_graph.typing import EdgeType

#: Maximum numbers of steps, and of their rows, that are planned in one exchange.
_STEPS_AHEAD, _ROWS_AHEAD = 32, 1 << 20


class ShardedTrainer(SphericalTrainer):
    """`SphericalTrainer` of several processes: tables sharded by rows, chunks sampled by rank.

    In every step each process samples a chunk of its own, all of the same relation, fetches its
    distinct rows from their owners and sends back their summed Riemannian gradients; owners add
    those of all processes and retract the rows to the sphere. So a step covers a chunk of
    ``chunk_size`` pairs per process, and the learning rate falls with the pairs of all processes.
    The result is bit-identical for a seed and a number of processes; another number samples other
    pairs.

    Every process creates a trainer with the same arguments, and calls the same methods.

    Args:
        group: Processes that share the tables.

    The other arguments are those of `SphericalTrainer`. ``tables`` holds this process's rows.
    """

    rows: ShardedRows

    def __init__(
        self,
        data: Graph,
        config: PretrainConfig,
        seed: int = 0,
        num_rows: Mapping[str, int] | None = None,
        edge_types: Sequence[EdgeType] | None = None,
        device: torch.device | str = "cpu",
        *,
        group: distributed.ProcessGroup,
    ) -> None:
        self.group = group
        self.share = Share(distributed.get_rank(group), distributed.get_world_size(group))
        super().__init__(data, config, seed, num_rows, edge_types, device)
        width = config.negatives * (1 if config.shared_negatives else config.chunk_size)
        rows = 2 * config.chunk_size + width
        self.steps_ahead = max(1, min(_STEPS_AHEAD, _ROWS_AHEAD // rows))

    def _make_tables(self, sizes: Mapping[str, int]) -> dict[str, Tensor]:
        self.rows = ShardedRows(sizes, self.config.channels, self.generator, self.group)
        return self.rows.tables

    @torch.no_grad()
    def _take(self, steps: Sequence[Step]) -> list[Tensor]:
        exchanges = self.rows.plan([self._name_rows(step.relation, step.chunk) for step in steps])
        losses = []
        for step, exchange in zip(steps, exchanges, strict=True):
            fetched = self.rows.fetch(exchange)
            anchor, positive, negative = exchange.index
            chunk = Chunk(anchor, positive, negative.view(step.chunk.negative.shape))
            allowed = self._allow(step.relation, step.chunk)
            loss, tangents = self._pull(fetched, fetched, chunk, allowed)
            total = torch.zeros_like(fetched)
            for index, tangent in zip(exchange.index, tangents, strict=True):
                total.index_add_(0, index, tangent)
            self.rows.move(exchange, total, step.learning_rate)
            losses.append(loss)
        return losses

    @staticmethod
    def _name_rows(relation: Relation, chunk: Chunk) -> list[tuple[str, Tensor]]:
        return [
            (relation.anchor, chunk.anchor),
            (relation.target, chunk.positive),
            (relation.target, chunk.negative.view(-1)),
        ]

    def sum_up(self, values: Tensor) -> Tensor:
        return self.rows.sum_up(values)

    def _any(self, is_due: bool) -> bool:
        return bool(self.rows.sum_up(torch.tensor(float(is_due), device=self.device)))

    def gather(self, name: str) -> Iterator[Tensor]:
        return self.rows.gather(name)
