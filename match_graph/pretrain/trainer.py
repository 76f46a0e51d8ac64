"""Spherical pre-training by Riemannian gradient descent on sampled rows."""

import bisect
import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import HeteroData

from match_graph.config import PretrainConfig
from match_graph.errors import CheckpointError, GraphError
from match_graph.openmp import limit_threads
from match_graph.pretrain.objective import margin_gradients, margin_tangents
from match_graph.pretrain.pairs import Chunk, PairFeed, Relation, find_relations
from match_graph.pretrain.sphere import random_unit_rows, riemannian_gradient, riemannian_step_
from match_graph.typing import CITES, CONTEXT, IS_A, EdgeType

#: Reports are called every so many chunks.
_REPORT_EVERY = 100
#: Values of a chunk's vectors for which a thread pays on CPU.
_VALUES_PER_THREAD = 2**18


class SphericalTrainer:
    """Trains unit vectors for the nodes of a graph by margin ranking.

    Source: section 3.1 of MATCH, https://arxiv.org/abs/2102.07349. The four kinds of proximity
    alternate by chunks of positives; negatives are of the positive's own type, by degree^0.75,
    never the positive itself. Differs from the paper in drawing ``negatives`` for a whole chunk
    instead of one for each pair (``shared_negatives=False`` draws them for each): one matrix
    product then compares all pairs of a chunk with all its negatives.

    On CPU the result is the same to the bit for the same seed, and one thread does it unless chunks
    are large: an operation on one of 1,024 positives lasts .1 ms, no longer than it takes to wake a
    thread and wait for it (3.6 million positives of 1,500 labels: 2.2 ms per chunk with one thread,
    2.7 with two that spin while they wait, 4.9 with two that sleep).

    Args:
        data: A graph; documents outside ``train_mask`` are never drawn.
        config: Settings of pre-training.
        seed: Random seed of initial vectors and draws.
        num_rows: Number of rows per node type, a prefix of its nodes (a token space's kept ones);
            types not named have a row for every node.
        edge_types: Edge types to draw pairs from; None takes the default of `find_relations` and
            what the settings ``cited_documents`` and ``label_parent`` add.
        device: Device of tables and draws.

    Raises:
        GraphError: No kind of pair can be drawn.
    """

    def __init__(
        self,
        data: HeteroData,
        config: PretrainConfig,
        seed: int = 0,
        num_rows: Mapping[str, int] | None = None,
        edge_types: Sequence[EdgeType] | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        self.config, self.device = config, torch.device(device)
        rows = {name: int(data[name].num_nodes) for name in data.node_types}
        rows.update(num_rows or {})
        if edge_types is None:
            edge_types = _choose_edge_types(data, config)
        self.kinds = find_relations(data, rows, config.window, edge_types)
        if not self.kinds:
            raise GraphError(
                "Pre-training needs pairs of at least two different targets among the training "
                "documents, found none; start from random vectors instead (model.init=random)."
            )
        relations = [relation.to(self.device) for kind in self.kinds for relation in kind]
        self.feeds = {
            relation.name: PairFeed(
                relation, config.chunk_size, config.negatives, config.shared_negatives
            )
            for relation in relations
        }
        self.generator = torch.Generator(self.device).manual_seed(seed)
        self.chooser = torch.Generator().manual_seed(seed)  # on CPU: no wait for a GPU
        self.tables = self._make_tables(relations, rows)
        self.num_seen = self.num_chunks = 0
        self.loss = 0.0

    def _make_tables(
        self, relations: Sequence[Relation], rows: Mapping[str, int]
    ) -> dict[str, Tensor]:
        sizes = {relation.target: rows[relation.target] for relation in relations}
        for relation in relations:
            is_context = relation.anchor == CONTEXT
            sizes[relation.anchor] = rows[relation.target if is_context else relation.anchor]
        return {
            name: random_unit_rows(sizes[name], self.config.channels, self.generator, self.device)
            for name in sorted(sizes)
        }

    def fit(
        self,
        samples: int,
        report: Callable[[int, float], None] | None = None,
        save: Callable[[dict[str, Any]], None] | None = None,
        save_seconds: float = 30.0,
        stop: int | None = None,
    ) -> None:
        """Goes on until ``samples`` positives were drawn in all, a step for each chunk.

        Args:
            samples: Number of positive pairs; the learning rate falls linearly to 0 over them.
            report: Callback for progress: positives drawn so far and their mean loss.
            save: Callback that gets `state_dict` every ``save_seconds`` seconds.
            save_seconds: Seconds between two calls of ``save``; longer where saving itself takes
                long.
            stop: Number of positives after which to end earlier; None goes on to ``samples``.
        """
        rows = self.config.chunk_size
        if not self.config.shared_negatives:
            rows *= self.config.negatives
        with limit_threads(rows * self.config.channels // _VALUES_PER_THREAD):
            self._fit(samples, report, save, save_seconds, stop)

    def _fit(
        self,
        samples: int,
        report: Callable[[int, float], None] | None,
        save: Callable[[dict[str, Any]], None] | None,
        save_seconds: float,
        stop: int | None,
    ) -> None:
        total, count, last = torch.zeros((), device=self.device), 0, time.monotonic()
        stop = samples if stop is None else min(stop, samples)
        while self.num_seen < stop:
            relation = self._choose(self.kinds[self.num_chunks % len(self.kinds)])
            size = min(self.config.chunk_size, samples - self.num_seen)
            rate = self.config.learning_rate * (1 - self.num_seen / samples)
            chunk = self.feeds[relation.name].next_chunk(size, self.generator)
            total += self.step(relation, chunk, rate)
            count += size
            self.num_seen += size
            self.num_chunks += 1
            if self.num_chunks % _REPORT_EVERY == 0 or self.num_seen >= stop:
                self.loss = float(total) / count
                total, count = torch.zeros((), device=self.device), 0
                if report is not None:
                    report(self.num_seen, self.loss)
            if save is not None and time.monotonic() - last >= save_seconds:
                last = time.monotonic()
                save(self.state_dict())
                save_seconds = max(save_seconds, 20 * (time.monotonic() - last))
                last = time.monotonic()

    @torch.no_grad()
    def step(self, relation: Relation, chunk: Chunk, learning_rate: float) -> Tensor:
        """Moves the rows of one chunk; the sum of the pairs' losses, []."""
        anchor, positive, negative = chunk
        anchors, targets = self.tables[relation.anchor], self.tables[relation.target]
        allowed = negative != positive.unsqueeze(1)  # [P, K]
        if self.config.filter_positives:
            allowed &= ~relation.holds(anchor, negative)
        anchor_row, positive_row = (
            anchors.index_select(0, anchor),
            targets.index_select(0, positive),
        )
        shape, negative = negative.shape, negative.view(-1)
        negative_row = targets.index_select(0, negative)  # [K, C] or [P * K, C]
        if len(shape) == 1:
            loss, *tangents = margin_tangents(
                anchor_row, positive_row, negative_row, self.config.margin, allowed
            )
        else:
            losses, *gradients = margin_gradients(
                anchor_row, positive_row, negative_row.view(*shape, -1), self.config.margin, allowed
            )
            loss = losses.sum()
            tangents = [
                riemannian_gradient(row, gradient.view(row.shape))
                for row, gradient in zip(
                    (anchor_row, positive_row, negative_row), gradients, strict=True
                )
            ]
        moved = (anchors, [anchor], tangents[:1]), (targets, [positive, negative], tangents[1:])
        riemannian_step_(moved, learning_rate)
        return loss

    def _choose(self, kind: list[Relation]) -> Relation:
        """Random relation of a kind of proximity, with probability proportional to its pairs."""
        if len(kind) == 1:
            return kind[0]
        bounds = list(itertools.accumulate(relation.num_pairs for relation in kind))
        drawn = int(torch.randint(bounds[-1], (), generator=self.chooser))
        return kind[bisect.bisect_right(bounds, drawn)]

    def state_dict(self) -> dict[str, Any]:
        """All that the rest of the training depends on: tensors and plain values."""
        return {
            "tables": self.tables,
            "feeds": {name: feed.state_dict() for name, feed in self.feeds.items()},
            "generator": self.generator.get_state(),
            "chooser": self.chooser.get_state(),
            "num_seen": self.num_seen,
            "num_chunks": self.num_chunks,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on from a saved state, to the same vectors as without the break.

        Raises:
            CheckpointError: The state is of another graph or other settings.
            ValueError: A number in it is out of range.
        """
        here = {name: tuple(table.shape) for name, table in self.tables.items()}
        there = {name: tuple(table.shape) for name, table in state["tables"].items()}
        if here != there or self.feeds.keys() != state["feeds"].keys():
            raise CheckpointError(
                f"A pre-training checkpoint must hold the tables {here}, found {there}; delete it "
                f"to start again."
            )
        num_seen, num_chunks = state["num_seen"], state["num_chunks"]
        if not (type(num_seen) is type(num_chunks) is int and 0 <= num_chunks <= num_seen):
            raise ValueError(f"{num_seen!r} pairs in {num_chunks!r} chunks were not drawn")
        for name, table in self.tables.items():
            if not bool(state["tables"][name].isfinite().all()):
                raise ValueError(f"the vectors of '{name}' are not finite")
            table.copy_(state["tables"][name])
        for name, feed in self.feeds.items():
            feed.load_state_dict(state["feeds"][name], len(self.tables[feed.relation.anchor]))
        self.generator.set_state(state["generator"].cpu())
        self.chooser.set_state(state["chooser"].cpu())
        self.num_seen, self.num_chunks = num_seen, num_chunks


def _choose_edge_types(data: HeteroData, config: PretrainConfig) -> list[EdgeType]:
    wanted = {CITES: config.cited_documents, IS_A: config.label_parent}
    return [edge_type for edge_type in data.edge_types if wanted.get(edge_type, True)]
