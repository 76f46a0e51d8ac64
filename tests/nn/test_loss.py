"""The objective against dense targets, torch, and the paper's sums."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from match_graph.errors import GraphError
from match_graph.graph import Hierarchy
from match_graph.graph.csr import make_ptr
from match_graph.nn import (
    LinearHead,
    Losses,
    hypernymy_output_penalty,
    hypernymy_parameter_penalty,
    match_loss,
    sparse_bce,
)

EDGES = torch.tensor([[1, 2, 3], [0, 0, 1]])
Edges = list[tuple[int, int]]


def pack(gold: list[set[int]]) -> tuple[Tensor, Tensor]:
    lengths = torch.tensor([len(labels) for labels in gold], dtype=torch.int64)
    values = [label for labels in gold for label in sorted(labels)]
    return make_ptr(lengths), torch.tensor(values, dtype=torch.int64)


def random_values(rows: int, columns: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return 3 * torch.randn(rows, columns, generator=generator, dtype=torch.float64)


def dense_target(gold: list[set[int]], num_labels: int) -> Tensor:
    target = torch.zeros(len(gold), num_labels, dtype=torch.float64)
    for row, labels in enumerate(gold):
        target[row, list(labels)] = 1
    return target


@st.composite
def targets(draw: st.DrawFn) -> tuple[int, list[set[int]]]:
    """L and gold labels of some documents, often none."""
    num_labels = draw(st.integers(1, 6))
    labels = st.sets(st.integers(0, num_labels - 1))
    return num_labels, draw(st.lists(labels, min_size=1, max_size=5))


def naive_bce(logits: Tensor, gold: list[set[int]]) -> float:
    """The paper's double sum, document by document and label by label."""
    total = 0.0
    for row, labels in zip(logits.tolist(), gold, strict=True):
        for label, logit in enumerate(row):
            probability = 1 / (1 + math.exp(-logit))
            total -= math.log(probability if label in labels else 1 - probability)
    return total


@given(targets())
def test_sparse_bce_equals_torch_with_a_dense_target(case: tuple[int, list[set[int]]]) -> None:
    """Sum over labels, mean over documents, with equal gradients; also for empty label lists."""
    num_labels, gold = case
    logits = random_values(len(gold), num_labels, seed=num_labels).requires_grad_()
    found = sparse_bce(logits, *pack(gold))
    target = dense_target(gold, num_labels)
    summed = binary_cross_entropy_with_logits(logits, target, reduction="sum")
    expected = summed / len(gold)
    assert found.dtype == torch.float64
    assert torch.allclose(found, expected, rtol=1e-10)
    assert float(found.detach()) == pytest.approx(naive_bce(logits.detach(), gold) / len(gold))
    gradients = [torch.autograd.grad(loss, logits)[0] for loss in (found, expected)]
    assert torch.allclose(*gradients, rtol=1e-8, atol=1e-12)


def test_sparse_bce_of_documents_without_any_label() -> None:
    """Every label counts as absent."""
    logits = random_values(3, 4)
    found = sparse_bce(logits, *pack([set(), set(), set()]))
    assert float(found) == pytest.approx(naive_bce(logits, [set()] * 3) / 3)


def test_sparse_bce_of_other_documents_than_the_logits() -> None:
    """Fewer or more offsets than documents, or scores of one document alone."""
    for logits, ptr in (((2, 2), 2), ((2, 2), 4), ((2,), 2)):
        with pytest.raises(GraphError, match=r"offsets of gold labels \[B \+ 1\], found"):
            sparse_bce(torch.zeros(logits), torch.zeros(ptr).long(), torch.zeros(0).long())


def test_sparse_bce_of_large_logits_is_finite() -> None:
    """Where the sigmoid is 0 or 1 in float32 the loss is the logit itself."""
    logits = torch.tensor([[200.0, -200.0]], requires_grad=True)
    loss = sparse_bce(logits, *pack([{1}]))
    loss.backward()
    assert float(loss.detach()) == 400
    assert logits.grad.tolist() == [[1.0, -1.0]]


