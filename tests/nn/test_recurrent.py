"""Recurrent networks over packed documents against one document after the other."""

from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_sequence

from match_graph.nn.recurrent import run_recurrent, time_order


@given(st.lists(st.integers(0, 5), max_size=8))
def test_time_order_is_that_of_torch(lengths: list[int]) -> None:
    """Step by step, longest document first; the same batch sizes as `pack_sequence` gives."""
    ptr = torch.tensor([0, *lengths]).cumsum(0)
    order, batch_sizes = time_order(ptr)
    assert sorted(order.tolist()) == list(range(sum(lengths)))
    places = [torch.arange(start, start + size) for start, size in zip(ptr, lengths, strict=False)]
    filled = sorted((part for part in places if len(part)), key=len, reverse=True)
    if filled:
        expected = pack_sequence(filled)
        assert torch.equal(order, expected.data)
        assert torch.equal(batch_sizes, expected.batch_sizes)


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize(
    ("network_cls", "options"),
    [(nn.LSTM, {}), (nn.GRU, {}), (nn.RNN, {}), (nn.LSTM, {"bias": False}),
     (nn.GRU, {"bias": False}), (nn.LSTM, {"proj_size": 2})],
)  # fmt: skip
def test_run_recurrent_equals_torch_per_document(
    network_cls: type[nn.RNNBase], options: dict[str, Any], bidirectional: bool
) -> None:
    """States and gradients equal those of single documents.

    Nothing crosses from one document to the next; empty ones have no states.
    """
    torch.manual_seed(0)
    network = network_cls(3, 4, num_layers=2, bidirectional=bidirectional, **options).double()
    ptr = torch.tensor([0, 3, 3, 8, 9, 12, 12])
    tokens = torch.randn(12, 3, dtype=torch.float64, requires_grad=True)
    found = run_recurrent(network, tokens, ptr)
    single = [network(tokens[start:stop])[0] for start, stop in pairwise(ptr) if stop > start]
    expected = torch.cat(single)
    assert torch.allclose(found, expected, rtol=1e-10)
    inputs = [tokens, *network.parameters()]
    outgoing = torch.randn_like(found)
    pairs = zip(
        torch.autograd.grad(found, inputs, outgoing),
        torch.autograd.grad(expected, inputs, outgoing),
        strict=True,
    )
    assert all(torch.allclose(one, other, rtol=1e-9, atol=1e-12) for one, other in pairs)


@pytest.mark.parametrize("network_cls", [nn.LSTM, nn.GRU])
def test_run_recurrent_states_equal_torchs_packed_sequence(network_cls: type[nn.RNNBase]) -> None:
    """Also for so many documents that there are several blocks."""
    torch.manual_seed(0)
    network = network_cls(3, 4, num_layers=2, bidirectional=True).double()
    ptr = torch.cat([torch.zeros(1, dtype=torch.int64), torch.randint(0, 9, (100,)).cumsum(0)])
    tokens = torch.randn(int(ptr[-1]), 3, dtype=torch.float64)
    order, batch_sizes = time_order(ptr)
    expected = network(PackedSequence(tokens[order], batch_sizes))[0].data
    assert torch.allclose(run_recurrent(network, tokens, ptr)[order], expected, rtol=1e-10)


def test_run_recurrent_dropout_acts_between_layers_in_training() -> None:
    """As in torch: not before the first layer, not after the last, not in evaluation."""
    torch.manual_seed(0)
    ptr, tokens = torch.tensor([0, 2, 5]), torch.randn(5, 3)
    for num_layers, changes in ((1, False), (2, True)):
        network = nn.LSTM(3, 50, num_layers, bidirectional=True)
        expected = run_recurrent(network.eval(), tokens, ptr)
        network.dropout = 0.5  # torch warns of a dropout that no layer follows
        assert torch.equal(run_recurrent(network, tokens, ptr), expected)
        found = run_recurrent(network.train(), tokens, ptr)
        assert torch.equal(found, expected) is not changes
        assert bool((found != 0).all())


def test_run_recurrent_no_token_gives_no_state() -> None:
    """Of the right width and type."""
    network = nn.LSTM(3, 4, bidirectional=True)
    found = run_recurrent(network, torch.zeros(0, 3), torch.zeros(3, dtype=torch.int64))
    assert found.shape == (0, 8)


def test_run_recurrent_by_torch_keeps_precision_of_its_weights() -> None:
    """Autocast would run cuDNN in float16; this network takes the same way on CPU."""
    torch.manual_seed(0)
    network = nn.RNN(3, 4)
    ptr, tokens = torch.tensor([0, 3, 8]), torch.randn(8, 3).bfloat16()
    expected = run_recurrent(network, tokens.float(), ptr)
    with torch.autocast("cpu", torch.bfloat16):
        found = run_recurrent(network, tokens, ptr)
    assert found.dtype == torch.float32
    assert torch.equal(found, expected)
