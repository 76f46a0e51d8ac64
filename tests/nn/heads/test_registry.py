"""Every registered head keeps the contract, and its tests are in a file of its own."""

from pathlib import Path

import pytest
import torch

from match_graph.graph import Hierarchy, LabelGraph
from match_graph.nn import HEADS, EncoderOutput, Head

IN_CHANNELS, NUM_LABELS = 6, 5


def make_output(head_cls: type[Head], num_documents: int = 4) -> EncoderOutput:
    """States of documents of 1 to 4 tokens."""
    torch.manual_seed(5)
    ptr = torch.arange(num_documents + 1).cumsum(0)
    if head_cls.takes == "document":
        return EncoderOutput(torch.randn(num_documents, IN_CHANNELS), None, ptr)
    return EncoderOutput(None, torch.randn(int(ptr[-1]), IN_CHANNELS), ptr)


def make_head(name: str, seed: int = 0) -> Head:
    torch.manual_seed(seed)
    dag = Hierarchy(torch.tensor([[1, 2, 3, 3], [0, 0, 1, 2]]), NUM_LABELS)
    return HEADS[name](IN_CHANNELS, NUM_LABELS, HEADS[name].Config(), LabelGraph(dag))


def test_Head_every_registered_head_is_tested() -> None:
    """Fails when a head is registered without a test file of its name."""
    folder = Path(__file__).parent
    tested = {path.stem.removeprefix("test_") for path in folder.glob("test_*.py")}
    assert set(HEADS) <= tested
    assert all(issubclass(head_cls, Head) for head_cls in HEADS.values())


@pytest.mark.parametrize("name", sorted(HEADS))
def test_Head_scores_are_one_per_document_and_label(name: str) -> None:
    """[B, L], finite, the transpose of a contiguous [L, B]; also for no document at all."""
    head = make_head(name)
    logits = head(make_output(HEADS[name]))
    assert logits.shape == (4, NUM_LABELS)
    assert bool(torch.isfinite(logits).all())
    assert logits.t().is_contiguous()
    assert head(make_output(HEADS[name], 0)).shape == (0, NUM_LABELS)


@pytest.mark.parametrize("name", sorted(HEADS))
def test_Head_every_parameter_is_trained_and_reset_by_seed(name: str) -> None:
    """A gradient for each, and the same values after two resets from one seed."""
    head = make_head(name)
    head(make_output(HEADS[name])).square().sum().backward()
    with torch.no_grad():
        for key, parameter in head.named_parameters():
            assert parameter.grad is not None, key
            assert bool(parameter.grad.any()), key
            parameter.fill_(1000.0)
    torch.manual_seed(1)
    head.reset_parameters()
    first = {key: value.detach().clone() for key, value in head.named_parameters()}
    assert all(not bool((value == 1000).any()) for value in first.values())
    torch.manual_seed(1)
    head.reset_parameters()
    assert all(torch.equal(value, first[key]) for key, value in head.named_parameters())


@pytest.mark.parametrize("name", sorted(HEADS))
def test_Head_label_weight_has_a_row_per_label_and_is_trained(name: str) -> None:
    """[L, C], a parameter or made of some, so that the regularizer trains these."""
    head = make_head(name)
    assert head.label_weight.size(0) == NUM_LABELS
    head.label_weight.sum().backward()
    assert any(parameter.grad is not None for parameter in head.parameters())


@pytest.mark.parametrize("name", sorted(HEADS))
def test_Head_prior_orders_labels_by_training_frequency(name: str) -> None:
    """After `set_prior` the mean score of a frequent label is above that of a rare one."""
    head = make_head(name)
    head.set_prior(torch.tensor([0, 20, 3, 100, 1]), 100)
    with torch.no_grad():
        mean = head(make_output(HEADS[name])).mean(dim=0)
    assert torch.argsort(mean).tolist() == [0, 4, 2, 1, 3]
