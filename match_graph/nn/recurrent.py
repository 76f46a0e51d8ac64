"""Recurrent networks over packed documents: no padding, no loop over documents."""

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from match_graph.graph.csr import row_index


def time_order(ptr: Tensor) -> tuple[Tensor, Tensor]:
    """How packed documents become torch's `PackedSequence`: step by step, longest first.

    Args:
        ptr: Offsets of the documents, [B + 1], int64; some may be empty.

    Returns:
        The token at every place of the sequence, [N], and the documents of every step, [T], on
        the CPU; both int64.
    """
    lengths = ptr.diff()
    row = row_index(ptr)
    step = torch.arange(row.numel(), device=ptr.device) - ptr[row]
    rank = torch.empty_like(lengths)
    longest_first = torch.argsort(lengths, descending=True, stable=True)
    rank[longest_first] = torch.arange(lengths.numel(), device=ptr.device)
    order = torch.argsort(step * lengths.numel() + rank[row])
    return order, torch.bincount(step).cpu()


def run_recurrent(network: nn.RNNBase, tokens: Tensor, ptr: Tensor) -> Tensor:
    """The states of a recurrent network, which starts from zero in each document.

    Args:
        network: Such as `torch.nn.LSTM`; bidirectional or not.
        tokens: Packed documents, [N, C].
        ptr: Their offsets, [B + 1], int64; some may be empty.

    Returns:
        [N, C'], C' being the hidden size times the directions.
    """
    if not tokens.size(0):
        width = network.hidden_size * (2 if network.bidirectional else 1)
        return tokens.new_zeros(0, width)
    order, batch_sizes = time_order(ptr)
    states, _ = network(PackedSequence(tokens.index_select(0, order), batch_sizes))
    return states.data.index_select(0, torch.argsort(order))
