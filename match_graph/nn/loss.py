"""The objective: binary cross-entropy from packed gold labels, and hypernymy regularization."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from match_graph.errors import GraphError
from match_graph.graph import Hierarchy
from match_graph.graph.csr import SparseRows, row_index
from match_graph.nn.heads import Head


@dataclass(frozen=True)
class Losses:
    """The terms of the objective, scalars; ``total`` has the gradient of all."""

    total: Tensor
    bce: Tensor
    parameter: Tensor
    output: Tensor


def match_loss(
    logits: Tensor,
    targets: tuple[Tensor, Tensor],
    head: Head,
    hierarchy: Hierarchy,
    *,
    lambda_parameter: float = 0.0,
    lambda_output: float = 0.0,
    document_weight: float = 1.0,
    check: bool = True,
) -> Losses:
    """Equation 20 of MATCH; a term whose weight is 0 costs nothing.

    Its terms are those of `sparse_bce`, `hypernymy_parameter_penalty` and
    `hypernymy_output_penalty`.

    Args:
        logits: Label scores before the sigmoid, [B, L], floating point.
        targets: Offsets [B + 1] and packed gold labels, both int64, as `Targets.select` and
            `EgoBatch.gold` give them.
        head: Head that gave the logits.
        hierarchy: Label hierarchy with edge weights, on the device of the logits.
        lambda_parameter: Weight of the term of the parameters, the paper's lambda_1.
        lambda_output: Weight of the term of the output, the paper's lambda_2.
        document_weight: Factor, in ``total``, of the terms that are means over documents. With the
            number of processes times this one's share of their documents, the mean of the
            processes' gradients is the gradient over all documents.
        check: Whether a term that is not finite is an error. On a GPU the check waits for the
            value, so that the training loop leaves it out and looks at sums of losses now and then.

    Raises:
        GraphError: The hierarchy is of another number of labels, or a term is not finite.
    """
    hierarchy.check_labels(logits.size(1))
    bce = sparse_bce(logits, *targets, check)
    parameter = output = bce.new_zeros(())
    if lambda_parameter and hierarchy.num_edges:
        parameter = hypernymy_parameter_penalty(_read_label_weight(head), hierarchy, check)
    if lambda_output and hierarchy.num_edges:
        output = hypernymy_output_penalty(logits, hierarchy, check)
    total = document_weight * bce + lambda_parameter * parameter
    total = total + document_weight * lambda_output * output
    return Losses(total, bce.detach(), parameter.detach(), output.detach())


class _LabelWeight(nn.Module):
    """A head's ``label_weight`` as a forward pass, for `torch.func.functional_call`."""

    def __init__(self, head: Head) -> None:
        super().__init__()
        self.head = head

    def forward(self) -> Tensor:
        return self.head.label_weight


def _read_label_weight(head: Head) -> Tensor:
    """Unsharded label weights; a head that computes them does so from unsharded parameters.

    That gathers all parameters of such a head a second time in each step. Those that FSDP gathers
    for the head's forward pass cannot be reused: it frees them at its end, and reduces their
    gradients once, possibly before the gradients of what is computed here.
    """
    try:
        return whole(head.label_weight)
    except RuntimeError as error:  # an operation of a tensor and a shard
        if "DTensor" not in str(error):
            raise
    given = {f"head.{name}": whole(value) for name, value in head.named_parameters()}
    found: Tensor = torch.func.functional_call(_LabelWeight(head), given, ())
    return found


def whole(values: Tensor) -> Tensor:
    """A parameter, or a tensor computed from it, gathered from its shards if it is sharded."""
    full: Tensor = values.full_tensor() if hasattr(values, "full_tensor") else values
    return full


def sparse_bce(
    logits: Tensor, label_ptr: Tensor, label_index: Tensor, check: bool = True
) -> Tensor:
    r"""Binary cross-entropy, summed over labels, averaged over documents.

    .. math:: \frac{1}{B} \sum_b \Bigl(\sum_l \log(1 + e^{z_{bl}}) - \sum_{l \in L_b} z_{bl}\Bigr)

    This is equation 17 of MATCH (https://arxiv.org/abs/2102.07349) divided by the number of
    documents, without a dense target. So a weight that the paper would put beside its sum over
    documents is divided by their number here.

    Args:
        logits: Label scores before the sigmoid, [B, L], floating point.
        label_ptr: Offsets of gold labels, [B + 1], int64.
        label_index: Gold labels, packed, int64.
        check: Whether a value that is not finite is an error, see `match_loss`.

    Returns:
        Scalar, float32 or wider.

    Raises:
        GraphError: Logits and offsets are not of the same documents, or the value is not finite.
    """
    if logits.dim() != 2 or label_ptr.numel() != logits.size(0) + 1:
        raise GraphError(
            f"Logits must be [B, L], and offsets of gold labels [B + 1], found "
            f"{list(logits.shape)} and {list(label_ptr.shape)}."
        )
    dtype = torch.promote_types(logits.dtype, torch.float32)
    everything = F.softplus(logits).sum(dtype=dtype)
    gold = logits[row_index(label_ptr, len(label_index)), label_index].sum(dtype=dtype)
    loss = (everything - gold) / max(logits.size(0), 1)
    return _check_finite(loss, "The cross-entropy") if check else loss


