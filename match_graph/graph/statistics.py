"""Statistics of a graph: the paper's Table 1, degrees, depths, frequency, coverage, duplicates."""

from collections.abc import Mapping
from itertools import combinations_with_replacement

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch_geometric.data import HeteroData

from match_graph.graph.csr import sorted_row_ptr
from match_graph.graph.labels import Hierarchy, Targets
from match_graph.typing import (
    CITES,
    CONTAINS,
    DOCUMENT,
    IS_A,
    LABEL,
    MASKS,
    RESERVED_TYPES,
    TAGGED,
    WORD,
    has_edge,
)


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


#: Documents whose words are compared at once.
_DOCUMENTS = 50_000
#: What the two ends of an edge type are called where they are of one type, or not of all nodes.
_ENDS = {
    CITES: ("citing document", "cited document"),
    IS_A: ("child", "parent"),
    TAGGED: ("training document", "label"),
}


def count_degrees(data: HeteroData) -> dict[str, Tensor]:
    """Edges of every node at both ends of every edge type, [num_nodes] each, int64.

    Of documents, `TAGGED` edges are counted for those of training, as the others have none.

    Returns:
        "document has author, per document" and the like -> degrees.
    """
    degrees = {}
    for edge_type in data.edge_types:
        edge_index = data[edge_type].edge_index
        for row, end in enumerate(_ENDS.get(edge_type, (edge_type[0], edge_type[2]))):
            degree = torch.bincount(
                edge_index[row], minlength=int(data[edge_type[2 * row]].num_nodes)
            )
            if edge_type == TAGGED and row == 0:
                degree = degree[data[DOCUMENT].train_mask]
            degrees[f"{' '.join(edge_type)}, per {end}"] = degree
    return degrees


def describe_degrees(data: HeteroData) -> pd.DataFrame:
    """A row per end of every edge type: nodes, share without an edge, mean and quantiles."""
    rows = {}
    for name, degree in count_degrees(data).items():
        values = degree.numpy()
        shown = values if len(values) else np.zeros(1, dtype=np.int64)
        median, most, nearly = np.quantile(shown, (0.5, 0.9, 0.99), method="lower")
        rows[name] = {
            "nodes": len(values),
            "without": float((shown == 0).mean()),
            "mean": float(shown.mean()),
            "median": int(median),
            "90 %": int(most),
            "99 %": int(nearly),
            "most": int(shown.max()),
        }
    return pd.DataFrame.from_dict(rows, orient="index")


def describe_depths(data: HeteroData, targets: Targets) -> pd.DataFrame:
    """A row per depth of the hierarchy: labels, how many training never saw, documents of each."""
    dag = Hierarchy.from_data(data)
    count = targets.count(data[DOCUMENT].train_mask.nonzero().view(-1)).numpy()
    frame = pd.DataFrame({"depth": dag.depth.numpy(), "count": count, "unseen": count == 0})
    groups = frame.groupby("depth")
    return pd.DataFrame(
        {
            "labels": groups.size(),
            "never in training": groups["unseen"].sum(),
            "training documents, median": groups["count"].median(),
            "most": groups["count"].max(),
            "gold labels of training": groups["count"].sum(),
        }
    )


def describe_coverage(data: HeteroData) -> pd.DataFrame:
    """A row per metadata field (and words) and split: how much is there, how much of it is new.

    Columns: documents; the share that has a value; values per document; the share of values that
    no training document has; of the documents with values, the share that has only such.
    """
    train = data[DOCUMENT].train_mask
    fields = [name for name in data.node_types if name not in RESERVED_TYPES]
    rows = {}
    for name, edge_type in [*((name, has_edge(name)) for name in fields), ("word", CONTAINS)]:
        document, instance = data[edge_type].edge_index
        seen = torch.zeros(int(data[edge_type[2]].num_nodes), dtype=torch.bool)
        seen[instance[train[document]]] = True
        known = seen[instance]
        number = len(train)
        values = torch.bincount(document, minlength=number)
        known_values = torch.bincount(document[known], minlength=number)
        for split, mask in MASKS.items():
            chosen = data[DOCUMENT][mask]
            total, held = int(chosen.sum()), chosen & (values > 0)
            count = int(values[chosen].sum())
            rows[name, split] = {
                "documents": total,
                "with a value": _share(int(held.sum()), total),
                "values per document": _share(count, total),
                "values unseen in training": _share(count - int(known_values[chosen].sum()), count),
                "only unseen values": _share(int((known_values[held] == 0).sum()), int(held.sum())),
            }
    frame = pd.DataFrame.from_dict(rows, orient="index")
    frame.index = pd.MultiIndex.from_tuples(frame.index, names=["field", "split"])
    return frame


def describe_parents(data: HeteroData, targets: Targets) -> pd.DataFrame:
    """Hierarchy edges by P(parent | child) among training documents, in tenths.

    The first row counts the edges whose child no training document carries.
    """
    dag, train = Hierarchy.from_data(data), data[DOCUMENT].train_mask.nonzero().view(-1)
    tenth = (dag.parent_given_child(targets, train) * 10).floor().clamp(max=9).long()
    tenth[targets.count(train)[dag.edge_index[0]] == 0] = -1
    names = ["child never in training", *(f"{n / 10:.1f} to {n / 10 + 0.1:.1f}" for n in range(10))]
    counts = torch.bincount(tenth + 1, minlength=11).tolist()
    return pd.DataFrame({"edges": counts}, index=names)


def count_duplicates(data: HeteroData) -> pd.DataFrame:
    """Documents whose word sequence stands in another document too, by pair of splits.

    Documents without words are left out. A row "test in train" counts the test documents of which
    training has the text; "train in train" those that are not the first of their text.
    """
    prints = fingerprint_texts(data)
    has_words = torch.bincount(
        data[CONTAINS].edge_index[0], minlength=int(data[DOCUMENT].num_nodes)
    ).numpy() > 0  # fmt: skip
    texts = {
        split: prints[data[DOCUMENT][mask].numpy() & has_words] for split, mask in MASKS.items()
    }
    rows = {}
    for first, second in combinations_with_replacement(MASKS, 2):
        if first == second:
            repeated = len(texts[first]) - len(np.unique(texts[first]))
        else:
            repeated = int(np.isin(texts[second], texts[first]).sum())
        total = len(texts[second])
        rows[f"{second} in {first}"] = {"documents": repeated, "share": _share(repeated, total)}
    return pd.DataFrame.from_dict(rows, orient="index")


def fingerprint_texts(data: HeteroData) -> np.ndarray:
    """A 64-bit fingerprint of every document's word sequence, [D], uint64."""
    number = int(data[DOCUMENT].num_nodes)
    ptr = sorted_row_ptr(data[CONTAINS].edge_index[0], number).numpy()
    words, positions = data[CONTAINS].edge_index[1].numpy(), data[CONTAINS].position.numpy()
    prints = np.zeros(number, dtype=np.uint64)
    for start in range(0, number, _DOCUMENTS):
        part = ptr[start : start + _DOCUMENTS + 1]
        rows = slice(part[0], part[-1])
        keys = words[rows].astype(np.uint64) << np.uint64(16) | positions[rows].astype(np.uint64)
        sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(_mix(keys), dtype=np.uint64)])
        ends = part - part[0]
        prints[start : start + len(part) - 1] = sums[ends[1:]] - sums[ends[:-1]]
    return prints


def _mix(keys: np.ndarray) -> np.ndarray:
    """The finalizer of splitmix64 (https://prng.di.unimi.it), so that sums of keys differ."""
    mixed = keys + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def _share(part: int, whole: int) -> float:
    return part / whole if whole else float("nan")
