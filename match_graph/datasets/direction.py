"""Checks of a label hierarchy against gold labels of training documents: closure and direction."""

from collections.abc import Callable

import pandas as pd
from torch import Tensor

from match_graph.graph import Hierarchy
from match_graph.typing import LABEL

#: Least mean P(child | parent) of a hierarchy that looks reversed, if documents have closed labels.
_LIKELY = 0.5
#: Least ratio of it to the mean P(parent | child).
_TIMES = 2.0


def measure_closure(hierarchy: Hierarchy, parent_given_child: Tensor, train_count: Tensor) -> float:
    """P(parent | child), mean over the edges whose child is on a document; 1 where none is.

    Args:
        hierarchy: Label hierarchy of L labels and E edges.
        parent_given_child: P(parent | child) of training documents, [E].
        train_count: Training documents of each label, [L].
    """
    share = parent_given_child[train_count[hierarchy.edge_index[0]] > 0]
    return float(share.mean()) if len(share) else 1.0


def describe_reversal(
    hierarchy: Hierarchy,
    parent_given_child: Tensor,
    train_count: Tensor | None,
    names: Callable[[str], pd.Series],
) -> list[str]:
    """Warning of a hierarchy whose edges look reversed; empty otherwise.

    If labels are closed upwards, a parent is on every document of its child, and a child on few
    documents of its parent. Edges with an end on no training document do not count.

    Args:
        hierarchy: Label hierarchy of L labels and E edges.
        parent_given_child: P(parent | child) of training documents, [E].
        train_count: Training documents of each label, [L]; None where it is not known.
        names: Gives the names of the nodes of a type.
    """
    if train_count is None or not hierarchy.num_edges:
        return []
    count = train_count.double()[hierarchy.edge_index]  # [2, E]: of the child, of the parent
    seen = (count > 0).all(dim=0)
    if not seen.any():
        return []
    child, parent = count[:, seen]
    given = parent_given_child.double()[seen]
    reverse = given * child / parent
    forward_mean, reverse_mean = float(given.mean()), float(reverse.mean())
    if reverse_mean < _LIKELY or reverse_mean < _TIMES * forward_mean:
        return []
    first = int((reverse - given).argmax())
    label, above = names(LABEL)[hierarchy.edge_index[:, seen][:, first].tolist()]
    return [
        f"parents of the hierarchy look like children, such as '{above}', the parent of "
        f"'{label}': of the training documents with a parent {reverse_mean:.0%} have its child, of "
        f"those with a child only {forward_mean:.0%} have its parent (means of {len(given):,} "
        f"edges); is each line parent first, and each edge a child and its parent?"
    ]
