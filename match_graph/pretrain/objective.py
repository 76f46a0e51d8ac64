"""Margin ranking with its gradients in closed form: one objective for all four proximities."""

import torch
from torch import Tensor


def margin_violations(anchor: Tensor, positive: Tensor, negative: Tensor, margin: float) -> Tensor:
    r"""Margin violation of each negative, :math:`[\gamma + e_-^T e_a - e_+^T e_a]_+`.

    Source: equations 2 to 8 of MATCH, https://arxiv.org/abs/2102.07349.

    Args:
        anchor: Unit vectors of anchors, [P, C].
        positive: Unit vectors of positives, [P, C].
        negative: Unit vectors of negatives, shared by all positives, [K, C], or independent,
            [P, K, C].
        margin: Margin, the paper's :math:`\gamma`.

    Returns:
        [P, K], at least 0.
    """
    near = (anchor * positive).sum(dim=1, keepdim=True)  # [P, 1]
    if negative.dim() == 2:
        far = anchor @ negative.t()  # [P, K]
    else:
        far = torch.bmm(negative, anchor.unsqueeze(2)).squeeze(2)  # [P, K]
    return (margin + far - near).clamp(min=0)


def margin_gradients(
    anchor: Tensor, positive: Tensor, negative: Tensor, margin: float, allowed: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Loss and Euclidean gradients; each positive's loss is the mean over its K negatives.

    Source: equation 9 of MATCH, for several negatives at once. The authors' release attracts a
    negative whose cosine with the anchor is negative; here the indicator is the margin's alone.

    Args:
        anchor: Unit vectors of anchors, [P, C].
        positive: Unit vectors of positives, [P, C].
        negative: Unit vectors of negatives, [K, C] shared or [P, K, C] independent.
        margin: Margin, the paper's gamma.
        allowed: Mask of negatives, False where one is a positive itself, [P, K], bool.

    Returns:
        Loss per positive [P], and gradients shaped like anchor, positive and negative.
    """
    violation = margin_violations(anchor, positive, negative, margin) * allowed
    num_negatives = violation.size(1)
    weight = (violation > 0).to(anchor.dtype) / num_negatives  # [P, K]
    total = weight.sum(dim=1, keepdim=True)  # [P, 1]
    if negative.dim() == 2:
        pulled = weight @ negative  # [P, C]
        negative_gradient = weight.t() @ anchor  # [K, C]
    else:
        pulled = torch.bmm(weight.unsqueeze(1), negative).squeeze(1)
        negative_gradient = weight.unsqueeze(2) * anchor.unsqueeze(1)  # [P, K, C]
    loss = violation.sum(dim=1) / num_negatives
    return loss, pulled - total * positive, -total * anchor, negative_gradient


def margin_tangents(
    anchor: Tensor, positive: Tensor, negative: Tensor, margin: float, allowed: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Loss and Riemannian gradients for shared negatives: `margin_gradients`, then projected.

    What the projection takes away from a gradient is a sum of cosines that the objective has
    computed already, so that it costs no further pass over [P, C].

    Args:
        anchor: Unit vectors of anchors, [P, C].
        positive: Unit vectors of positives, [P, C].
        negative: Unit vectors of shared negatives, [K, C].
        margin: Margin, the paper's gamma.
        allowed: Mask of negatives, False where one is a positive itself, [P, K], bool.

    Returns:
        Summed loss [], and tangents shaped like anchor, positive and negative.
    """
    near = torch.linalg.vecdot(anchor, positive)  # [P]
    far = anchor @ negative.t()  # [P, K]
    weight = (far > (near - margin).unsqueeze(1)).logical_and_(allowed).to(anchor.dtype)
    weight /= negative.size(0)  # [P, K]
    total = weight.sum(dim=1)  # [P]
    near_total = total * near
    far = far.mul_(weight)
    far_total = far.sum(dim=1)  # [P]
    loss = far_total.sum() + margin * total.sum() - near_total.sum()

    anchor_tangent = weight @ negative  # [P, C]
    anchor_tangent.addcmul_(positive, total.unsqueeze(1), value=-1)
    anchor_tangent.addcmul_(anchor, (near_total - far_total).unsqueeze(1))
    positive_tangent = positive * near_total.unsqueeze(1)
    positive_tangent.addcmul_(anchor, total.unsqueeze(1), value=-1)
    negative_tangent = weight.t() @ anchor  # [K, C]
    negative_tangent.addcmul_(negative, far.sum(dim=0).unsqueeze(1), value=-1)
    return loss, anchor_tangent, positive_tangent, negative_tangent
