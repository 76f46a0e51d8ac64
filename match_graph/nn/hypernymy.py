"""Hypernymy regularization: children stay near and below their parents, over an edge index."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from match_graph.errors import GraphError
from match_graph.graph.label_dag import check_label_edges


@dataclass(frozen=True)
class SparseRows:
    """A sparse matrix [R, N] by rows, for products with a dense one.

    Args:
        offset: Offset of the first entry of each row, [R], int64.
        column: Column of each entry, [M], int64.
        value: Value of each entry, [M], floating point.
    """

    offset: Tensor
    column: Tensor
    value: Tensor

    @classmethod
    def from_entries(
        cls, row: Tensor, column: Tensor, value: Tensor, num_rows: int
    ) -> "SparseRows":
        """Matrix of entries in any order, each [M]; those of one place are summed."""
        order = torch.argsort(row, stable=True)
        offset = torch.searchsorted(row[order], torch.arange(num_rows, device=row.device))
        return cls(offset, column[order], value[order])

    def to(self, device: torch.device) -> "SparseRows":
        """Copy on a device."""
        return SparseRows(*(part.to(device) for part in (self.offset, self.column, self.value)))

    def multiply(self, dense: Tensor) -> Tensor:
        """Product with a dense matrix [N, C] -> [R, C], without gradient.

        By `embedding_bag`, which takes half of the time of `torch.sparse.mm` (measured with the
        Laplacian of 634 labels, 603 edges and 1,024 channels) and all threads.
        """
        return nn.functional.embedding_bag(
            self.column,
            dense.detach(),
            self.offset,
            mode="sum",
            per_sample_weights=self.value.to(dense.dtype),
        )


@dataclass(frozen=True)
class LabelMatrices:
    """The label edges as matrices, made once for all steps of a training.

    Args:
        laplacian: Weighted Laplacian: degrees on the diagonal, minus the weights beside it, [L, L].
        child_minus_parent: Incidence matrix, [E, L]: 1 at the child, -1 at the parent.
        edges_of_label: Transposed incidence matrix times the weights of the edges, [L, E].
        edge_weight: Weight of each edge, [E], floating point.
    """

    laplacian: SparseRows
    child_minus_parent: SparseRows
    edges_of_label: SparseRows
    edge_weight: Tensor

    @classmethod
    def from_edges(
        cls, label_edge_index: Tensor, num_labels: int, edge_weight: Tensor | None = None
    ) -> "LabelMatrices":
        """Matrices of label edges, float32 unless their weights are of another type.

        Args:
            label_edge_index: "child is_a parent", [2, E], int64; row 0 child, row 1 parent.
            num_labels: Number of labels L.
            edge_weight: Weight of each edge, [E]; None for 1.

        Raises:
            GraphError: label_edge_index is not [2, E] int64, or names a label >= L; edge_weight is
                not [E], or not finite and at least 0.
        """
        check_label_edges(label_edge_index, num_labels)
        _check_edge_weight(edge_weight, label_edge_index)
        child, parent = label_edge_index
        num_edges, device = child.numel(), child.device
        weight = torch.ones(num_edges, device=device) if edge_weight is None else edge_weight
        degree = weight.new_zeros(num_labels).index_add_(0, child, weight)
        degree.index_add_(0, parent, weight)
        labels, edges = (torch.arange(size, device=device) for size in (num_labels, num_edges))
        ends, one = torch.cat([child, parent]), torch.ones_like(weight)
        return cls(
            SparseRows.from_entries(
                torch.cat([ends, labels]),
                torch.cat([parent, child, labels]),
                torch.cat([-weight, -weight, degree]),
                num_labels,
            ),
            SparseRows.from_entries(edges.repeat(2), ends, torch.cat([one, -one]), num_edges),
            SparseRows.from_entries(
                ends, edges.repeat(2), torch.cat([weight, -weight]), num_labels
            ),
            weight,
        )

    def to(self, device: torch.device) -> "LabelMatrices":
        """Copy on a device."""
        return LabelMatrices(
            self.laplacian.to(device),
            self.child_minus_parent.to(device),
            self.edges_of_label.to(device),
            self.edge_weight.to(device),
        )


def hypernymy_parameter_penalty(
    label_weight: Tensor,
    label_edge_index: Tensor,
    edge_weight: Tensor | None = None,
    matrices: LabelMatrices | None = None,
    check: bool = True,
) -> Tensor:
    r"""How far the parameters of children are from those of their parents.

    .. math:: \frac{1}{2} \sum_{(c, p)} a_{cp} \|w_c - w_p\|^2 = \frac{1}{2} tr(W^T \Delta W)

    with the Laplacian :math:`\Delta` of the label edges: no difference is stored per edge.

    Source: equation 24 of MATCH, https://arxiv.org/abs/2102.07349 (a = 1). Differs from the
    authors' release, where the term has no gradient.

    Args:
        label_weight: Parameters of each label, [L, C], floating point.
        label_edge_index: "child is_a parent", [2, E], int64; row 0 child, row 1 parent.
        edge_weight: Weight of each edge, [E]; None for 1.
        matrices: Matrices of the edges, to be reused over calls; None makes them.
        check: Whether a value that is not finite is an error, see `match_loss`.

    Returns:
        Scalar, at least 0.

    Raises:
        GraphError: label_edge_index is not [2, E] int64, or names a label >= L; the value is not
            finite.
    """
    if matrices is None:
        matrices = LabelMatrices.from_edges(label_edge_index, label_weight.size(0), edge_weight)
    penalty: Tensor = _LaplacianForm.apply(label_weight, matrices.laplacian)
    return check_finite(penalty, "The hypernymy term of the parameters") if check else penalty


def hypernymy_output_penalty(
    logits: Tensor,
    label_edge_index: Tensor,
    edge_weight: Tensor | None = None,
    matrices: LabelMatrices | None = None,
    check: bool = True,
) -> Tensor:
    r"""How far children are scored above their parents, averaged over documents.

    .. math:: \frac{1}{B} \sum_b \sum_{(c, p)} a_{cp} \max(0, \sigma(z_{bc}) - \sigma(z_{bp}))

    Source: equation 25 of MATCH, https://arxiv.org/abs/2102.07349 (a = 1). Differs from the
    authors' release, which sums over the batch and has no gradient. Takes memory for [E, B].

    Args:
        logits: Label scores before the sigmoid, [B, L], floating point; fastest where it is the
            transpose of a contiguous [L, B], as `LinearHead` gives it.
        label_edge_index: "child is_a parent", [2, E], int64; row 0 child, row 1 parent.
        edge_weight: Weight of each edge, [E]; None for 1.
        matrices: Matrices of the edges, to be reused over calls; None makes them.
        check: Whether a value that is not finite is an error, see `match_loss`.

    Returns:
        Scalar in probability units; 0 if no child outranks a parent.

    Raises:
        GraphError: label_edge_index is not [2, E] int64, or names a label >= L; the value is not
            finite.
    """
    if matrices is None:
        matrices = LabelMatrices.from_edges(label_edge_index, logits.size(1), edge_weight)
    penalty: Tensor = _Excess.apply(logits, matrices)
    return check_finite(penalty, "The hypernymy term of the output") if check else penalty


def check_finite(value: Tensor, name: str) -> Tensor:
    """A term of the loss, [], as it is.

    Raises:
        GraphError: It is not finite.
    """
    if not bool(torch.isfinite(value.detach())):
        raise GraphError(
            f"{name} must be finite, found {float(value.detach())}; look for NaN or infinity in "
            f"what it was given, such as the scores of a model that diverged."
        )
    return value


def _check_edge_weight(edge_weight: Tensor | None, label_edge_index: Tensor) -> None:
    if edge_weight is not None and edge_weight.shape != label_edge_index.shape[1:]:
        raise GraphError(
            f"edge_weight must be [{label_edge_index.size(1)}], one per label edge, "
            f"found {list(edge_weight.shape)}."
        )
    if edge_weight is not None and not bool(((edge_weight >= 0) & edge_weight.isfinite()).all()):
        raise GraphError(
            f"edge_weight must be finite and at least 0, found "
            f"{float(edge_weight[~((edge_weight >= 0) & edge_weight.isfinite())][0])}; "
            f"LabelDAG.parent_given_child gives weights that are."
        )


class _Excess(torch.autograd.Function):
    """Mean over documents of the weighted sum of max(0, child - parent); logits [B, L] -> scalar.

    The gradient falls out of the value. Two products with the incidence of the edges take half the
    time of gathering and adding rows, with 603 edges and 64 documents as with 27,288 and 256
    (measured on CPU). Where child and parent are equal the gradient is 0.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, matrices: LabelMatrices) -> Tensor:
        dtype = torch.promote_types(logits.dtype, torch.float32)
        ctx.dtype, ctx.scale = logits.dtype, 1 / max(logits.size(0), 1)
        probability = torch.sigmoid(logits.t().to(dtype)).contiguous()  # [L, B]
        excess = matrices.child_minus_parent.multiply(probability).clamp_(min=0)  # [E, B]
        total = torch.dot(excess.sum(1), matrices.edge_weight.to(dtype))
        gradient = matrices.edges_of_label.multiply(excess.sign_())
        slope = probability.addcmul_(probability, probability, value=-1)  # of the sigmoid
        ctx.save_for_backward(gradient.mul_(slope))
        return total * ctx.scale

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, outgoing: Tensor) -> tuple[Tensor, None]:
        (gradient,) = ctx.saved_tensors
        return (gradient * (outgoing * ctx.scale)).to(ctx.dtype).t(), None


class _LaplacianForm(torch.autograd.Function):
    """1/2 tr(W^T Laplacian W); its gradient, Laplacian W, falls out of the value."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, laplacian: SparseRows) -> Tensor:
        gradient = laplacian.multiply(weight)
        ctx.save_for_backward(gradient)
        return torch.dot(weight.reshape(-1), gradient.view(-1)).mul_(0.5).clamp_(min=0)  # rounding

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, outgoing: Tensor) -> tuple[Tensor, None]:
        (gradient,) = ctx.saved_tensors
        return outgoing * gradient, None
