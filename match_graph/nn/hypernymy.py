"""Hypernymy regularization: children stay near and below their parents, over an edge index."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from match_graph.errors import GraphError
from match_graph.graph.label_dag import check_label_edges

#: Probabilities of a piece of edges: 1 MiB, of which two lie in the processor's cache. A GPU waits
#: for no cache, but for the start of kernels.
_PIECE, _GPU_PIECE = 1 << 18, 1 << 26


@dataclass(frozen=True)
class LabelLaplacian:
    """The Laplacian of weighted label edges: degrees on the diagonal, minus the weights beside it.

    Args:
        offset: Where the entries of each row start, [L], int64.
        column: Of each entry, [M], int64.
        value: Of each entry, [M], floating point.
    """

    offset: Tensor
    column: Tensor
    value: Tensor

    @classmethod
    def from_edges(
        cls, label_edge_index: Tensor, num_labels: int, edge_weight: Tensor | None = None
    ) -> "LabelLaplacian":
        """That of label edges, float32 unless their weights are of another type.

        Args:
            label_edge_index: [2, E], int64; row 0 child, row 1 parent.
            num_labels: L.
            edge_weight: [E]; None for 1.

        Raises:
            GraphError: label_edge_index is not [2, E] int64, or names a label >= L; edge_weight is
                not [E].
        """
        check_label_edges(label_edge_index, num_labels)
        child, parent = label_edge_index
        value = check_edge_weight(edge_weight, label_edge_index)
        if value is None:
            value = torch.ones(child.numel(), device=child.device)
        diagonal = value.new_zeros(num_labels).index_add_(0, child, value)
        diagonal.index_add_(0, parent, value)
        labels = torch.arange(num_labels, device=child.device)
        row = torch.cat([child, parent, labels])
        order = torch.argsort(row, stable=True)
        column = torch.cat([parent, child, labels])[order]
        offset = torch.searchsorted(row[order], labels)
        return cls(offset, column, torch.cat([-value, -value, diagonal])[order])

    def to(self, device: torch.device) -> "LabelLaplacian":
        """The same on a device."""
        return LabelLaplacian(*(part.to(device) for part in (self.offset, self.column, self.value)))

    def multiply(self, label_weight: Tensor) -> Tensor:
        """Laplacian times parameters [L, C] -> [L, C], without gradient.

        By `embedding_bag`, which takes half of the time of `torch.sparse.mm` (measured with 634
        labels, 603 edges and 1,024 channels) and all threads.
        """
        return nn.functional.embedding_bag(
            self.column,
            label_weight.detach(),
            self.offset,
            mode="sum",
            per_sample_weights=self.value.to(label_weight.dtype),
        )


def hypernymy_parameter_penalty(
    label_weight: Tensor,
    label_edge_index: Tensor,
    edge_weight: Tensor | None = None,
    laplacian: LabelLaplacian | None = None,
) -> Tensor:
    r"""How far the parameters of children are from those of their parents.

    .. math:: \frac{1}{2} \sum_{(c, p)} a_{cp} \|w_c - w_p\|^2 = \frac{1}{2} tr(W^T \Delta W)

    with the Laplacian :math:`\Delta` of the label edges: no difference is stored per edge.

    Source: equation 24 of MATCH, https://arxiv.org/abs/2102.07349 (a = 1). Differs from the
    authors' release, where the term has no gradient.

    Args:
        label_weight: Parameters of each label, [L, C], floating point.
        label_edge_index: "child is_a parent", [2, E], int64; row 0 child, row 1 parent.
        edge_weight: The factor of each edge, [E]; None for 1.
        laplacian: That of the edges, for who calls again and again; None makes it.

    Returns:
        Scalar, at least 0.

    Raises:
        GraphError: label_edge_index is not [2, E] int64, or names a label >= L.
    """
    if laplacian is None:
        laplacian = LabelLaplacian.from_edges(label_edge_index, label_weight.size(0), edge_weight)
    penalty: Tensor = _LaplacianForm.apply(label_weight, laplacian)
    return penalty


def hypernymy_output_penalty(
    logits: Tensor, label_edge_index: Tensor, edge_weight: Tensor | None = None
) -> Tensor:
    r"""How far children are scored above their parents, averaged over documents.

    .. math:: \frac{1}{B} \sum_b \sum_{(c, p)} a_{cp} \max(0, \sigma(z_{bc}) - \sigma(z_{bp}))

    Source: equation 25 of MATCH, https://arxiv.org/abs/2102.07349 (a = 1). Differs from the
    authors' release, which sums over the batch and has no gradient.

    Args:
        logits: Label scores before the sigmoid, [B, L], floating point; fastest where it is the
            transpose of a contiguous [L, B], as `LinearHead` gives it.
        label_edge_index: "child is_a parent", [2, E], int64; row 0 child, row 1 parent.
        edge_weight: The factor of each edge, [E]; None for 1.

    Returns:
        Scalar in probability units; 0 if no child outranks a parent.

    Raises:
        GraphError: label_edge_index is not [2, E] int64, or names a label >= L.
    """
    check_label_edges(label_edge_index, logits.size(1))
    weight = check_edge_weight(edge_weight, label_edge_index)
    penalty: Tensor = _Excess.apply(logits, label_edge_index, weight)
    return penalty


def check_edge_weight(edge_weight: Tensor | None, label_edge_index: Tensor) -> Tensor | None:
    """Checks that there is one weight per edge.

    Raises:
        GraphError: The shape is not [E].
    """
    if edge_weight is not None and edge_weight.shape != label_edge_index.shape[1:]:
        raise GraphError(
            f"edge_weight must be [{label_edge_index.size(1)}], one per label edge, "
            f"found {list(edge_weight.shape)}."
        )
    return edge_weight


class _Excess(torch.autograd.Function):
    """Mean over documents of the weighted sum of max(0, child - parent); logits [B, L] -> scalar.

    The gradient falls out of the value. Edges are taken in pieces whose rows stay in the
    processor's cache. Measured on CPU with 256 documents and 27,288 edges, the whole term takes
    half the time of autograd over all edges at once. Where child and parent are equal the gradient
    is 0.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, edge_index: Tensor, edge_weight: Tensor | None) -> Tensor:
        dtype, num_documents = torch.promote_types(logits.dtype, torch.float32), logits.size(0)
        probability = torch.sigmoid(logits.t().to(dtype)).contiguous()  # [L, B]
        piece = max(1, (_PIECE if logits.is_cpu else _GPU_PIECE) // max(num_documents, 1))
        gradient, total = torch.zeros_like(probability), probability.new_zeros(())
        for start in range(0, edge_index.size(1), piece):
            child, parent = edge_index[:, start : start + piece]
            excess = probability.index_select(0, child)
            excess.sub_(probability.index_select(0, parent)).clamp_(min=0)  # [piece, B]
            violated = torch.sign(excess)
            if edge_weight is not None:
                violated.mul_(edge_weight[start : start + piece].to(dtype).unsqueeze(1))
            total += torch.dot(excess.view(-1), violated.view(-1))
            gradient.index_add_(0, child, violated)
            gradient.index_add_(0, parent, violated, alpha=-1)
        slope = probability.addcmul_(probability, probability, value=-1)  # of the sigmoid
        ctx.save_for_backward(gradient.mul_(slope))
        ctx.dtype, ctx.scale = logits.dtype, 1 / max(num_documents, 1)
        return total * ctx.scale

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, outgoing: Tensor) -> tuple[Tensor, None, None]:
        (gradient,) = ctx.saved_tensors
        return (gradient * (outgoing * ctx.scale)).to(ctx.dtype).t(), None, None


class _LaplacianForm(torch.autograd.Function):
    """1/2 tr(W^T Laplacian W); its gradient, Laplacian W, falls out of the value."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, laplacian: LabelLaplacian) -> Tensor:
        gradient = laplacian.multiply(weight)
        ctx.save_for_backward(gradient)
        return torch.dot(weight.reshape(-1), gradient.view(-1)).mul_(0.5).clamp_(min=0)  # rounding

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, outgoing: Tensor) -> tuple[Tensor, None]:
        (gradient,) = ctx.saved_tensors
        return outgoing * gradient, None
