"""Statistics of a graph: the paper's Table 1, degrees, depths, frequency, coverage, duplicates."""

from collections.abc import Iterator, Mapping
from itertools import combinations_with_replacement

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from match_graph.graph.adjacency import Adjacency
from match_graph.graph.build import metadata_fields
from match_graph.graph.csr import row_index
from match_graph.graph.hashing import mix_keys
from match_graph.graph.labels import Hierarchy, Targets
from match_graph.graph.view import Graph, GraphView, view_graph
from match_graph.typing import (
    CITES,
    CONTAINS,
    DOCUMENT,
    IS_A,
    MASKS,
    TAGGED,
    WORD,
    EdgeType,
    has_edge,
    token_edge,
)


def describe_graph(data: Graph, targets: Targets) -> dict[str, int | float]:
    """Counts and means in the order of Table 1 of the paper (https://arxiv.org/abs/2102.07349).

    Args:
        data: A built graph.
        targets: Gold labels of the graph's documents.

    Returns:
        Name of the row -> value. "P(parent | child) in training" pools the hierarchy edges: of all
        pairs of a training document and an edge whose child it carries, the share whose parent it
        carries too; NaN without such a pair.
    """
    graph = view_graph(data)
    num_documents, dag, masks = graph.num_nodes(DOCUMENT), Hierarchy.from_data(graph), _masks(graph)
    train = masks["train"].nonzero().view(-1)
    fields = metadata_fields(graph)
    rows: dict[str, int | float] = {
        f"{split} documents": int(mask.sum()) for split, mask in masks.items()
    }
    rows["labels"] = targets.num_labels
    rows["labels / document"] = len(targets.index) / max(num_documents, 1)
    rows["labels never in training"] = int((targets.count(train) == 0).sum())
    rows["vocabulary"] = graph.num_nodes(WORD)
    rows["words / document"] = graph.num_edges(CONTAINS) / max(num_documents, 1)
    rows.update({f"{field} nodes": graph.num_nodes(field) for field in fields})
    for field in fields:
        rows[f"document-{field} edges"] = graph.num_edges(has_edge(field))
    for edge_type in graph.edge_types:
        if edge_type[1] != "has":
            rows[f"{' '.join(edge_type)} edges"] = graph.num_edges(edge_type)
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
    """Differences of a graph's counts from published ones.

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
#: Names of the ends of edge types whose ends have one type, or are not all nodes of a type.
_ENDS = {
    CITES: ("citing document", "cited document"),
    IS_A: ("child", "parent"),
    TAGGED: ("training document", "label"),
}


def count_degrees(data: Graph) -> dict[str, Tensor]:
    """Edges of every node at both ends of every edge type, [num_nodes] each, int64.

    Of documents, `TAGGED` edges are counted for those of training, as the others have none.

    Returns:
        "document has author, per document" and the like -> degrees.
    """
    graph, degrees = view_graph(data), {}
    for edge_type in graph.edge_types:
        ends = _ENDS.get(edge_type, (edge_type[0], edge_type[2]))
        for backwards, end in zip((False, True), ends, strict=True):
            degree = graph.adjacency(edge_type, backwards).ptr.diff()
            if edge_type == TAGGED and not backwards:
                degree = degree[_masks(graph)["train"]]
            degrees[f"{' '.join(edge_type)}, per {end}"] = degree
    return degrees


def _masks(graph: GraphView) -> dict[str, Tensor]:
    """Mask of the documents of each split, [D], bool."""
    found = {split: graph.node_tensor(DOCUMENT, mask) for split, mask in MASKS.items()}
    return {split: mask for split, mask in found.items() if mask is not None}


def describe_degrees(data: Graph) -> pd.DataFrame:
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


def describe_depths(data: Graph, targets: Targets) -> pd.DataFrame:
    """A row per depth of the hierarchy: labels, those unseen in training, documents of each."""
    graph = view_graph(data)
    dag = Hierarchy.from_data(graph)
    count = targets.count(_masks(graph)["train"].nonzero().view(-1)).numpy()
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


def describe_coverage(data: Graph) -> pd.DataFrame:
    """Coverage per metadata field (and words) and split: how much is there, and how much is new.

    Columns: documents; the share that has a value; values per document; the share of values that
    no training document has; of the documents with values, the share that has only such.
    """
    graph, rows = view_graph(data), {}
    for name in (*metadata_fields(graph), WORD):
        edge_type = token_edge(name)
        values = graph.adjacency(edge_type).ptr.diff()
        known_values = _count_known(graph, edge_type)
        for split, chosen in _masks(graph).items():
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


def _count_known(graph: GraphView, edge_type: EdgeType) -> Tensor:
    """Number of each document's edges to nodes that occur in training, [D], int64."""
    lists, seen = graph.adjacency(edge_type), graph.train_degree(edge_type) > 0
    counts = [
        torch.bincount(row_index(ptr - ptr[0])[seen[node.long()]], minlength=len(ptr) - 1)
        for ptr, node in _blocks(lists)
    ]
    return torch.cat(counts) if counts else torch.zeros(0, dtype=torch.int64)


