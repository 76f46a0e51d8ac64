"""Gold labels of all splits; the label hierarchy with its weights, depth and matrices."""

import copy
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import networkx as nx
import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from match_graph.cycles import describe_cycle, find_cycle_edges
from match_graph.errors import GraphError
from match_graph.graph.csr import SparseRows, check_rows, row_index, select_rows, sorted_row_ptr
from match_graph.graph.view import Graph, view_graph
from match_graph.typing import DOCUMENT, IS_A, LABEL

#: Documents whose gold labels are counted at once.
_DOCUMENTS = 2**17


@dataclass(frozen=True)
class Targets:
    """Gold labels per document, packed.

    Args:
        ptr: Offsets per document, [D + 1], int64.
        index: Labels of each document, ascending, [sum of labels], int32.
        num_labels: Number of labels L.
    """

    ptr: Tensor
    index: Tensor
    num_labels: int

    def select(self, documents: Tensor) -> tuple[Tensor, Tensor]:
        """Offsets [B + 1] and labels, both int64, of some documents.

        Args:
            documents: Documents, [B], or a mask of them, [D], bool.

        Raises:
            GraphError: One is out of range, or the mask is of another length.
        """
        ptr, index = self._select(documents)
        return ptr, index.to(torch.int64)

    def _select(self, documents: Tensor) -> tuple[Tensor, Tensor]:
        number = self.ptr.numel() - 1
        if documents.dtype == torch.bool and documents.shape == (number,):
            documents = documents.nonzero().view(-1)
        check_rows(documents, number, DOCUMENT)
        return select_rows(self.ptr, self.index, documents)

    def to_sparse(self, documents: Tensor) -> sp.csr_array:
        """Entry (document, label) is 1 for gold labels, [B, L], float32; arguments as `select`."""
        ptr, index = self._select(documents)
        ones = np.ones(len(index), np.float32)
        shape = len(ptr) - 1, self.num_labels
        return sp.csr_array((ones, index.numpy(), ptr.numpy()), shape=shape)

    def count(self, documents: Tensor) -> Tensor:
        """Number of these documents that carry each label, [L], int64; arguments as `select`."""
        return torch.bincount(self.select(documents)[1], minlength=self.num_labels)

    def merge(self, group: Tensor, num_groups: int) -> "Targets":
        """Targets over groups of labels: a document has the groups of its labels.

        Args:
            group: Group of each label, [L], int64.
            num_groups: Number of groups.
        """
        key = torch.unique(row_index(self.ptr) * num_groups + group[self.index.long()])
        ptr = sorted_row_ptr(key // num_groups, self.ptr.numel() - 1)
        return Targets(ptr, (key % num_groups).to(self.index.dtype), num_groups)

    def to_dict(self) -> dict[str, Tensor | int]:
        """Tensors that `Targets(**...)` takes."""
        return {"ptr": self.ptr, "index": self.index, "num_labels": self.num_labels}


_MAX_PAIRS = 2**28  # of a label and an ancestor; 1.3 GB
_MATRICES = ("laplacian", "child_minus_parent", "edges_of_label")


class Hierarchy:
    """Label hierarchy: "child is_a parent" edges, with depths, ancestors and matrices of losses.

    What is derived from the edges is computed on first use, and cached.

    Args:
        edge_index: Row 0 child, row 1 parent, [2, E], int64; acyclic.
        num_labels: Number of labels L; those outside the hierarchy have no edge.
        edge_weight: Weight of each edge in the losses, [E], floating point; None for 1.

    Raises:
        GraphError: The shape or a label is wrong, an edge is named twice, the edges have a cycle,
            or a weight is not finite and at least 0.
    """

    def __init__(
        self, edge_index: Tensor, num_labels: int, edge_weight: Tensor | None = None
    ) -> None:
        check_label_edges(edge_index, num_labels)
        child, parent = edge_index.cpu().numpy()
        cycle = find_cycle_edges(child, parent, num_labels)
        if len(cycle):
            fault = describe_cycle([str(label) for label in child[cycle]])
            raise GraphError(f"{fault[0].upper()}{fault[1:]}")
        self.edge_index, self.num_labels = edge_index, num_labels
        self.edge_weight = torch.ones(edge_index.size(1), device=edge_index.device)
        if edge_weight is not None:
            _check_edge_weight(edge_weight, edge_index.size(1))
            self.edge_weight = edge_weight

    @classmethod
    def from_data(cls, data: Graph) -> "Hierarchy":
        """The hierarchy of a built graph, with edge weights of 1."""
        graph = view_graph(data)
        num_labels = graph.num_nodes(LABEL)
        if IS_A not in graph.edge_types:
            return cls.without_edges(num_labels)
        return cls(graph.edge_index(IS_A).to(torch.int64), num_labels)

    @classmethod
    def without_edges(cls, num_labels: int) -> "Hierarchy":
        """A flat label set."""
        return cls(torch.empty(2, 0, dtype=torch.int64), num_labels)

    def weighted(self, edge_weight: Tensor) -> "Hierarchy":
        """Copy with other edge weights, as the class takes them."""
        return Hierarchy(self.edge_index, self.num_labels, edge_weight)

    def to(self, device: torch.device | str) -> "Hierarchy":
        """Copy on a device, with the matrices."""
        other = copy.copy(self)
        for name in ("edge_index", "edge_weight", *_MATRICES):
            setattr(other, name, getattr(self, name).to(device))
        return other

    def check_labels(self, num_labels: int) -> None:
        """Checks that scores or parameters are of the labels of the hierarchy.

        Raises:
            GraphError: There are more or fewer.
        """
        if num_labels != self.num_labels:
            raise GraphError(
                f"Values must be of the {self.num_labels} labels of the hierarchy, found "
                f"{num_labels}."
            )

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
        """Rank of each label by (depth, index), [L], int64: parents come first."""
        return torch.argsort(torch.argsort(self.depth, stable=True))

    @property
    def num_layers(self) -> int:
        """Layers of the hierarchy; 0 where there is no edge."""
        return int(self.depth.max()) + 1 if self.num_edges else 0

    @cached_property
    def closure(self) -> sp.csr_array:
        """Entry (label, ancestor) is true for every proper ancestor, [L, L], sparse.

        Computed layer by layer from the roots, as a label's ancestors are its parents and theirs.
        Time and memory grow with the entries, also for a chain of thousands of labels.

        Raises:
            GraphError: There are more than 2^28 entries, which no hierarchy of a corpus has.
        """
        child, parent = self.edge_index.cpu().numpy()
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

    @cached_property
    def laplacian(self) -> SparseRows:
        """Weighted Laplacian: degrees on the diagonal, minus the weights beside it, [L, L]."""
        child, parent = self.edge_index
        weight, labels = self.edge_weight, torch.arange(self.num_labels, device=child.device)
        degree = weight.new_zeros(self.num_labels).index_add_(0, child, weight)
        degree.index_add_(0, parent, weight)
        return SparseRows.from_entries(
            torch.cat([child, parent, labels]),
            torch.cat([parent, child, labels]),
            torch.cat([-weight, -weight, degree]),
            self.num_labels,
        )

    @cached_property
    def child_minus_parent(self) -> SparseRows:
        """Incidence matrix of the edges, [E, L]: 1 at the child, -1 at the parent."""
        edges, ends, one = *self._incidence, torch.ones_like(self.edge_weight)
        return SparseRows.from_entries(edges, ends, torch.cat([one, -one]), self.num_edges)

    @cached_property
    def edges_of_label(self) -> SparseRows:
        """Transposed incidence matrix times the weights of the edges, [L, E]."""
        edges, ends, weight = *self._incidence, self.edge_weight
        return SparseRows.from_entries(ends, edges, torch.cat([weight, -weight]), self.num_labels)

    @property
    def _incidence(self) -> tuple[Tensor, Tensor]:
        """Edge and label index of the entries, first the children's, then the parents'."""
        edges = torch.arange(self.num_edges, device=self.edge_index.device)
        return edges.repeat(2), self.edge_index.flatten()

    def parent_given_child(self, targets: Targets, documents: Tensor) -> Tensor:
        """P(parent | child): of the documents with the child, the share with the parent too.

        Args:
            targets: Gold labels.
            documents: Documents to count over (the training split), [B], int64.

        Returns:
            [E], float32 in 0..1, as edge weights of the hypernymy terms; 1 where no document
            carries the child: such a label learns from its parents alone.
        """
        child, parent = self.edge_index.numpy()
        both, count = np.zeros(self.num_edges), np.zeros(self.num_labels)
        for part in documents.split(_DOCUMENTS):
            gold = targets.to_sparse(part).tocsc()
            both += gold[:, child].multiply(gold[:, parent]).sum(axis=0)
            count += gold.sum(axis=0)
        single = count[child]
        share = np.divide(both, single, out=np.ones_like(both), where=single > 0)
        return torch.from_numpy(share).float()


@dataclass(frozen=True)
class LabelGraph:
    """Label hierarchy and label features, as heads may read them.

    Args:
        hierarchy: Label hierarchy of L labels.
        x: Features of the labels in the order of the graph's nodes, [L, F], floating point; None
            where they have none.

    Raises:
        GraphError: x has not one row per label.
    """

    hierarchy: Hierarchy
    x: Tensor | None = None

    def __post_init__(self) -> None:
        num_labels = self.hierarchy.num_labels
        if self.x is not None and (self.x.dim() != 2 or len(self.x) != num_labels):
            raise GraphError(
                f"Features of labels must be [{num_labels}, F], a row per label of the hierarchy, "
                f"found {list(self.x.shape)}."
            )


def check_label_edges(edge_index: Tensor, num_labels: int) -> None:
    """Checks "child is_a parent" edges.

    Raises:
        GraphError: edge_index is not [2, E] int64, names a label outside [0, L), or an edge twice.
    """
    if not isinstance(edge_index, Tensor):
        raise GraphError(
            f"label_edge_index must be a tensor [2, E] int64, found a {type(edge_index).__name__}; "
            f"wrap it in torch.tensor."
        )
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
    ordered = (edge_index[0] * num_labels + edge_index[1]).sort().values
    if len(twice := ordered[1:][ordered[1:] == ordered[:-1]]):
        child, parent = divmod(int(twice[0]), num_labels)
        raise GraphError(
            f"label_edge_index must name each edge once, found {child} below {parent} twice; "
            f"give torch.unique(label_edge_index, dim=1)."
        )


def _check_edge_weight(edge_weight: Tensor, num_edges: int) -> None:
    if list(edge_weight.shape) != [num_edges]:
        raise GraphError(
            f"edge_weight must be [{num_edges}], one per label edge, "
            f"found {list(edge_weight.shape)}."
        )
    fits = (edge_weight >= 0) & edge_weight.isfinite()
    if not bool(fits.all()):
        raise GraphError(
            f"edge_weight must be finite and at least 0, found {float(edge_weight[~fits][0])}; "
            f"Hierarchy.parent_given_child gives weights that are."
        )
