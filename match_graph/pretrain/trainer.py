"""Spherical pre-training: the four proximities in turn, only sampled rows move."""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor
from torch_geometric.data import HeteroData

from match_graph.config import PretrainConfig
from match_graph.errors import GraphError
from match_graph.pretrain.objective import margin_gradients
from match_graph.pretrain.pairs import CONTEXT, Relation, find_relations
from match_graph.pretrain.sphere import random_unit_rows, riemannian_step_
from match_graph.typing import EdgeType

#: Reports are called every so many chunks.
_REPORT_EVERY = 100


class SphericalTrainer:
    """Trains unit vectors for the nodes of a graph by margin ranking.

    Source: section 3.1 of MATCH, https://arxiv.org/abs/2102.07349. The four kinds of proximity
    alternate by chunks of positives; negatives are of the positive's own type, by degree^0.75,
    never the positive itself. Differs from the paper in drawing ``negatives`` for a whole chunk
    instead of one for each pair (``shared_negatives=False`` draws them for each): one matrix
    product then compares all pairs of a chunk with all its negatives.

    On CPU the result is the same to the bit for the same seed and number of threads.

    Args:
        data: A graph; documents outside ``train_mask`` are never drawn.
        config: Settings.
        seed: Of initial vectors and draws.
        num_rows: Rows per node type, a prefix of its nodes (a token space's kept ones); types not
            named have a row for every node.
        edge_types: As for `find_relations`.
        device: Where tables and draws live.

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
        self.kinds = find_relations(data, rows, config.window, edge_types)
        if not self.kinds:
            raise GraphError(
                "Pre-training needs pairs of at least two different targets among the training "
                "documents, found none; start from random vectors instead (model.init=random)."
            )
        for relation in (relation for kind in self.kinds for relation in kind):
            _move(relation, self.device)
        self.generator = torch.Generator(self.device).manual_seed(seed)
        self.tables = self._make_tables(rows)
        self.num_seen = 0
        self.loss = 0.0

    def _make_tables(self, rows: Mapping[str, int]) -> dict[str, Tensor]:
        relations = [relation for kind in self.kinds for relation in kind]
        sizes = {relation.target: rows[relation.target] for relation in relations}
        for relation in relations:
            is_context = relation.anchor == CONTEXT
            sizes[relation.anchor] = rows[relation.target if is_context else relation.anchor]
        return {
            name: random_unit_rows(sizes[name], self.config.channels, self.generator, self.device)
            for name in sorted(sizes)
        }

    def fit(self, samples: int, report: Callable[[int, float], None] | None = None) -> None:
        """Draws ``samples`` positives in all and takes a step for each chunk.

        Args:
            samples: Positive pairs; the learning rate falls linearly to 0 over them.
            report: Called now and then with the positives drawn so far and their mean loss.
        """
        config = self.config
        number, total, count = 0, torch.zeros((), device=self.device), 0
        while self.num_seen < samples:
            relation = self._choose(self.kinds[number % len(self.kinds)])
            size = min(config.chunk_size, samples - self.num_seen)
            rate = config.learning_rate * (1 - self.num_seen / samples)
            loss = self.step(relation, size, rate)
            total, count = total + loss.sum(), count + loss.numel()
            self.num_seen += size
            number += 1
            if report is not None and (number % _REPORT_EVERY == 0 or self.num_seen >= samples):
                self.loss = float(total) / max(count, 1)
                report(self.num_seen, self.loss)
                total, count = torch.zeros((), device=self.device), 0

    @torch.no_grad()
    def step(self, relation: Relation, size: int, learning_rate: float) -> Tensor:
        """One chunk of positives of a relation; the loss of each, [P], P at most ``size``."""
        config = self.config
        anchors, targets = self.tables[relation.anchor], self.tables[relation.target]
        anchor, positive = relation.draw(size, self.generator)
        shape: tuple[int, ...] = (config.negatives,)
        if not config.shared_negatives:
            shape = (anchor.numel(), config.negatives)
        negative = relation.draw_negatives(shape, self.generator)  # [K] or [P, K]
        allowed = negative != positive.unsqueeze(1)  # [P, K]
        if config.filter_positives:
            allowed &= ~relation.holds(anchor, negative)
        loss, *gradients = margin_gradients(
            anchors[anchor], targets[positive], targets[negative], config.margin, allowed
        )
        channels = anchors.size(1)
        moved = torch.cat([positive, negative.view(-1)])
        gradient = torch.cat([gradients[1], gradients[2].reshape(-1, channels)])
        if anchors is targets:
            moved, gradient = torch.cat([anchor, moved]), torch.cat([gradients[0], gradient])
        else:
            riemannian_step_(anchors, anchor, gradients[0], learning_rate)
        riemannian_step_(targets, moved, gradient, learning_rate)
        return loss

    def _choose(self, kind: list[Relation]) -> Relation:
        """A relation of a kind, by its number of pairs."""
        if len(kind) == 1:
            return kind[0]
        weight = torch.tensor([relation.num_pairs for relation in kind], dtype=torch.float64)
        uniform = torch.rand((), generator=self.generator, device=self.device, dtype=torch.float64)
        chosen = torch.searchsorted(weight.cumsum(0), uniform.cpu() * weight.sum(), right=True)
        return kind[min(int(chosen), len(kind) - 1)]


def _move(relation: Relation, device: torch.device) -> None:
    for name in ("row", "col", "row_mask", "cdf"):
        value = getattr(relation, name)
        if value is not None:
            setattr(relation, name, value.to(device))
