"""Margin ranking and its closed-form gradients, in float64 against autograd."""

import pytest
import torch
from torch import Tensor

from match_graph.pretrain import (
    margin_gradients,
    margin_tangents,
    margin_violations,
    riemannian_gradient,
    riemannian_step_,
)

MARGIN = 0.3


def make_rows(*shape: int, seed: int) -> Tensor:
    rows = torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return torch.nn.functional.normalize(rows, dim=-1)


def make_chunk(shared: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Anchor [6, 5], positive [6, 5], negative [4, 5] or [6, 4, 5], allowed [6, 4]."""
    negative = make_rows(4, 5, seed=2) if shared else make_rows(6, 4, 5, seed=2)
    allowed = torch.rand(6, 4, generator=torch.Generator().manual_seed(3)) < 0.8
    return make_rows(6, 5, seed=0), make_rows(6, 5, seed=1), negative, allowed


@pytest.mark.parametrize("shared", [True, False])
def test_margin_violations_are_those_of_a_naive_loop(shared: bool) -> None:
    anchor, positive, negative, _ = make_chunk(shared)
    violation = margin_violations(anchor, positive, negative, MARGIN)
    for p in range(6):
        for k in range(4):
            far = float((negative[k] if shared else negative[p, k]) @ anchor[p])
            near = float(positive[p] @ anchor[p])
            assert float(violation[p, k]) == pytest.approx(max(0.0, MARGIN + far - near))


@pytest.mark.parametrize("shared", [True, False])
def test_margin_gradients_are_those_of_autograd(shared: bool) -> None:
    *rows, allowed = make_chunk(shared)
    leaves = [row.clone().requires_grad_() for row in rows]
    violation = margin_violations(*leaves, MARGIN) * allowed
    assert 0 < int((violation > 0).sum()) < violation.numel()  # both sides of the indicator
    (violation.sum() / 4).backward()
    loss, *gradients = margin_gradients(*rows, MARGIN, allowed)
    assert torch.allclose(loss, violation.sum(dim=1).detach() / 4, atol=1e-15)
    for gradient, leaf in zip(gradients, leaves, strict=True):
        assert leaf.grad is not None
        assert torch.allclose(gradient, leaf.grad, atol=1e-15)


def test_margin_gradients_are_those_printed_in_the_paper() -> None:
    """Section 3.1: for one negative, e_neg - e_pos, -e_doc and e_doc where the margin is broken."""
    anchor, positive, negative = (make_rows(1, 5, seed=seed) for seed in (0, 1, 2))
    negative = anchor  # the closest possible: always a violation
    _, *gradients = margin_gradients(
        anchor, positive, negative, MARGIN, torch.ones(1, 1, dtype=torch.bool)
    )
    for found, expected in zip(gradients, (negative - positive, -anchor, anchor), strict=True):
        assert torch.allclose(found, expected)


def test_margin_gradients_no_gradient_where_the_margin_holds() -> None:
    anchor = make_rows(1, 5, seed=0)
    loss, *gradients = margin_gradients(
        anchor, anchor, -anchor, MARGIN, torch.ones(1, 1, dtype=torch.bool)
    )
    assert float(loss) == 0
    assert all(int(gradient.count_nonzero()) == 0 for gradient in gradients)


def test_margin_gradients_negative_negative_cosine() -> None:
    """A negative of negative cosine is never attracted.

    The authors' release pulls it in; here it is pushed away, or left alone.
    """
    anchor = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    positive = torch.tensor([[-0.8, 0.6]], dtype=torch.float64)  # worse than the negative
    negative = torch.tensor([[-0.6, 0.8]], dtype=torch.float64)
    _, _, _, gradient = margin_gradients(
        anchor, positive, negative, MARGIN, torch.ones(1, 1, dtype=torch.bool)
    )
    table = negative.clone()
    tangent = riemannian_gradient(table, gradient)
    riemannian_step_([(table, [torch.tensor([0])], [tangent])], 0.1)
    assert float(table @ anchor.t()) < float(negative @ anchor.t())


def test_margin_gradients_shared_negatives_independent_ones() -> None:
    """Shared negatives are independent ones that repeat."""
    anchor, positive, negative, allowed = make_chunk(shared=True)
    independent = negative.expand(6, 4, 5)
    loss, *ours = margin_gradients(anchor, positive, negative, MARGIN, allowed)
    expected_loss, *expected = margin_gradients(anchor, positive, independent, MARGIN, allowed)
    assert torch.allclose(loss, expected_loss)
    assert torch.allclose(ours[0], expected[0])
    assert torch.allclose(ours[1], expected[1])
    assert torch.allclose(ours[2], expected[2].sum(dim=0))


def test_margin_gradients_tangents_are_projected_gradients() -> None:
    *rows, allowed = make_chunk(shared=True)
    losses, *gradients = margin_gradients(*rows, MARGIN, allowed)
    loss, *tangents = margin_tangents(*rows, MARGIN, allowed)
    assert torch.allclose(loss, losses.sum(), atol=1e-14)
    for point, gradient, tangent in zip(rows, gradients, tangents, strict=True):
        assert torch.allclose(tangent, riemannian_gradient(point, gradient), atol=1e-14)


def test_margin_tangents_no_gradient_at_the_margin() -> None:
    """A negative just as far as the margin asks moves nothing, as in `margin_gradients`."""
    anchor, other = torch.tensor([[1.0, 0]]), torch.tensor([[0.0, 1]])
    allowed = torch.ones(1, 1, dtype=torch.bool)
    for find in (margin_tangents, margin_gradients):
        loss, *gradients = find(anchor, other, other, 0.0, allowed)
        assert float(loss) == 0
        assert not any(gradient.any() for gradient in gradients)


@pytest.mark.parametrize(("sign", "falls"), [(1.0, True), (-1.0, False)])
def test_margin_gradients_step_minus_and_printed_plus_diverges(sign: float, falls: bool) -> None:
    """The paper prints e + alpha * gradient; with it the loss of a fixed chunk only rises."""
    anchor, positive, negative, allowed = make_chunk(shared=True)
    allowed = torch.ones_like(allowed)
    tables = [anchor.clone(), positive.clone(), negative.clone()]
    losses = []
    for _ in range(200):
        loss, *gradients = margin_gradients(*tables, MARGIN, allowed)
        losses.append(float(loss.mean()))
        for table, gradient in zip(tables, gradients, strict=True):
            tangent = riemannian_gradient(table, gradient)
            riemannian_step_([(table, [torch.arange(len(table))], [tangent])], sign * 0.1)
    if falls:
        assert losses[-1] < 1e-3 < losses[0]
    else:
        assert losses[-1] > 1.5 > losses[0]
        assert losses == sorted(losses)