def test_sparse_bce_of_low_precision_is_summed_in_float32() -> None:
    """bfloat16 logits of many labels."""
    logits = random_values(2, 5000).bfloat16()
    found = sparse_bce(logits, *pack([{1, 7}, {4}]))
    assert found.dtype == torch.float32
    assert float(found) == pytest.approx(naive_bce(logits, [{1, 7}, {4}]) / 2, rel=1e-3)


def test_sparse_bce_of_no_documents_is_0() -> None:
    """Not a division by zero."""
    assert float(sparse_bce(torch.empty(0, 3), *pack([]))) == 0


def make_head(weight: Tensor) -> LinearHead:
    head = LinearHead(weight.size(1), weight.size(0), LinearHead.Config())
    head.weight = torch.nn.Parameter(weight)
    return head


def loss_of(lambda_parameter: float, lambda_output: float, edges: Tensor = EDGES):
    logits = random_values(3, 4, seed=1).requires_grad_()
    head = make_head(random_values(4, 2, seed=2))
    edge_weight = torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64)[: edges.size(1)]
    losses = match_loss(
        logits, pack([{0}, {1, 3}, set()]), head, Hierarchy(edges, 4, edge_weight),
        lambda_parameter=lambda_parameter, lambda_output=lambda_output,
    )  # fmt: skip
    losses.total.backward()
    return losses, logits, head.weight


def test_match_loss_total_is_the_weighted_sum_of_the_terms() -> None:
    """Value and gradients; the reported terms are without weights and detached."""
    losses, logits, weight = loss_of(0.3, 0.7)
    expected = losses.bce + 0.3 * losses.parameter + 0.7 * losses.output
    assert torch.allclose(losses.total.detach(), expected, rtol=1e-12)
    assert min(float(losses.bce), float(losses.parameter), float(losses.output)) > 0
    assert losses.total.requires_grad
    assert not any(term.requires_grad for term in (losses.bce, losses.parameter, losses.output))
    _, only_bce, _ = loss_of(0.0, 0.0)
    _, only_output, _ = loss_of(0.0, 1.0)
    of_output = only_output.grad - only_bce.grad
    assert bool(of_output.any())
    assert torch.allclose(logits.grad, only_bce.grad + 0.7 * of_output, rtol=1e-10)
    _, _, whole_weight = loss_of(1.0, 0.0)
    assert torch.allclose(weight.grad, 0.3 * whole_weight.grad, rtol=1e-10)


def test_match_loss_weight_of_0_leaves_the_term_out() -> None:
    """The term is 0, costs nothing and gives no gradient."""
    full, _, _ = loss_of(1.0, 1.0)
    without_parameter, _, weight = loss_of(0.0, 1.0)
    assert float(without_parameter.parameter) == 0
    assert weight.grad is None
    assert torch.equal(without_parameter.output, full.output)
    without_output, _, _ = loss_of(1.0, 0.0)
    assert float(without_output.output) == 0
    assert torch.equal(without_output.parameter, full.parameter)
    neither, _, _ = loss_of(0.0, 0.0)
    assert torch.equal(neither.total.detach(), neither.bce)


def test_match_loss_without_edges_only_bce_is_left() -> None:
    """A flat label set."""
    losses, _, weight = loss_of(1.0, 1.0, EDGES[:, :0])
    assert torch.equal(losses.total.detach(), losses.bce)
    assert float(losses.parameter) == float(losses.output) == 0
    assert weight.grad is None


