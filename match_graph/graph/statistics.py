"""The paper's Table 1 for a built graph, with edges per type and P(parent | child)."""

from collections.abc import Mapping

from torch_geometric.data import HeteroData

from match_graph.graph.hierarchy import Hierarchy
from match_graph.graph.targets import Targets
from match_graph.typing import CONTAINS, DOCUMENT, LABEL, MASKS, WORD, has_edge


def describe_graph(data: HeteroData, targets: Targets) -> dict[str, int | float]:
    """Counts and means in the order of Table 1 of the paper (https://arxiv.org/abs/2102.07349).

    Args:
        data: A built graph.
        targets: Gold labels of the graph's documents.

    Returns:
        Name of the row -> value. "P(parent | child)" pools the hierarchy edges: of all pairs of a
        training document and an edge whose child it carries, the share whose parent it carries
        too; NaN without such a pair.
    """
    num_documents = int(data[DOCUMENT].num_nodes)
    dag = Hierarchy.from_data(data)
    train = data[DOCUMENT].train_mask.nonzero().view(-1)
    fields = [name for name in data.node_types if name not in (DOCUMENT, WORD, LABEL)]
    rows: dict[str, int | float] = {
        f"{split} documents": int(data[DOCUMENT][mask].sum()) for split, mask in MASKS.items()
    }
    rows["labels"] = targets.num_labels
    rows["labels / document"] = len(targets.index) / max(num_documents, 1)
    rows["labels never in training"] = int((targets.count(train) == 0).sum())
    rows["vocabulary"] = int(data[WORD].num_nodes)
    rows["words / document"] = data[CONTAINS].edge_index.size(1) / max(num_documents, 1)
    rows.update({f"{field} nodes": int(data[field].num_nodes) for field in fields})
    for field in fields:
        rows[f"document-{field} edges"] = data[has_edge(field)].edge_index.size(1)
    for edge_type in data.edge_types:
        if edge_type[1] != "has":
            rows[f"{' '.join(edge_type)} edges"] = data[edge_type].edge_index.size(1)
    rows["hierarchy edges"] = dag.num_edges
    rows["hierarchy layers"] = dag.num_layers
    rows["labels with several parents"] = int((dag.edge_index[0].bincount() > 1).sum())
    child_count = targets.count(train)[dag.edge_index[0]].double()
    both = dag.parent_given_child(targets, train) * child_count
    rows["P(parent | child) in training"] = float(both.sum() / child_count.sum())
    return rows


def compare_counts(
    found: Mapping[str, float], published: Mapping[str, float]
) -> dict[str, tuple[float, float]]:
    """Published counts beside those of a graph.

    Args:
        found: Counts by row, from `describe_graph` and the data set's notes.
        published: Published counts by row; a fraction is rounded as it was published, to two
            decimals.

    Returns:
        Row -> (published, found - published), for the rows of both.
    """
    pairs = {name: (found[name], count) for name, count in published.items() if name in found}
    return {
        name: (count, round(value - count, 2) if isinstance(count, float) else value - count)
        for name, (value, count) in pairs.items()
    }
