"""Spherical pre-training by several processes, each with a part of every table."""

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor, distributed

from match_graph.config import PretrainConfig
from match_graph.graph.view import Graph
from match_graph.pretrain.pairs import Chunk, Relation
from match_graph.pretrain.shards import ShardedRows, Share
from match_graph.pretrain.trainer import SphericalTrainer, Step
from match_graph.typing import EdgeType

#: Steps whose rows are asked for in one go, and the most rows that are.
_STEPS_AHEAD, _ROWS_AHEAD = 32, 1 << 20


class ShardedTrainer(SphericalTrainer):
    """`SphericalTrainer` of several processes: tables sharded by rows, chunks sampled by rank.

    In every step each process samples a chunk of its own, all of the same relation, fetches its
    distinct rows from their owners and sends the sums of their Riemannian gradients back; owners
    add those of all processes and bring the rows back to the sphere. So a step is that of one chunk
    of ``chunk_size`` pairs for each process, and the learning rate falls with the pairs of all.
    The result is the same to the bit for a seed and a number of processes; with another number the
    pairs are others.

    Every process makes one, with the same arguments, and calls the same methods.

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
        visits = self.rows.plan([self._name_rows(step.relation, step.chunk) for step in steps])
        losses = []
        for step, visit in zip(steps, visits, strict=True):
            fetched = self.rows.fetch(visit)
            anchor, positive, negative = visit.index
            chunk = Chunk(anchor, positive, negative.view(step.chunk.negative.shape))
            allowed = self._allow(step.relation, step.chunk)
            loss, tangents = self._pull(fetched, fetched, chunk, allowed)
            total = torch.zeros_like(fetched)
            for index, tangent in zip(visit.index, tangents, strict=True):
                total.index_add_(0, index, tangent)
            self.rows.move(visit, total, step.learning_rate)
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
