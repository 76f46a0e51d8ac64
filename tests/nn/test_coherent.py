"""Coherent output against a loop over labels and their descendants; no violation is left."""

from collections.abc import Iterator

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from match_graph.config import ModelConfig
from match_graph.datasets import Synthetic
from match_graph.errors import ConfigError, GraphError
from match_graph.graph import EgoLoader, EgoSampler, Hierarchy
from match_graph.metrics import ViolationMeter
from match_graph.nn import HEADS, MatchModel
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
def test_CoherentOutput_scores_and_gradients_equal_naive_loop(
    dag: Hierarchy, num_documents: int, chunk_values: int, tied: bool
) -> None:
    """In chunks of one label, of some and of all; equal scores share the gradient equally."""
    torch.manual_seed(dag.num_edges)
    shape = (num_documents, dag.num_labels)
    logits = torch.randint(0, 3, shape).double() if tied else torch.randn(shape).double()
    logits.requires_grad_()
    found = CoherentOutput(dag, chunk_values)(logits)
    expected = naive_output(dag, logits)
    assert torch.equal(found, expected)
    outgoing = torch.randn(shape, dtype=torch.float64)
    gradient, slow = (torch.autograd.grad(one, logits, outgoing)[0] for one in (found, expected))
    assert torch.allclose(gradient, slow, rtol=1e-12)


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


def test_CoherentOutput_ties_uninitialised_memory_lose() -> None:
    """Ties with uninitialised memory lose no gradient.

    Rows of zeros, which fresh memory often is too: the whole gradient arrives.
    """
    labels = torch.arange(20)
    dag = Hierarchy(torch.stack([labels[1:], labels[:-1]]), 20)
    logits = torch.zeros(50, 20, requires_grad=True)
    for _ in range(5):
        (gradient,) = torch.autograd.grad(CoherentOutput(dag)(logits).sum(), logits)
        assert gradient.sum(dim=1).tolist() == pytest.approx([20.0] * 50, rel=1e-5)


def test_CoherentOutput_without_edges_scores_pass() -> None:
    """The very tensor."""
    logits = torch.randn(2, 3)
    dag = Hierarchy(torch.empty(2, 0, dtype=torch.int64), 3)
    assert CoherentOutput(dag)(logits) is logits


class Largest(TorchDispatchMode):
    """The most values of any tensor made within."""

    most = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        sizes = [leaf.numel() for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
        self.most = max([self.most, *sizes])
        return result


def test_CoherentOutput_nothing_larger_than_chunk_or_scores_made() -> None:
    """A chain of 200 labels has 20,100 pairs: neither they nor [L, L] exist for 4 documents."""
    labels = torch.arange(200)
    dag = Hierarchy(torch.stack([labels[1:], labels[:-1]]), 200)
    most = []
    for chunk_values in (1600, 2**24):
        coherent = CoherentOutput(dag, chunk_values)
        logits = torch.randn(4, 200, requires_grad=True)
        with Largest() as largest:
            coherent(logits).sum().backward()
        most.append(largest.most)
    assert most[0] <= 1600
    assert most[1] > 4 * 20_000


@pytest.mark.parametrize("head", sorted(HEADS))
def test_ModelConfig_every_head_can_be_coherent(synthetic: Synthetic, head: str) -> None:
    """Behind the head; every parameter still has a gradient."""
    encoder = {"document": "match", "tokens": "attention_xml"}[HEADS[head].takes]
    data = synthetic[0]
    config = ModelConfig(encoder=encoder, head=head, channels=8, coherent=True)
    torch.manual_seed(0)
    dag = synthetic.hierarchy
    model = MatchModel(synthetic.token_space(), synthetic.num_labels, config, dag)
    loader = EgoLoader(
        data, EgoSampler(data), model.embedding.space, torch.arange(30), batch_size=30
    )
    logits = model.eval()(next(iter(loader)))
    meter = ViolationMeter(dag)
    meter.update(logits.detach())
    assert meter.compute()["violation_rate"] == 0
    assert meter.num_pairs == 30 * dag.num_edges > 0
    logits.sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    assert not any(name.startswith("coherent") for name in model.state_dict())


def test_MatchModel_coherent_output_needs_a_hierarchy(synthetic: Synthetic) -> None:
    """One sentence."""
    with pytest.raises(ConfigError) as caught:
        MatchModel(synthetic.token_space(), 3, ModelConfig(coherent=True))
    assert str(caught.value) == (
        "A coherent output needs the hierarchy of the 3 labels, found none; give a hierarchy, or "
        "set model.coherent to false."
    )


def test_MatchModel_hierarchy_is_that_of_its_labels(synthetic: Synthetic) -> None:
    """Whatever the head; one sentence."""
    for coherent in (False, True):
        with pytest.raises(GraphError) as caught:
            MatchModel(
                synthetic.token_space(), 3, ModelConfig(coherent=coherent), synthetic.hierarchy
            )
        assert str(caught.value) == ("Values must be of the 25 labels of the hierarchy, found 3.")
