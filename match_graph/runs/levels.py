"""Levels of a label tree; a flat model has one."""

from dataclasses import dataclass
from pathlib import Path

from torch import Tensor, nn

from match_graph.datasets import CorpusDataset
from match_graph.graph import Hierarchy, NodeFeatures, Targets, TokenSpace
from match_graph.graph.label_clusters import cluster_labels, find_parents, label_features
from match_graph.io.run_folder import LEVELS, MODEL
from match_graph.io.weights import read_weights
from match_graph.nn import MatchModel
from match_graph.nn.label_tree import TreeModel
from match_graph.training.models import Model
from match_graph.typing import MASKS


@dataclass(frozen=True)
class Level:
    """Level of a label tree, which has a training of its own.

    Args:
        sizes: Number of nodes of each level from the top to this one; the last level's are the
            labels.
        folder: Folder of weights, history and checkpoint; the last level's is the run folder.
        targets: Gold nodes of the level.
        parent: Parent of each node; None on top.
        above: Level above; None on top.
    """

    sizes: tuple[int, ...]
    folder: Path
    targets: Targets
    parent: Tensor | None
    above: "Level | None"

    def set_prior(self, model: MatchModel, documents: Tensor) -> None:
        """Initializes the head from the frequency of each node among documents of its parent."""
        total: int | Tensor = len(documents)
        if self.above is not None:
            assert self.parent is not None
            total = self.above.targets.count(documents)[self.parent]
        model.head.set_prior(self.targets.count(documents), total)

    def build(
        self, model: Model, space: TokenSpace, hierarchy: Hierarchy | None, features: NodeFeatures
    ) -> nn.Module:
        """Module of the level, warm-started from the trained one of the level above.

        Args:
            model: Model of the configuration.
            space: Token space of the run.
            hierarchy: Label hierarchy on the level of the labels; None above it.
            features: Features of documents and other nodes.

        Raises:
            CheckpointError: The weights of the level above are missing, broken or of another model.
        """
        module = model.build(space, self.sizes, hierarchy, features)
        if isinstance(module, TreeModel):
            assert self.above is not None
            assert self.parent is not None
            read_weights(module.above, self.above.folder / MODEL)
            module.set_parents(self.parent)
            module.start_from_above()
        return module


def plan_levels(
    sizes: tuple[int, ...], dataset: CorpusDataset, folder: Path, seed: int
) -> list[Level]:
    """Levels of a run in the order of training.

    Labels are clustered by the words of their training documents; the same seed gives the same
    clusters, so that a resumed run goes on with its own.

    Args:
        sizes: Number of nodes of each level, as given by `nn.label_tree.level_sizes`.
        dataset: Built data set.
        folder: Run folder.
        seed: Seed of the clustering.
    """
    targets, parents = [dataset.targets], []
    if len(sizes) > 1:
        features = label_features(dataset.graph, dataset.targets, dataset.documents(MASKS["train"]))
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
