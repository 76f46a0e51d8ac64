"""The label hierarchy as an edge index: contraction, depth, ancestors, P(parent | child)."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import networkx as nx
import numpy as np
import pandas as pd
import scipy.sparse as sp
import torch
from torch import Tensor
from torch_geometric.data import HeteroData

from match_graph.errors import GraphError
from match_graph.graph.csr import row_index
from match_graph.graph.targets import Targets
from match_graph.hierarchy import describe_cycle, find_cycle_edges
from match_graph.typing import IS_A, LABEL

_MAX_PAIRS = 2**28  # of a label and an ancestor; 1.3 GB


@dataclass(frozen=True)
class LabelDAG:
    """ "child is_a parent" over the labels of a graph.

    Args:
        edge_index: Row 0 child, row 1 parent, [2, E], int64; acyclic.
        num_labels: Number of labels L; those outside the hierarchy have no edge.

    Raises:
        GraphError: The shape or a label is wrong, or the edges have a cycle.
    """

    edge_index: Tensor
    num_labels: int

    def __post_init__(self) -> None:
        check_label_edges(self.edge_index, self.num_labels)
        child, parent = self.edge_index.numpy()
        cycle = find_cycle_edges(child, parent, self.num_labels)
        if len(cycle):
            fault = describe_cycle([str(label) for label in child[cycle]])
            raise GraphError(f"{fault[0].upper()}{fault[1:]}")

    @classmethod
    def from_data(cls, data: HeteroData) -> "LabelDAG":
        """The hierarchy of a built graph."""
        edge_index = torch.empty(2, 0, dtype=torch.int64)
        if IS_A in data.edge_types:
            edge_index = data[IS_A].edge_index.to(torch.int64)
        return cls(edge_index, int(data[LABEL].num_nodes))

    @property
    def num_edges(self) -> int:
        return self.edge_index.size(1)

    @cached_property
    def depth(self) -> Tensor:
        """Edges on the longest path to a root, [L], int64; 0 for roots and labels outside."""
        graph: nx.DiGraph[int] = nx.DiGraph(
            list(zip(*self.edge_index.flip(0).tolist(), strict=True))
        )
        depth = torch.zeros(self.num_labels, dtype=torch.int64)
        for layer, labels in enumerate(nx.topological_generations(graph)):
            depth[list(labels)] = layer
        return depth

    @property
    def rank(self) -> Tensor:
        """The place of each label in the order by (depth, index), [L], int64: parents first."""
        return torch.argsort(torch.argsort(self.depth, stable=True))

    @property
    def num_layers(self) -> int:
        """Layers of the hierarchy; 0 where there is no edge."""
        return int(self.depth.max()) + 1 if self.num_edges else 0

    @cached_property
    def closure(self) -> sp.csr_array:
        """Entry (label, ancestor) is true for every proper ancestor, [L, L], sparse.

        Layer by layer from the roots: a label's ancestors are its parents and theirs. Time and
        memory grow with the entries, also for a chain of thousands of labels.

        Raises:
            GraphError: There are more than 2^28 entries, which no hierarchy of a corpus has.
        """
        child, parent = self.edge_index.numpy()
        rank, num_labels = self.rank.numpy(), self.num_labels
        order = np.argsort(rank[child], kind="stable")
        ends = np.stack([rank[child], rank[parent], parent])[:, order]
        row, lower, upper = ends.astype(np.int32)  # as `found`, so that SciPy copies nothing
        bounds = np.cumsum(np.bincount(self.depth)).tolist()  # of the layers, by rank
        ptr = np.zeros(num_labels + 1, np.int32)  # the rows of `found`, by rank
        found, end = np.empty(len(child), np.int32), 0
        true = np.ones(len(found), bool)
        for first, last in pairwise(bounds):
            edges = slice(*np.searchsorted(row, [first, last]))
            one, shape = true[: edges.stop - edges.start], (last - first, num_labels)
            done = sp.csr_array((true[:end], found[:end], ptr), (num_labels, num_labels))
            above = sp.csr_array((one, (row[edges] - first, lower[edges])), shape) @ done
            above += sp.csr_array((one, (row[edges] - first, upper[edges])), shape)
            if end + above.nnz > _MAX_PAIRS:
                raise GraphError(
                    f"A label hierarchy must have at most {_MAX_PAIRS:,} pairs of a label and an "
                    f"ancestor, found more after {last:,} of {num_labels:,} labels; use a "
                    f"shallower hierarchy, or set data.hierarchy=ignore."
                )
            if end + above.nnz > len(found):
                found = np.concatenate([found, np.empty(end + above.nnz, np.int32)])
                true = np.ones(len(found), bool)
            found[end : end + above.nnz] = above.indices
            ptr[first + 1 : last + 1] = end + above.indptr[1:]
            end += above.nnz
            ptr[last + 1 :] = end
        closure = sp.csr_array((true[:end], found[:end], ptr), (num_labels, num_labels))[rank]
        closure.sort_indices()
        return closure

    def ancestors(self) -> tuple[Tensor, Tensor]:
        """Proper ancestors per label: offsets [L + 1] and labels, int64."""
        closure = self.closure
        return torch.from_numpy(closure.indptr).long(), torch.from_numpy(closure.indices).long()

    def parent_given_child(self, targets: Targets, documents: Tensor) -> Tensor:
        """P(parent | child): of the documents with the child, the share with the parent too.

        Args:
            targets: Gold labels.
            documents: Documents to count over (the training split), [B], int64.

        Returns:
            [E], float32 in 0..1, as edge weights of the hypernymy terms; 1 where no document
            carries the child: such a label learns from its parents alone.
        """
        ptr, index = targets.select(documents)
        rows, labels = row_index(ptr).numpy(), index.numpy()
        shape = (len(documents), self.num_labels)
        gold = sp.csc_array((np.ones(len(labels), np.float64), (rows, labels)), shape=shape)
        child, parent = self.edge_index.numpy()
        both = np.asarray(gold[:, child].multiply(gold[:, parent]).sum(axis=0)).ravel()
        single = np.asarray(gold.sum(axis=0)).ravel()[child]
        share = np.divide(both, single, out=np.ones_like(both), where=single > 0)
        return torch.from_numpy(share).float()


def check_label_edges(edge_index: Tensor, num_labels: int) -> None:
    """Checks "child is_a parent" edges.

    Raises:
        GraphError: edge_index is not [2, E] int64, or names a label outside [0, L).
    """
    if edge_index.dim() != 2 or edge_index.size(0) != 2 or edge_index.dtype != torch.int64:
        raise GraphError(
            f"label_edge_index must be [2, E] int64 (row 0 child, row 1 parent), "
            f"found {list(edge_index.shape)} {edge_index.dtype}."
        )
    if edge_index.numel() and (edge_index.min() < 0 or edge_index.max() >= num_labels):
        raise GraphError(
            f"label_edge_index must name labels in [0, {num_labels}), "
            f"found {int(edge_index.min())} to {int(edge_index.max())}."
        )


def contract_hierarchy(
    hierarchy: pd.DataFrame, labels: Sequence[str]
) -> tuple[list[tuple[str, str]], int]:
    """Leaves out nodes that no document carries; children join the nearest kept ancestors.

    Args:
        hierarchy: Table of edges with the columns ``child`` and ``parent``; acyclic.
        labels: Labels to keep.

    Returns:
        (child, parent) pairs without repetition, and how many nodes were left out.
    """
    kept = set(labels)
    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_edges_from(zip(hierarchy["parent"], hierarchy["child"], strict=True))
    above: dict[str, dict[str, None]] = {}  # nearest kept ancestors, in order
    for node in nx.topological_sort(graph):
        above[node] = {}
        for parent in graph.predecessors(node):
            above[node].update({parent: None} if parent in kept else above[parent])
    edges = [(child, parent) for child in above if child in kept for parent in above[child]]
    return edges, len(above.keys() - kept)