def test_match_loss_times_documents_is_the_papers_objective() -> None:
    """The paper sums over documents, so its lambda_1 is divided by their number here."""
    logits, weight = random_values(3, 4, seed=1), random_values(4, 2, seed=2)
    gold = [{0}, {1, 3}, set()]
    parameter = output = 0.0
    for child, parent in EDGES.t().tolist():
        parameter += 0.5 * float((weight[child] - weight[parent]).square().sum())
        for row in torch.sigmoid(logits):
            output += max(0.0, float(row[child] - row[parent]))
    paper = naive_bce(logits, gold) + 0.2 * parameter + 0.4 * output
    losses = match_loss(
        logits, pack(gold), make_head(weight), Hierarchy(EDGES, 4),
        lambda_parameter=0.2 / 3, lambda_output=0.4,
    )  # fmt: skip
    assert float(losses.total.detach()) * 3 == pytest.approx(paper, rel=1e-10)


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_match_loss_that_is_not_finite_is_refused(wrong: float) -> None:
    """By each term's name; training leaves the check out."""
    logits, weight = torch.zeros(1, 4), torch.zeros(4, 2)
    logits[0, 1], weight[1] = wrong, wrong
    hint = (
        "look for NaN or infinity in what it was given, such as the scores of a model that "
        "diverged."
    )
    with pytest.raises(GraphError) as caught:
        sparse_bce(logits, *pack([{0}]))
    assert str(caught.value) == f"The cross-entropy must be finite, found {wrong}; {hint}"
    hierarchy = Hierarchy(EDGES, 4)
    with pytest.raises(GraphError, match=r"^The hypernymy term of the parameters must be finite, "):
        hypernymy_parameter_penalty(weight, hierarchy)
    arguments = torch.zeros(1, 4), pack([{0}]), make_head(weight), hierarchy
    with pytest.raises(GraphError, match=r"^The hypernymy term of the parameters must be finite, "):
        match_loss(*arguments, lambda_parameter=1.0)
    losses = match_loss(*arguments, lambda_parameter=1.0, check=False)
    assert not math.isfinite(float(losses.total.detach()))
    with pytest.raises(GraphError, match=r"^The hypernymy term of the output must be finite, "):
        hypernymy_output_penalty(torch.full((1, 4), math.nan), hierarchy)


def match_loss_of_head(logits: Tensor, hierarchy: Hierarchy) -> Losses:
    return match_loss(logits, pack([set()] * 3), make_head(logits.t()), hierarchy)


def hierarchy_of(edges: Edges, num_labels: int, edge_weight: Tensor | None = None) -> Hierarchy:
    edge_index = torch.tensor(edges, dtype=torch.int64).view(-1, 2).t()
    return Hierarchy(edge_index, num_labels, edge_weight)


@st.composite
def hierarchies(draw: st.DrawFn) -> tuple[Hierarchy, Edges]:
    """Edges from later to earlier labels in any order, with weights or without."""
    num_labels = draw(st.integers(1, 7))
    possible = [(child, parent) for child in range(num_labels) for parent in range(child)]
    edges = draw(st.lists(st.sampled_from(possible), unique=True)) if possible else []
    number = draw(st.permutations(range(num_labels)))
    edges = [(number[child], number[parent]) for child, parent in edges]
    if draw(st.booleans()):
        return hierarchy_of(edges, num_labels), edges
    weight = draw(st.lists(st.floats(0, 2), min_size=len(edges), max_size=len(edges)))
    return hierarchy_of(edges, num_labels, torch.tensor(weight, dtype=torch.float64)), edges


def spread_logits(num_documents: int, num_labels: int, seed: int) -> Tensor:
    """Logits of a document at least 0.4 apart: away from the kink of max(0, .)."""
    generator = torch.Generator().manual_seed(seed)
    rows = [torch.randperm(num_labels, generator=generator) for _ in range(num_documents)]
    return 0.4 * torch.stack(rows).double() - 1.0


def naive_parameter_penalty(weight: Tensor, edges: Edges, factors: list[float]) -> float:
    """1/2 of the summed squares, edge by edge and channel by channel."""
    total = 0.0
    for (child, parent), factor in zip(edges, factors, strict=True):
        for one, other in zip(weight[child].tolist(), weight[parent].tolist(), strict=True):
            total += 0.5 * factor * (one - other) ** 2
    return total


