"""Both regularisers against naive loops over edges and documents, with their gradients."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from match_graph.errors import GraphError
from match_graph.nn import hypernymy_output_penalty, hypernymy_parameter_penalty
from match_graph.nn.hypernymy import LabelMatrices

NO_EDGES = torch.empty(2, 0, dtype=torch.int64)
Edges = list[tuple[int, int]]


def edge_index_of(edges: Edges) -> Tensor:
    return torch.tensor(edges, dtype=torch.int64).view(-1, 2).t()


@st.composite
def hierarchies(draw: st.DrawFn) -> tuple[int, Edges, Tensor | None]:
    """L, edges from later to earlier labels in any order, and weights or None."""
    num_labels = draw(st.integers(1, 7))
    possible = [(child, parent) for child in range(num_labels) for parent in range(child)]
    edges = draw(st.lists(st.sampled_from(possible), unique=True)) if possible else []
    number = draw(st.permutations(range(num_labels)))
    edges = [(number[child], number[parent]) for child, parent in edges]
    if draw(st.booleans()):
        return num_labels, edges, None
    weight = draw(st.lists(st.floats(0, 2), min_size=len(edges), max_size=len(edges)))
    return num_labels, edges, torch.tensor(weight, dtype=torch.float64)


def random_values(rows: int, columns: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return 2 * torch.randn(rows, columns, generator=generator, dtype=torch.float64)


def spread_logits(num_documents: int, num_labels: int, seed: int) -> Tensor:
    """Logits of a document at least 0.4 apart: away from the kink of max(0, .)."""
    generator = torch.Generator().manual_seed(seed)
    rows = [torch.randperm(num_labels, generator=generator) for _ in range(num_documents)]
    return 0.4 * torch.stack(rows).double() - 1.0


def factors(edges: Edges, edge_weight: Tensor | None) -> list[float]:
    return [1.0] * len(edges) if edge_weight is None else edge_weight.tolist()


def naive_parameter_penalty(weight: Tensor, edges: Edges, edge_weight: Tensor | None) -> float:
    """1/2 of the summed squares, edge by edge and channel by channel."""
    total = 0.0
    for (child, parent), factor in zip(edges, factors(edges, edge_weight), strict=True):
        for one, other in zip(weight[child].tolist(), weight[parent].tolist(), strict=True):
            total += 0.5 * factor * (one - other) ** 2
    return total


def naive_output_penalty(logits: Tensor, edges: Edges, edge_weight: Tensor | None) -> float:
    """Summed excess of children, document by document and edge by edge, over the documents."""
    total = 0.0
    for row in logits.tolist():
        for (child, parent), factor in zip(edges, factors(edges, edge_weight), strict=True):
            excess = 1 / (1 + math.exp(-row[child])) - 1 / (1 + math.exp(-row[parent]))
            total += factor * max(0.0, excess)
    return total / len(logits)


@given(hierarchies(), st.integers(1, 4))
def test_the_parameter_penalty_equals_a_naive_loop(
    hierarchy: tuple[int, Edges, Tensor | None], channels: int
) -> None:
    """1/2 sum a ||w_c - w_p||^2 in float64, weighted and not; diamonds and labels outside."""
    num_labels, edges, edge_weight = hierarchy
    weight = random_values(num_labels, channels, seed=channels)
    found = hypernymy_parameter_penalty(weight, edge_index_of(edges), edge_weight)
    expected = naive_parameter_penalty(weight, edges, edge_weight)
    assert found.dtype == torch.float64
    assert float(found) == pytest.approx(expected, rel=1e-10, abs=1e-10)


@given(hierarchies())
def test_label_edges_as_matrices(hierarchy: tuple[int, Edges, Tensor | None]) -> None:
    """Laplacian = degree - adjacency = incidence^T weight incidence, repeated edges summed; the
    penalties by the matrices equal those by the edges."""
    num_labels, edges, edge_weight = hierarchy
    expected = torch.zeros(num_labels, num_labels, dtype=torch.float64)
    for (child, parent), factor in zip(edges, factors(edges, edge_weight), strict=True):
        expected[child, child] += factor
        expected[parent, parent] += factor
        expected[child, parent] -= factor
        expected[parent, child] -= factor
    index = edge_index_of(edges)
    matrices = LabelMatrices.from_edges(index, num_labels, edge_weight).to(torch.device("cpu"))
    identity = torch.eye(num_labels, dtype=torch.float64)
    assert torch.allclose(matrices.laplacian.multiply(identity), expected, rtol=1e-6, atol=1e-7)
    if edges:
        incidence = matrices.child_minus_parent.multiply(identity)
        product = matrices.edges_of_label.multiply(incidence)
        assert torch.allclose(product, expected, rtol=1e-6, atol=1e-7)
    weight = random_values(num_labels, 2, seed=1)
    for penalty, values in (
        (hypernymy_parameter_penalty, weight),
        (hypernymy_output_penalty, weight.t()),
    ):
        found = penalty(values, index, edge_weight, matrices)
        assert torch.equal(found, penalty(values, index, edge_weight))


@given(hierarchies(), st.integers(1, 5))
def test_the_output_penalty_equals_a_naive_loop(
    hierarchy: tuple[int, Edges, Tensor | None], num_documents: int
) -> None:
    """Mean over documents of sum a max(0, child - parent) in float64, weighted and not."""
    num_labels, edges, edge_weight = hierarchy
    logits = random_values(num_documents, num_labels, seed=num_documents)
    found = hypernymy_output_penalty(logits, edge_index_of(edges), edge_weight)
    expected = naive_output_penalty(logits, edges, edge_weight)
    assert found.dtype == torch.float64
    assert float(found) == pytest.approx(expected, rel=1e-10, abs=1e-12)


@given(hierarchies())
@settings(max_examples=20)
def test_the_gradient_of_the_parameter_penalty(
    hierarchy: tuple[int, Edges, Tensor | None],
) -> None:
    """gradcheck in float64."""
    num_labels, edges, edge_weight = hierarchy
    weight = random_values(num_labels, 2, seed=0).requires_grad_()
    index = edge_index_of(edges)
    assert torch.autograd.gradcheck(
        lambda values: hypernymy_parameter_penalty(values, index, edge_weight), weight
    )


@given(hierarchies())
@settings(max_examples=20)
def test_the_gradient_of_the_output_penalty(
    hierarchy: tuple[int, Edges, Tensor | None],
) -> None:
    """gradcheck in float64, away from the kink."""
    num_labels, edges, edge_weight = hierarchy
    logits = spread_logits(3, num_labels, seed=1).requires_grad_()
    index = edge_index_of(edges)
    assert torch.autograd.gradcheck(
        lambda values: hypernymy_output_penalty(values, index, edge_weight), logits
    )


def test_the_parameter_penalty_pulls_child_and_parent_together() -> None:
    """Both ends of an edge have a gradient, opposite and in proportion to the gap; others none."""
    weight = random_values(4, 3, seed=0).requires_grad_()
    (2 * hypernymy_parameter_penalty(weight, torch.tensor([[2], [0]]))).backward()
    gap = (weight[2] - weight[0]).detach()
    assert torch.allclose(weight.grad[2], 2 * gap)
    assert torch.allclose(weight.grad[0], -2 * gap)
    assert not weight.grad[[1, 3]].any()


def test_the_output_penalty_lowers_the_child_and_raises_the_parent() -> None:
    """Both ends of a violated edge have a gradient; where the parent is above, none."""
    logits = torch.tensor([[-1.0, 1.0, 0.0], [1.0, -1.0, 0.0]], requires_grad=True)
    hypernymy_output_penalty(logits, torch.tensor([[1], [0]])).backward()
    slope = math.exp(-1) / (1 + math.exp(-1)) ** 2 / 2
    expected = torch.tensor([[-slope, slope, 0.0], [0.0, 0.0, 0.0]])
    assert torch.allclose(logits.grad, expected)


def test_swapping_the_edges_changes_only_the_output_penalty() -> None:
    """The parameter penalty is symmetric in child and parent, the output penalty is not."""
    edges = torch.tensor([[1, 2, 3], [0, 0, 1]])
    values = random_values(4, 4, seed=3)
    parameter = [hypernymy_parameter_penalty(values, index) for index in (edges, edges.flip(0))]
    output = [hypernymy_output_penalty(values, index) for index in (edges, edges.flip(0))]
    assert torch.allclose(*parameter)
    assert not torch.allclose(*output)


def test_transposed_logits_give_the_same() -> None:
    """The [L, B] view of a head equals contiguous logits, value and gradient."""
    edges = torch.tensor([[1, 2, 3, 3], [0, 0, 1, 2]])
    contiguous = random_values(5, 4, seed=2)
    results = []
    for logits in (contiguous.clone(), contiguous.t().contiguous().t()):
        logits.requires_grad_()
        penalty = hypernymy_output_penalty(logits, edges)
        penalty.backward()
        results.append((penalty.detach(), logits.grad))
    assert results[0][0] > 0
    assert torch.allclose(results[0][0], results[1][0], rtol=1e-12)
    assert torch.allclose(results[0][1], results[1][1], rtol=1e-12)


@pytest.mark.parametrize("edge_weight", [None, torch.empty(0)])
def test_without_edges_both_are_0_with_gradients(edge_weight: Tensor | None) -> None:
    """A flat label set: the terms vanish and do not break the backward pass."""
    for penalty in (hypernymy_parameter_penalty, hypernymy_output_penalty):
        values = torch.randn(3, 4, requires_grad=True)
        result = penalty(values, NO_EDGES, edge_weight)
        result.backward()
        assert float(result.detach()) == 0
        assert not values.grad.any()


def test_no_documents_give_0() -> None:
    """Not a division by zero."""
    assert float(hypernymy_output_penalty(torch.empty(0, 2), torch.tensor([[1], [0]]))) == 0


def test_equal_parameters_never_give_less_than_0() -> None:
    """Rounding in the Laplacian form does not turn the penalty negative."""
    for seed in range(20):
        generator = torch.Generator().manual_seed(seed)
        weight = (10 * torch.randn(1, 64, generator=generator)).expand(50, 64).clone()
        parent = torch.randint(0, 49, (80,), generator=generator)
        edges = torch.stack([parent + 1, parent])
        factor = torch.rand(80, generator=generator)
        assert 0 <= float(hypernymy_parameter_penalty(weight, edges, factor)) < 0.1


def test_low_precision_logits_are_summed_in_float32() -> None:
    """bfloat16 logits of many documents give a float32 penalty close to the exact one."""
    logits = random_values(300, 6, seed=4).bfloat16()
    edges = [(1, 0), (2, 0), (3, 1), (4, 2), (5, 2)]
    found = hypernymy_output_penalty(logits, edge_index_of(edges))
    assert found.dtype == torch.float32
    assert float(found) == pytest.approx(naive_output_penalty(logits, edges, None), rel=1e-2)


PENALTIES = [hypernymy_parameter_penalty, hypernymy_output_penalty]


@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize(
    ("edges", "message"),
    [
        (
            torch.tensor([[1], [0]], dtype=torch.int32),
            "label_edge_index must be [2, E] int64 (row 0 child, row 1 parent), "
            "found [2, 1] torch.int32.",
        ),
        (
            torch.tensor([[1, 0, 2]]),
            "label_edge_index must be [2, E] int64 (row 0 child, row 1 parent), "
            "found [1, 3] torch.int64.",
        ),
        (
            torch.tensor([[1, 3], [0, 0]]),
            "label_edge_index must name labels in [0, 3), found 0 to 3.",
        ),
        (
            torch.tensor([[1], [-1]]),
            "label_edge_index must name labels in [0, 3), found -1 to 1.",
        ),
    ],
)
def test_edges_that_do_not_fit_are_an_error(penalty, edges: Tensor, message: str) -> None:
    """Type, shape and labels, with what was found."""
    with pytest.raises(GraphError) as error:
        penalty(torch.zeros(3, 3), edges)
    assert str(error.value) == message


@pytest.mark.parametrize("penalty", PENALTIES)
def test_edge_weights_that_do_not_fit_are_an_error(penalty) -> None:
    """One weight per edge."""
    with pytest.raises(GraphError) as error:
        penalty(torch.zeros(3, 3), torch.tensor([[1, 2], [0, 0]]), torch.ones(3))
    assert str(error.value) == "edge_weight must be [2], one per label edge, found [3]."


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -0.5])
def test_edge_weights_that_are_no_weights_are_refused(wrong: float) -> None:
    """Once for all steps, where the matrices are made."""
    with pytest.raises(GraphError) as caught:
        LabelMatrices.from_edges(torch.tensor([[1, 2], [0, 0]]), 3, torch.tensor([0.5, wrong]))
    assert str(caught.value) == (
        f"edge_weight must be finite and at least 0, found {wrong}; "
        f"LabelDAG.parent_given_child gives weights that are."
    )
