"""The objective: binary cross-entropy from packed gold labels, and hypernymy."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from match_graph.graph.csr import row_index
from match_graph.nn.hypernymy import (
    LabelMatrices,
    check_finite,
    hypernymy_output_penalty,
    hypernymy_parameter_penalty,
)


def sparse_bce(
    logits: Tensor, label_ptr: Tensor, label_index: Tensor, check: bool = True
) -> Tensor:
    r"""Binary cross-entropy, summed over labels, averaged over documents.

    .. math:: \frac{1}{B} \sum_b \Bigl(\sum_l \log(1 + e^{z_{bl}}) - \sum_{l \in L_b} z_{bl}\Bigr)

    This is equation 23 of MATCH (https://arxiv.org/abs/2102.07349) divided by the number of
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
        GraphError: It is not finite.
    """
    dtype = torch.promote_types(logits.dtype, torch.float32)
    everything = F.softplus(logits).sum(dtype=dtype)
    gold = logits[row_index(label_ptr), label_index].sum(dtype=dtype)
    loss = (everything - gold) / max(logits.size(0), 1)
    return check_finite(loss, "The cross-entropy") if check else loss


@dataclass(frozen=True)
class Losses:
    """The terms of the objective, scalars; ``total`` has the gradient of all."""

    total: Tensor
    bce: Tensor
    parameter: Tensor
    output: Tensor


def match_loss(
    logits: Tensor,
    label_ptr: Tensor,
    label_index: Tensor,
    label_weight: Tensor,
    label_edge_index: Tensor,
    edge_weight: Tensor | None = None,
    lambda_parameter: float = 0.0,
    lambda_output: float = 0.0,
    document_weight: float = 1.0,
    matrices: LabelMatrices | None = None,
    check: bool = True,
) -> Losses:
    """Equation 26 of MATCH; a term whose weight is 0 costs nothing.

    Arguments as for `sparse_bce`, `hypernymy_parameter_penalty`, `hypernymy_output_penalty`, and

    Args:
        document_weight: Factor, in ``total``, of the terms that are means over documents. With the
            number of processes times this one's share of their documents, the mean of the
            processes' gradients is the gradient over all documents.
        check: Whether a term that is not finite is an error. On a GPU the check waits for the
            value, so that the training loop leaves it out and looks at sums of losses now and then.

    Raises:
        GraphError: As these, or a term is not finite.
    """
    bce = sparse_bce(logits, label_ptr, label_index, check)
    parameter = output = bce.new_zeros(())
    if lambda_parameter and label_edge_index.size(1):
        parameter = hypernymy_parameter_penalty(
            label_weight, label_edge_index, edge_weight, matrices, check
        )
    if lambda_output and label_edge_index.size(1):
        output = hypernymy_output_penalty(logits, label_edge_index, edge_weight, matrices, check)
    total = document_weight * bce + lambda_parameter * parameter
    total = total + document_weight * lambda_output * output
    return Losses(total, bce.detach(), parameter.detach(), output.detach())
