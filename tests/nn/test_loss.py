"""The objective against dense targets, torch, and the paper's sums."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from match_graph.errors import GraphError
from match_graph.graph.csr import make_ptr
from match_graph.nn import hypernymy_output_penalty, match_loss, sparse_bce

EDGES = torch.tensor([[1, 2, 3], [0, 0, 1]])


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


def loss_of(lambda_parameter: float, lambda_output: float, edges: Tensor = EDGES):
    logits = random_values(3, 4, seed=1).requires_grad_()
    weight = random_values(4, 2, seed=2).requires_grad_()
    gold = [{0}, {1, 3}, set()]
    edge_weight = torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64)[: edges.size(1)]
    losses = match_loss(
        logits, *pack(gold), weight, edges, edge_weight, lambda_parameter, lambda_output
    )
    losses.total.backward()
    return losses, logits, weight


def test_the_total_is_the_weighted_sum_of_the_terms() -> None:
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


def test_a_weight_of_0_leaves_the_term_out() -> None:
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


def test_without_edges_only_bce_is_left() -> None:
    """A flat label set."""
    losses, _, weight = loss_of(1.0, 1.0, EDGES[:, :0])
    assert torch.equal(losses.total.detach(), losses.bce)
    assert float(losses.parameter) == float(losses.output) == 0
    assert weight.grad is None


def test_the_papers_objective_is_the_number_of_documents_times_the_loss() -> None:
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
        logits, *pack(gold), weight, EDGES, lambda_parameter=0.2 / 3, lambda_output=0.4
    )
    assert float(losses.total) * 3 == pytest.approx(paper, rel=1e-10)


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_is_refused(wrong: float) -> None:
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
    arguments = torch.zeros(1, 4), *pack([{0}]), weight, EDGES
    with pytest.raises(GraphError) as caught:
        match_loss(*arguments, lambda_parameter=1.0)
    assert str(caught.value).startswith("The hypernymy term of the parameters must be finite, ")
    losses = match_loss(*arguments, lambda_parameter=1.0, check=False)
    assert not math.isfinite(float(losses.total))
    with pytest.raises(GraphError, match=r"^The hypernymy term of the output must be finite, "):
        hypernymy_output_penalty(torch.full((1, 4), math.nan), EDGES)
