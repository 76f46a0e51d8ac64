"""Levels of a run: one for a flat model, one per level of a label tree."""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from match_graph.config import ModelConfig
from match_graph.datasets import CorpusDataset
from match_graph.graph import LabelDAG, Targets, TokenSpace
from match_graph.graph.label_tree import cluster_labels, find_parents, label_features
from match_graph.io.files import LEVELS, MODEL, read_weights
from match_graph.nn import MatchModel
from match_graph.nn.label_tree import TreeModel, make_levels
from match_graph.typing import MASKS


@dataclass(frozen=True)
class Level:
    """One level: what is trained at once.

    Args:
        sizes: Nodes of each level from the top to this one; the last level's are the labels.
        folder: Of its weights, history and checkpoint; the last level's is the run's own.
        targets: Gold nodes.
        parent: The node above each node; None on top.
        above: The level above; None on top.
    """

    sizes: tuple[int, ...]
    folder: Path
    targets: Targets
    parent: Tensor | None
    above: "Level | None"

    def set_prior(self, model: MatchModel, documents: Tensor) -> None:
        """Starts the head from the frequency of each node among the documents of that above."""
        total: int | Tensor = len(documents)
        if self.above is not None:
            assert self.parent is not None
            total = self.above.targets.count(documents)[self.parent]
        model.head.set_prior(self.targets.count(documents), total)

    def make_model(
        self, space: TokenSpace, config: ModelConfig, label_dag: LabelDAG, seed: int
    ) -> MatchModel:
        """The level's model, warm-started from that above, which must have been trained.

        Raises:
            CheckpointError: The weights of the level above are missing, broken or of another model.
        """
        torch.manual_seed(seed)
        model = make_levels(space, self.sizes, config, label_dag)
        if isinstance(model, TreeModel):
            assert self.above is not None
            assert self.parent is not None
            read_weights(model.above, self.above.folder / MODEL)
            model.set_parents(self.parent)
            model.start_from_above()
        return model


def plan_levels(
    sizes: tuple[int, ...], dataset: CorpusDataset, folder: Path, seed: int
) -> list[Level]:
    """The levels of a run in the order of training.

    Labels are clustered by the words of their training documents; the same seed gives the same
    clusters, so that a resumed run goes on with its own.

    Args:
        sizes: Of all levels, as `nn.label_tree.level_sizes` gives them.
        dataset: Built.
        folder: Of the run.
        seed: Of the clusters.
    """
    targets, parents = [dataset.targets], []
    if len(sizes) > 1:
        features = label_features(dataset[0], dataset.targets, dataset.documents(MASKS["train"]))
        parents = find_parents(cluster_labels(features, sizes[-2], seed), sizes)
        for parent, size in zip(reversed(parents), reversed(sizes[:-1]), strict=True):
            targets.insert(0, targets[0].merge(parent, size))
    levels: list[Level] = []
    for number, gold in enumerate(targets):
        is_last = number == len(sizes) - 1
        levels.append(
            Level(
                sizes[: number + 1],
                folder if is_last else folder / LEVELS / str(number),
                gold,
                parents[number - 1] if number else None,
                levels[-1] if number else None,
            )
        )
    return levels
