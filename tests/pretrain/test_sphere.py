"""Riemannian descent on the rows of a table, against geoopt's sphere."""

import geoopt
import pytest
import torch
from torch import Tensor

from match_graph.errors import GraphError
from match_graph.pretrain import (
    random_unit_rows,
    retract_rows_,
    riemannian_gradient,
    riemannian_step_,
)

SPHERE = geoopt.Sphere()


def make_table(num_rows: int = 9, channels: int = 7, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    table = torch.randn(num_rows, channels, generator=generator, dtype=torch.float64)
    return torch.nn.functional.normalize(table, dim=1)


def test_random_unit_rows_are_unit_and_spread_over_the_sphere() -> None:
    table = random_unit_rows(20_000, 3, torch.Generator().manual_seed(0), torch.device("cpu"))
    assert table.shape == (20_000, 3)
    assert torch.allclose(table.norm(dim=1), torch.ones(20_000), atol=1e-6)
    assert table.mean(dim=0).abs().max() < 0.02
    assert torch.allclose(table.t() @ table / 20_000, torch.eye(3) / 3, atol=0.01)


def test_random_unit_rows_need_two_channels() -> None:
    with pytest.raises(GraphError) as caught:
        random_unit_rows(3, 1, torch.Generator(), torch.device("cpu"))
    assert str(caught.value) == (
        "Unit vectors need at least 2 channels to differ, found 1; ask for more."
    )


def step(table: Tensor, index: Tensor, gradient: Tensor, learning_rate: float) -> None:
    """`riemannian_step_` of one table by Euclidean gradients."""
    tangent = riemannian_gradient(table[index], gradient)
    riemannian_step_([(table, [index], [tangent])], learning_rate)


def test_riemannian_gradient_is_geoopts_projection() -> None:
    point, gradient = make_table(), torch.randn(9, 7, dtype=torch.float64)
    ours = riemannian_gradient(point, gradient)
    assert torch.allclose(ours, SPHERE.egrad2rgrad(point, gradient), atol=1e-14)
    assert torch.allclose(
        (ours * point).sum(dim=1), torch.zeros(9, dtype=torch.float64), atol=1e-14
    )


def test_riemannian_step_is_geoopts_projection_and_retraction() -> None:
    table, gradient = make_table(), torch.randn(4, 7, dtype=torch.float64)
    index = torch.tensor([5, 0, 8, 3])
    point = table[index]
    expected = SPHERE.retr(point, -0.3 * SPHERE.egrad2rgrad(point, gradient))
    step(table, index, gradient, 0.3)
    assert torch.allclose(table[index], expected, atol=1e-14)


def test_riemannian_step_with_minus_follows_geoopts_sgd_sphere() -> None:
    """Ten steps of a whole optimiser from the field, on one loss."""
    start, direction = make_table(6), make_table(6, seed=1)
    parameter = geoopt.ManifoldParameter(start.clone(), manifold=SPHERE)
    optimizer = geoopt.optim.RiemannianSGD([parameter], lr=0.1)
    table = start.clone()
    for _ in range(10):
        optimizer.zero_grad()
        (-(parameter * direction).sum()).backward()
        optimizer.step()
        step(table, torch.arange(6), -direction, 0.1)
    assert torch.allclose(table, parameter.detach(), atol=1e-12)


def test_riemannian_gradient_repeated_rows_move_by_sum_gradients() -> None:
    """Repeated rows move by the sum of their gradients."""
    once, twice = make_table(), make_table()
    gradient = torch.randn(5, 7, dtype=torch.float64)
    index = torch.tensor([2, 4, 2, 2, 4])
    step(twice, index, gradient, 0.2)
    summed = torch.zeros(9, 7, dtype=torch.float64).index_add_(0, index, gradient)
    step(once, torch.tensor([2, 4]), summed[[2, 4]], 0.2)
    assert torch.allclose(once, twice, atol=1e-14)


def test_riemannian_gradient_rows_not_sampled_stay_to_the_bit() -> None:
    table = make_table(50).float() * 1.5  # not even unit: nobody may touch them
    before = table.clone()
    index = torch.tensor([7, 7, 30])
    step(table, index, torch.randn(3, 7), 0.5)
    others = torch.ones(50, dtype=torch.bool)
    others[index] = False
    assert torch.equal(table[others], before[others])
    assert not torch.equal(table[index], before[index])


def test_random_unit_rows_norms_stay_after_many_float32_steps() -> None:
    """Norms stay one after many float32 steps."""
    generator = torch.Generator().manual_seed(0)
    table = random_unit_rows(30, 100, generator, torch.device("cpu"))
    for _ in range(2_000):
        index = torch.randint(30, (64,), generator=generator)
        gradient = torch.randn(64, 100, generator=generator) / 8
        step(table, index, gradient, 0.1)
    assert (table.double().norm(dim=1) - 1).abs().max() < 1e-6


@pytest.mark.parametrize("number", [3, 5, 40])
def test_retract_rows_of_a_small_table_as_of_a_large_one(number: int) -> None:
    """Fewer or more named rows than rows: each is a unit vector, others stay to the bit."""
    table = 3 * make_table(9).float()
    before, index = table.clone(), torch.arange(number) % 6
    retract_rows_(table, index)
    for row in range(9):
        named = row in index.tolist()
        expected = before[row] / torch.linalg.vector_norm(before[row]) if named else before[row]
        assert torch.equal(table[row], expected)