def hypernymy_parameter_penalty(
    label_weight: Tensor, hierarchy: Hierarchy, check: bool = True
) -> Tensor:
    r"""How far the parameters of children are from those of their parents.

    .. math:: \frac{1}{2} \sum_{(c, p)} a_{cp} \|w_c - w_p\|^2 = \frac{1}{2} tr(W^T \Delta W)

    with the Laplacian :math:`\Delta` of the label edges: no difference is stored per edge.

    Source: equation 18 of MATCH, https://arxiv.org/abs/2102.07349 (a = 1). Differs from the
    authors' release, where the term is commented out.

    Args:
        label_weight: Parameters of each label, [L, C], floating point.
        hierarchy: Label hierarchy; its edge weights are :math:`a`.
        check: Whether a value that is not finite is an error, see `match_loss`.

    Returns:
        Scalar, at least 0.

    Raises:
        GraphError: The hierarchy is of another number of labels, or the value is not finite.
    """
    hierarchy.check_labels(label_weight.size(0))
    penalty: Tensor = _LaplacianForm.apply(label_weight, hierarchy.laplacian)
    return _check_finite(penalty, "The hypernymy term of the parameters") if check else penalty


def hypernymy_output_penalty(logits: Tensor, hierarchy: Hierarchy, check: bool = True) -> Tensor:
    r"""How far children are scored above their parents, averaged over documents.

    .. math:: \frac{1}{B} \sum_b \sum_{(c, p)} a_{cp} \max(0, \sigma(z_{bc}) - \sigma(z_{bp}))

    Source: equation 19 of MATCH, https://arxiv.org/abs/2102.07349 (a = 1). Differs from the
    authors' release, which sums over the batch and has no gradient. Takes memory for [E, B].

    Args:
        logits: Label scores before the sigmoid, [B, L], floating point; fastest where it is the
            transpose of a contiguous [L, B], as `LinearHead` gives it.
        hierarchy: Label hierarchy; its edge weights are :math:`a`.
        check: Whether a value that is not finite is an error, see `match_loss`.

    Returns:
        Scalar in probability units; 0 if no child outranks a parent.

    Raises:
        GraphError: The hierarchy is of another number of labels, or the value is not finite.
    """
    hierarchy.check_labels(logits.size(1))
    penalty: Tensor = _Excess.apply(logits, hierarchy)
    return _check_finite(penalty, "The hypernymy term of the output") if check else penalty


def _check_finite(value: Tensor, name: str) -> Tensor:
    if not bool(torch.isfinite(value.detach())):
        raise GraphError(
            f"{name} must be finite, found {float(value.detach())}; look for NaN or infinity in "
            f"what it was given, such as the scores of a model that diverged."
        )
    return value


class _Excess(torch.autograd.Function):
    """Mean over documents of the weighted sum of max(0, child - parent); logits [B, L] -> scalar.

    The gradient is computed along with the value. Two products with the incidence of the edges take
    half the time of gathering and adding rows, with 603 edges and 64 documents as with 27,288 and
    256 (measured on CPU). Where child and parent are equal the gradient is 0.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, hierarchy: Hierarchy) -> Tensor:
        dtype = torch.promote_types(logits.dtype, torch.float32)
        ctx.dtype, ctx.scale = logits.dtype, 1 / max(logits.size(0), 1)
        probability = torch.sigmoid(logits.t().to(dtype)).contiguous()  # [L, B]
        excess = hierarchy.child_minus_parent.multiply(probability).clamp_(min=0)  # [E, B]
        total = torch.dot(excess.sum(1), hierarchy.edge_weight.to(dtype))
        gradient = hierarchy.edges_of_label.multiply(excess.sign_())
        slope = probability.addcmul_(probability, probability, value=-1)  # of the sigmoid
        ctx.save_for_backward(gradient.mul_(slope))
        return total * ctx.scale

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, outgoing: Tensor) -> tuple[Tensor, None]:
        (gradient,) = ctx.saved_tensors
        return (gradient * (outgoing * ctx.scale)).to(ctx.dtype).t(), None


class _LaplacianForm(torch.autograd.Function):
    """1/2 tr(W^T Laplacian W); its gradient, Laplacian W, is a by-product of the value."""

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
