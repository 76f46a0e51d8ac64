"""Spherical pre-training by Riemannian gradient descent on sampled rows."""

import bisect
import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from match_graph.config import PretrainConfig
from match_graph.errors import GraphError
from match_graph.graph.view import Graph, view_graph
from match_graph.openmp import limit_threads
from match_graph.pretrain.objective import margin_gradients, margin_tangents
from match_graph.pretrain.pairs import Chunk, PairFeed, Relation, find_relations
from match_graph.pretrain.shards import Share
from match_graph.pretrain.sphere import random_unit_rows, riemannian_gradient, riemannian_step_
from match_graph.typing import CITES, CONTEXT, IS_A, EdgeType

#: Number of chunks between two calls of ``report``.
_REPORT_EVERY = 100
#: Values of a chunk's vectors from which another thread pays off on CPU.
_VALUES_PER_THREAD = 2**18


class Step(NamedTuple):
    """A chunk to train on.

    Args:
        relation: Relation of the chunk.
        chunk: Pairs and negatives.
        learning_rate: Factor of the step.
    """

    relation: Relation
    chunk: Chunk
    learning_rate: float


class SphericalTrainer:
    """Trains unit vectors for the nodes of a graph by margin ranking.

    Source: section 3.1 of MATCH, https://arxiv.org/abs/2102.07349. The four kinds of proximity
    alternate by chunks of positives; negatives are of the positive's own type, by degree^0.75,
    never the positive itself. Differs from the paper in sampling ``negatives`` for a whole chunk
    instead of one for each pair (``shared_negatives=False`` samples them for each): one matrix
    product then compares all pairs of a chunk with all its negatives.

    On CPU the result is bit-identical for the same seed. One thread is used unless chunks are
    large: an operation on a chunk of 1,024 positives takes .1 ms, about as long as waking a thread
    (3.6 million positives of 1,500 labels: 2.2 ms per chunk with one thread, 2.7 with two that spin
    while they wait, 4.9 with two that sleep).

    Args:
        data: A graph; documents outside ``train_mask`` are never sampled.
        config: Settings of pre-training.
        seed: Random seed of initial vectors and samples.
        num_rows: Number of rows per node type, a prefix of its nodes (a token space's kept ones);
            types not named have a row for every node.
        edge_types: Edge types to sample pairs from; None takes the default of `find_relations` and
            what the settings ``cited_documents`` and ``label_parent`` add.
        device: Device of tables and samples.

    Raises:
        GraphError: No kind of pair can be sampled.
    """

    #: Rank of this process among those that share the tables; number of steps sampled at once.
    share, steps_ahead = Share(), 1

    def __init__(
        self,
        data: Graph,
        config: PretrainConfig,
        seed: int = 0,
        num_rows: Mapping[str, int] | None = None,
        edge_types: Sequence[EdgeType] | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        self.config, self.device, self.seed = config, torch.device(device), seed
        graph = view_graph(data)
        rows = {name: graph.num_nodes(name) for name in graph.node_types}
        rows.update(num_rows or {})
        if edge_types is None:
            wanted = {CITES: config.cited_documents, IS_A: config.label_parent}
            edge_types = [one for one in graph.edge_types if wanted.get(one, True)]
        self.kinds = find_relations(graph, rows, config.window, edge_types)
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
        self.generator = torch.Generator(self.device)
        self.generator.manual_seed(_derive_seed(seed, self.share))
        self.chooser = torch.Generator().manual_seed(seed)  # on CPU: no wait for a GPU
        self.sizes = _find_sizes(relations, rows)
        self.tables = self._make_tables(self.sizes)
        self.num_seen = self.num_chunks = 0
        self.loss = 0.0

    def _make_tables(self, sizes: Mapping[str, int]) -> dict[str, Tensor]:
        return {
            name: random_unit_rows(size, self.config.channels, self.generator, self.device)
            for name, size in sizes.items()
        }

    def fit(
        self,
        samples: int,
        report: Callable[[int, float], None] | None = None,
        save: Callable[[], None] | None = None,
        save_seconds: float = 30.0,
        stop: int | None = None,
    ) -> None:
        """Trains until ``samples`` positives were sampled in all, a step per chunk.

        Args:
            samples: Number of positive pairs; the learning rate falls linearly to 0 over them.
            report: Callback for progress: positives sampled so far and their mean loss.
            save: Callback to save `state_dict`, every ``save_seconds`` seconds.
            save_seconds: Seconds between two calls of ``save``; longer where saving itself takes
                long.
            stop: Number of positives after which to end earlier; None goes on to ``samples``.
        """
        rows = self.config.chunk_size
        if not self.config.shared_negatives:
            rows *= self.config.negatives
        total, count, last = torch.zeros((), device=self.device), 0, time.monotonic()
        stop = samples if stop is None else min(stop, samples)
        with limit_threads(rows * self.config.channels // _VALUES_PER_THREAD):
            while self.num_seen < stop:
                reports = self.num_chunks // _REPORT_EVERY
                steps = self._sample(samples, stop)
                for step, loss in zip(steps, self._take(steps), strict=True):
                    total += loss
                    count += len(step.chunk.anchor)
                if self.num_chunks // _REPORT_EVERY > reports or self.num_seen >= stop:
                    sums = torch.stack([total, total.new_tensor(count)])
                    loss, pairs = self.sum_up(sums).tolist()
                    self.loss, total, count = loss / pairs, torch.zeros_like(total), 0
                    if report is not None:
                        report(self.num_seen, self.loss)
                if save is not None and self._any(time.monotonic() - last >= save_seconds):
                    last = time.monotonic()
                    save()
                    save_seconds = max(save_seconds, 20 * (time.monotonic() - last))
                    last = time.monotonic()

    def _sample(self, samples: int, stop: int) -> list[Step]:
        """The next steps; ``num_seen`` and ``num_chunks`` count them as done."""
        steps: list[Step] = []
        while len(steps) < self.steps_ahead and self.num_seen < stop:
            relation = self._choose(self.kinds[self.num_chunks % len(self.kinds)])
            size = min(self.config.chunk_size * self.share.number, samples - self.num_seen)
            rate = self.config.learning_rate * (1 - self.num_seen / samples)
            feed = self.feeds[relation.name]
            chunk = feed.next_chunk(self.share.split(size), self.generator)
            steps.append(Step(relation, chunk, rate))
            self.num_seen += size
            self.num_chunks += 1
        return steps

    @torch.no_grad()
    def _take(self, steps: Sequence[Step]) -> list[Tensor]:
        """Takes steps; returns the summed loss of each, []."""
        return [self.step(*step) for step in steps]

    def sum_up(self, values: Tensor) -> Tensor:
        """The sum of a tensor over the processes that share the tables."""
        return values

    def _any(self, is_due: bool) -> bool:
        """Whether something is due on any of these processes."""
        return is_due

    @torch.no_grad()
    def step(self, relation: Relation, chunk: Chunk, learning_rate: float) -> Tensor:
        """Updates the rows of one chunk; returns the summed loss of its pairs, []."""
        anchor, positive, negative = chunk
        anchors, targets = self.tables[relation.anchor], self.tables[relation.target]
        loss, tangents = self._pull(anchors, targets, chunk, self._allow(relation, chunk))
        moved = (
            (anchors, [anchor], tangents[:1]),
            (targets, [positive, negative.view(-1)], tangents[1:]),
        )
        riemannian_step_(moved, learning_rate)
        return loss

    def _allow(self, relation: Relation, chunk: Chunk) -> Tensor:
        """Mask of negatives that are not positives of their anchor, [P, K], bool."""
        allowed = chunk.negative != chunk.positive.unsqueeze(1)
        if self.config.filter_positives:
            allowed &= ~relation.holds(chunk.anchor, chunk.negative)
        return allowed

    def _pull(
        self, anchors: Tensor, targets: Tensor, chunk: Chunk, allowed: Tensor
    ) -> tuple[Tensor, list[Tensor]]:
        """Summed loss of a chunk, and Riemannian gradients of anchor, positive and negative."""
        anchor_row, positive_row = (
            anchors.index_select(0, chunk.anchor),
            targets.index_select(0, chunk.positive),
        )
        shape, negative = chunk.negative.shape, chunk.negative.view(-1)
        negative_row = targets.index_select(0, negative)  # [K, C] or [P * K, C]
        if len(shape) == 1:
            loss, *tangents = margin_tangents(
                anchor_row, positive_row, negative_row, self.config.margin, allowed
            )
            return loss, tangents
        losses, *gradients = margin_gradients(
            anchor_row,
            positive_row,
            negative_row.view(*shape, self.config.channels),  # a process may have no pair
            self.config.margin,
            allowed,
        )
        tangents = [
            riemannian_gradient(row, gradient.view(row.shape))
            for row, gradient in zip(
                (anchor_row, positive_row, negative_row), gradients, strict=True
            )
        ]
        return losses.sum(), tangents

    def gather(self, name: str) -> Iterator[Tensor]:
        """The rows of a whole table in order, in blocks, on the first process.

        The others iterate too, over empty blocks.
        """
        yield self.tables[name]

    def _choose(self, kind: list[Relation]) -> Relation:
        """Random relation of a kind of proximity, with probability proportional to its pairs."""
        if len(kind) == 1:
            return kind[0]
        bounds = list(itertools.accumulate(relation.num_pairs for relation in kind))
        sampled = int(torch.randint(bounds[-1], (), generator=self.chooser))
        return kind[bisect.bisect_right(bounds, sampled)]

    def state_dict(self) -> dict[str, Any]:
        """State that the rest of the training depends on: tensors and plain values."""
        return {
            "tables": self.tables,
            "feeds": {name: feed.state_dict() for name, feed in self.feeds.items()},
            "generator": self.generator.get_state(),
            "chooser": self.chooser.get_state(),
            "num_seen": self.num_seen,
            "num_chunks": self.num_chunks,
        }

    def load_progress(self, state: Mapping[str, Any]) -> None:
        """Resumes from a saved state, whose tables are loaded already.

        Without ``generator`` and ``feeds``, as in a state of another number of processes, sampling
        starts anew.

        Raises:
            ValueError: A number in it is out of range.
        """
        num_seen, num_chunks = state["num_seen"], state["num_chunks"]
        if not (type(num_seen) is type(num_chunks) is int and 0 <= num_chunks <= num_seen):
            raise ValueError(f"{num_seen!r} pairs in {num_chunks!r} chunks were not sampled")
        if "generator" in state:
            for name, feed in self.feeds.items():
                feed.load_state_dict(state["feeds"][name], self.sizes[feed.relation.anchor])
            self.generator.set_state(state["generator"].cpu())
        else:
            self.generator.manual_seed(_derive_seed(self.seed, self.share, num_seen))
        self.chooser.set_state(state["chooser"].cpu())
        self.num_seen, self.num_chunks = num_seen, num_chunks


def _derive_seed(seed: int, share: Share, num_seen: int = 0) -> int:
    """Seed of a process's samples; the given one for all samples of a single process."""
    if share.number == 1 and not num_seen:
        return seed
    entropy = (seed, share.rank, share.number, num_seen)
    return int(np.random.SeedSequence(entropy).generate_state(1)[0])


def _find_sizes(relations: Sequence[Relation], rows: Mapping[str, int]) -> dict[str, int]:
    """Rows of each table, sorted by name."""
    sizes = {relation.target: rows[relation.target] for relation in relations}
    for relation in relations:
        is_context = relation.anchor == CONTEXT
        sizes[relation.anchor] = rows[relation.target if is_context else relation.anchor]
    return dict(sorted(sizes.items()))