def naive_output_penalty(logits: Tensor, edges: Edges, factors: list[float]) -> float:
    """Summed excess of children, document by document and edge by edge, over the documents."""
    total = 0.0
    for row in logits.tolist():
        for (child, parent), factor in zip(edges, factors, strict=True):
            excess = 1 / (1 + math.exp(-row[child])) - 1 / (1 + math.exp(-row[parent]))
            total += factor * max(0.0, excess)
    return total / len(logits)


@given(hierarchies(), st.integers(1, 4))
def test_hypernymy_parameter_penalty_equals_a_naive_loop(
    case: tuple[Hierarchy, Edges], channels: int
) -> None:
    """1/2 sum a ||w_c - w_p||^2 in float64, weighted and not; diamonds and labels outside."""
    hierarchy, edges = case
    weight = random_values(hierarchy.num_labels, channels, seed=channels)
    found = hypernymy_parameter_penalty(weight, hierarchy)
    expected = naive_parameter_penalty(weight, edges, hierarchy.edge_weight.tolist())
    assert found.dtype == torch.float64
    assert float(found) == pytest.approx(expected, rel=1e-10, abs=1e-10)


@given(hierarchies(), st.integers(1, 5))
def test_hypernymy_output_penalty_equals_a_naive_loop(
    case: tuple[Hierarchy, Edges], num_documents: int
) -> None:
    """Mean over documents of sum a max(0, child - parent) in float64, weighted and not."""
    hierarchy, edges = case
    logits = random_values(num_documents, hierarchy.num_labels, seed=num_documents)
    found = hypernymy_output_penalty(logits, hierarchy)
    expected = naive_output_penalty(logits, edges, hierarchy.edge_weight.tolist())
    assert found.dtype == torch.float64
    assert float(found) == pytest.approx(expected, rel=1e-10, abs=1e-12)


@given(hierarchies())
@settings(max_examples=20)
def test_hypernymy_parameter_penalty_gradient(
    case: tuple[Hierarchy, Edges],
) -> None:
    """gradcheck in float64."""
    hierarchy, _ = case
    weight = random_values(hierarchy.num_labels, 2, seed=0).requires_grad_()
    assert torch.autograd.gradcheck(
        lambda values: hypernymy_parameter_penalty(values, hierarchy), weight
    )


@given(hierarchies())
@settings(max_examples=20)
def test_hypernymy_output_penalty_gradient(
    case: tuple[Hierarchy, Edges],
) -> None:
    """gradcheck in float64, away from the kink."""
    hierarchy, _ = case
    logits = spread_logits(3, hierarchy.num_labels, seed=1).requires_grad_()
    assert torch.autograd.gradcheck(
        lambda values: hypernymy_output_penalty(values, hierarchy), logits
    )


def test_hypernymy_parameter_penalty_pulls_child_parent_together() -> None:
    """Both ends of an edge have a gradient, opposite and in proportion to the gap; others none."""
    weight = random_values(4, 3, seed=0).requires_grad_()
    (2 * hypernymy_parameter_penalty(weight, hierarchy_of([(2, 0)], 4))).backward()
    gap = (weight[2] - weight[0]).detach()
    assert torch.allclose(weight.grad[2], 2 * gap)
    assert torch.allclose(weight.grad[0], -2 * gap)
    assert not weight.grad[[1, 3]].any()


def test_hypernymy_output_penalty_lowers_child_and_raises_parent() -> None:
    """Both ends of a violated edge have a gradient; where the parent is above, none."""
    logits = torch.tensor([[-1.0, 1.0, 0.0], [1.0, -1.0, 0.0]], requires_grad=True)
    hypernymy_output_penalty(logits, hierarchy_of([(1, 0)], 3)).backward()
    slope = math.exp(-1) / (1 + math.exp(-1)) ** 2 / 2
    expected = torch.tensor([[-slope, slope, 0.0], [0.0, 0.0, 0.0]])
    assert torch.allclose(logits.grad, expected)