def _blocks(lists: Adjacency) -> Iterator[tuple[Tensor, Tensor]]:
    """Offsets and neighbours of blocks of documents; offsets count from the first document."""
    for start in range(0, len(lists.ptr) - 1, _DOCUMENTS):
        ptr = lists.ptr[start : start + _DOCUMENTS + 1]
        yield ptr, lists.node[int(ptr[0]) : int(ptr[-1])]


def describe_parents(data: Graph, targets: Targets) -> pd.DataFrame:
    """Hierarchy edges by P(parent | child) among training documents, in tenths.

    The first row counts the edges whose child no training document carries.
    """
    graph = view_graph(data)
    dag, train = Hierarchy.from_data(graph), _masks(graph)["train"].nonzero().view(-1)
    tenth = (dag.parent_given_child(targets, train) * 10).floor().clamp(max=9).long()
    tenth[targets.count(train)[dag.edge_index[0]] == 0] = -1
    names = ["child never in training", *(f"{n / 10:.1f} to {n / 10 + 0.1:.1f}" for n in range(10))]
    counts = torch.bincount(tenth + 1, minlength=11).tolist()
    return pd.DataFrame({"edges": counts}, index=names)


def count_duplicates(data: Graph) -> pd.DataFrame:
    """Documents whose word sequence another document has too, by pair of splits.

    Documents without words are left out. A row "test in train" counts the test documents of which
    training has the text; "train in train" those that are not the first of their text.
    """
    texts = _fingerprint_splits(view_graph(data))
    rows = {}
    for first, second in combinations_with_replacement(MASKS, 2):
        if first == second:
            repeated = len(texts[first]) - len(np.unique(texts[first]))
        else:
            repeated = int(pd.Series(texts[second]).isin(texts[first]).sum())
        total = len(texts[second])
        rows[f"{second} in {first}"] = {"documents": repeated, "share": _share(repeated, total)}
    return pd.DataFrame.from_dict(rows, orient="index")


def count_twins(data: Graph) -> dict[str, int]:
    """Documents of valid and test whose word sequence a training document has, by split.

    Documents without words have none.

    Returns:
        Number by split that has documents; empty where no document has words.
    """
    graph = view_graph(data)
    texts, masks = _fingerprint_splits(graph), _masks(graph)
    if not any(map(len, texts.values())):
        return {}
    known = texts.pop("train", np.zeros(0, np.uint64))  # pandas hashes, np.isin sorts: slower
    return {
        split: int(pd.Series(prints).isin(known).sum())
        for split, prints in texts.items()
        if bool(masks[split].any())
    }


def _fingerprint_splits(graph: GraphView) -> dict[str, np.ndarray]:
    """Fingerprints of the documents of each split that have words."""
    prints = fingerprint_texts(graph)
    has_words = graph.adjacency(CONTAINS).ptr.diff().numpy() > 0
    return {split: prints[mask.numpy() & has_words] for split, mask in _masks(graph).items()}


def fingerprint_texts(data: Graph) -> np.ndarray:
    """A 64-bit fingerprint of every document's word sequence, [D], uint64."""
    prints = [np.zeros(0, dtype=np.uint64)]
    for ptr, node in _blocks(view_graph(data).adjacency(CONTAINS)):
        ends = (ptr - ptr[0]).numpy()
        places = np.arange(ends[-1]) - np.repeat(ends[:-1], np.diff(ends))
        keys = node.numpy().astype(np.uint64) << np.uint64(16) | places.astype(np.uint64)
        sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(mix_keys(keys), dtype=np.uint64)])
        prints.append(sums[ends[1:]] - sums[ends[:-1]])
    return np.concatenate(prints)


def _share(part: int, whole: int) -> float:
    return part / whole if whole else float("nan")
