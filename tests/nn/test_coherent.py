"""Coherent output against a loop over labels and their descendants; no violation is left."""

from collections.abc import Iterator

import torch
from hypothesis import given
from hypothesis import strategies as st
from largest import Largest
from torch import Tensor

from match_graph.graph import Hierarchy
from match_graph.metrics import ViolationMeter
from match_graph.nn.coherent import CoherentOutput


@st.composite
def hierarchies(draw: st.DrawFn, max_labels: int = 9) -> Hierarchy:
    """Any DAG: edges from higher to lower places of a random order, diamonds and roots included."""
    num_labels = draw(st.integers(1, max_labels))
    order = draw(st.permutations(range(num_labels)))
    pairs = [(order[i], order[j]) for i in range(num_labels) for j in range(i)]
    edges = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    return Hierarchy(
        torch.tensor(edges, dtype=torch.int64).view(-1, 2).t().contiguous(), num_labels
    )


def descend(dag: Hierarchy, label: int) -> Iterator[int]:
    """A label and all of its descendants, some of them repeatedly."""
    yield label
    for child, parent in dag.edge_index.t().tolist():
        if parent == label:
            yield from descend(dag, child)


def naive_output(dag: Hierarchy, logits: Tensor) -> Tensor:
    columns = [
        torch.stack([logits[:, label] for label in set(descend(dag, label))]).amax(dim=0)
        for label in range(dag.num_labels)
    ]
    return torch.stack(columns, dim=1)


@given(hierarchies(), st.integers(0, 3), st.sampled_from([1, 7, 2**24]), st.booleans())
def test_CoherentOutput_scores_equal_naive_loop(
    dag: Hierarchy, num_documents: int, chunk_values: int, tied: bool
) -> None:
    """In chunks of one label, of some and of all; equal scores among them."""
    torch.manual_seed(dag.num_edges)
    shape = (num_documents, dag.num_labels)
    logits = torch.randint(0, 3, shape).double() if tied else torch.randn(shape).double()
    assert torch.equal(CoherentOutput(dag, chunk_values)(logits), naive_output(dag, logits))


@given(hierarchies())
def test_CoherentOutput_no_child_is_above_its_parent(dag: Hierarchy) -> None:
    """The violation rate is exactly 0, in float32 and bfloat16; and twice is as good as once."""
    torch.manual_seed(0)
    coherent = CoherentOutput(dag)
    for dtype in (torch.float32, torch.bfloat16):
        scores = coherent(torch.randn(20, dag.num_labels).to(dtype))
        meter = ViolationMeter(dag)
        meter.update(scores)
        assert meter.compute()["violation_rate"] == 0
        assert torch.equal(coherent(scores), scores)


def test_CoherentOutput_without_edges_scores_pass() -> None:
    """The given tensor itself is returned."""
    logits = torch.randn(2, 3)
    dag = Hierarchy(torch.empty(2, 0, dtype=torch.int64), 3)
    assert CoherentOutput(dag)(logits) is logits


def test_CoherentOutput_nothing_larger_than_chunk_or_scores_made() -> None:
    """A chain of 200 labels has 20,100 pairs: neither they nor [L, L] exist for 4 documents."""
    labels = torch.arange(200)
    dag = Hierarchy(torch.stack([labels[1:], labels[:-1]]), 200)
    most = []
    for chunk_values in (1600, 2**24):
        coherent = CoherentOutput(dag, chunk_values)
        logits = torch.randn(4, 200)
        with Largest() as largest:
            coherent(logits)
        most.append(largest.most)
    assert most[0] <= 1600
    assert most[1] > 4 * 20_000
