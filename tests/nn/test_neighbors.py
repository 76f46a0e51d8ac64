"""Means over packed lists of rows, against a loop, and lists of neighbours from edges."""

import torch

from match_graph.nn.neighbors import Neighbors, mean_rows, take_rows

PTR = torch.tensor([0, 2, 2, 5, 5])
INDEX = torch.tensor([0, 4, 4, 1, 4])


def test_mean_rows_and_its_gradient() -> None:
    """Rows that stand in several lists, or twice in one, or in none; lists without rows."""
    torch.manual_seed(0)
    values = torch.randn(6, 3, dtype=torch.float64, requires_grad=True)
    matrix = torch.zeros(4, 6, dtype=torch.float64)
    for row in range(4):
        start, stop = int(PTR[row]), int(PTR[row + 1])
        for place in range(start, stop):
            matrix[row, INDEX[place]] += 1 / (stop - start)
    found = mean_rows(values, INDEX, PTR)
    assert torch.allclose(found, matrix @ values)
    weight = torch.randn(4, 3, dtype=torch.float64)
    (gradient,) = torch.autograd.grad(found, values, weight)
    assert torch.allclose(gradient, matrix.t() @ weight)


def test_mean_rows_of_nothing() -> None:
    """No lists, or no values."""
    none = torch.empty(0, dtype=torch.int64)
    values = torch.randn(2, 3, requires_grad=True)
    found = mean_rows(values, none, torch.zeros(1, dtype=torch.int64))
    assert found.shape == (0, 3)
    found.sum().backward()
    assert values.grad is not None
    assert values.grad.tolist() == [[0.0] * 3] * 2
    empty = mean_rows(torch.empty(0, 3), none, torch.zeros(3, dtype=torch.int64))
    assert empty.tolist() == [[0.0] * 3] * 2


def test_take_rows_and_its_gradient() -> None:
    """As indexing."""
    values = torch.arange(8.0).view(4, 2).requires_grad_()
    index = torch.tensor([3, 0, 3])
    found = take_rows(values, index)
    assert torch.equal(found, values[index])
    found.sum().backward()
    assert values.grad is not None
    assert values.grad.tolist() == [[1, 1], [0, 0], [0, 0], [2, 2]]


def test_Neighbors_are_lists_by_target() -> None:
    """Of edges in any order; the first targets are a prefix."""
    edge_index = torch.tensor([[5, 1, 2, 1], [2, 0, 2, 3]])
    neighbors = Neighbors.from_edges(edge_index, 5)
    assert neighbors.ptr.tolist() == [0, 1, 1, 3, 4, 4]
    assert neighbors.source.tolist() == [1, 5, 2, 1]
    assert neighbors.edge_index.tolist() == [[1, 5, 2, 1], [0, 2, 2, 3]]
    assert (neighbors.num_targets, neighbors.num_sources) == (5, 6)
    first = neighbors.first(2)
    assert (first.ptr.tolist(), first.source.tolist()) == ([0, 1, 1], [1])
    assert (first.num_targets, first.num_sources) == (2, 2)
    assert neighbors.first(0).num_sources == 0
    states = torch.eye(6)
    assert torch.equal(neighbors.mean(states)[2], (states[5] + states[2]) / 2)