def test_hypernymy_output_penalty_depends_on_edge_direction() -> None:
    """Swapping the edges changes only the output penalty.

    The parameter penalty is symmetric in child and parent, the output penalty is not.
    """
    values = random_values(4, 4, seed=3)
    both = [Hierarchy(edge_index, 4) for edge_index in (EDGES, EDGES.flip(0))]
    parameter = [hypernymy_parameter_penalty(values, hierarchy) for hierarchy in both]
    output = [hypernymy_output_penalty(values, hierarchy) for hierarchy in both]
    assert torch.allclose(*parameter)
    assert not torch.allclose(*output)


def test_hypernymy_output_penalty_of_transposed_logits() -> None:
    """The [L, B] view of a head equals contiguous logits, value and gradient."""
    hierarchy = hierarchy_of([(1, 0), (2, 0), (3, 1), (3, 2)], 4)
    contiguous = random_values(5, 4, seed=2)
    results = []
    for logits in (contiguous.clone(), contiguous.t().contiguous().t()):
        logits.requires_grad_()
        penalty = hypernymy_output_penalty(logits, hierarchy)
        penalty.backward()
        results.append((penalty.detach(), logits.grad))
    assert results[0][0] > 0
    assert torch.allclose(results[0][0], results[1][0], rtol=1e-12)
    assert torch.allclose(results[0][1], results[1][1], rtol=1e-12)


@pytest.mark.parametrize("edge_weight", [None, torch.empty(0)])
def test_hypernymy_parameter_penalty_without_edges_is_0(edge_weight: Tensor | None) -> None:
    """Without edges both are 0 with gradients.

    A flat label set: the terms vanish and do not break the backward pass.
    """
    hierarchy = hierarchy_of([], 4, edge_weight)
    for penalty in (hypernymy_parameter_penalty, hypernymy_output_penalty):
        values = torch.randn(4, 4, requires_grad=True)
        result = penalty(values, hierarchy)
        result.backward()
        assert float(result.detach()) == 0
        assert not values.grad.any()


def test_hypernymy_output_penalty_no_documents_give_0() -> None:
    """Not a division by zero."""
    assert float(hypernymy_output_penalty(torch.empty(0, 2), hierarchy_of([(1, 0)], 2))) == 0


def test_hypernymy_parameter_penalty_is_never_negative() -> None:
    """Equal parameters never give less than 0.

    Rounding in the Laplacian form does not turn the penalty negative.
    """
    for seed in range(20):
        generator = torch.Generator().manual_seed(seed)
        weight = (10 * torch.randn(1, 64, generator=generator)).expand(50, 64).clone()
        child, parent = torch.tril_indices(50, 50, -1)
        edges = torch.stack([child, parent])[:, torch.randperm(1225, generator=generator)[:80]]
        factor = torch.rand(80, generator=generator)
        penalty = hypernymy_parameter_penalty(weight, Hierarchy(edges, 50, factor))
        assert 0 <= float(penalty) < 0.1


def test_hypernymy_output_penalty_sums_in_float32() -> None:
    """Low precision logits are summed in float32.

    bfloat16 logits of many documents give a float32 penalty close to the exact one.
    """
    logits = random_values(300, 6, seed=4).bfloat16()
    edges = [(1, 0), (2, 0), (3, 1), (4, 2), (5, 2)]
    found = hypernymy_output_penalty(logits, hierarchy_of(edges, 6))
    assert found.dtype == torch.float32
    assert float(found) == pytest.approx(
        naive_output_penalty(logits, edges, [1.0] * len(edges)), rel=1e-2
    )


@pytest.mark.parametrize(
    "penalty", [hypernymy_parameter_penalty, hypernymy_output_penalty, match_loss_of_head]
)
def test_hypernymy_parameter_penalty_refuses_other_labels(penalty) -> None:
    """By every function that takes a hierarchy."""
    with pytest.raises(GraphError) as error:
        penalty(torch.zeros(3, 3), hierarchy_of([(1, 0)], 4))
    assert str(error.value) == "Values must be of the 4 labels of the hierarchy, found 3."
