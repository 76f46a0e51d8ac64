"""Recurrent networks over packed documents, without a loop over documents."""

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from match_graph.graph.csr import row_index
from match_graph.nn.attention import RaggedLayout, unreached


def run_recurrent(network: nn.RNNBase, tokens: Tensor, ptr: Tensor) -> Tensor:
    """The states of a recurrent network, which starts from zero in each document.

    On CPU the documents are padded in blocks of similar length, and each document is reversed for
    the backward direction: the gradient of torch's `PackedSequence` fills the whole sequence
    with zeros at every step (measured 5 to 8 times slower, forward and backward, on 16 documents
    of up to 70 and 200 tokens). Elsewhere it is torch's own, in the precision of its weights:
    under autocast to bfloat16 cuDNN runs in float16, where small gradients underflow unscaled.

    Args:
        network: Recurrent network, such as `torch.nn.LSTM`; bidirectional or not.
        tokens: Packed documents, [N, C].
        ptr: Offsets of the documents, [B + 1], int64; some may be empty.

    Returns:
        [N, C'], C' being the hidden size times the directions.
    """
    if not tokens.size(0):
        width = network.hidden_size * (2 if network.bidirectional else 1)
        return tokens.new_zeros(0, width) + unreached(tokens, *network.parameters())
    is_gated = isinstance(network, nn.LSTM | nn.GRU) and not network.proj_size
    if tokens.device.type == "cpu" and is_gated:
        return _run_in_blocks(network, tokens, ptr)
    order, batch_sizes = time_order(ptr)
    ordered = tokens.index_select(0, order).to(network.all_weights[0][0].dtype)
    with torch.autocast(tokens.device.type, enabled=False):
        states, _ = network(PackedSequence(ordered, batch_sizes))
    return states.data.index_select(0, torch.argsort(order))


def time_order(ptr: Tensor) -> tuple[Tensor, Tensor]:
    """Order of packed documents as torch's `PackedSequence`: step by step, longest first.

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


def _run_in_blocks(network: nn.RNNBase, tokens: Tensor, ptr: Tensor) -> Tensor:
    """`run_recurrent`, layer by layer and direction by direction."""
    layout, row = RaggedLayout.from_ptr(ptr), row_index(ptr)
    backwards = ptr[row] + ptr[row + 1] - 1 - torch.arange(row.numel(), device=ptr.device)
    weights = iter(network.all_weights)
    for layer in range(network.num_layers):
        if layer:
            tokens = nn.functional.dropout(tokens, network.dropout, network.training)
        states = _run_direction(network, tuple(next(weights)), tokens, layout)
        if network.bidirectional:
            from_end = tokens.index_select(0, backwards)
            from_end = _run_direction(network, tuple(next(weights)), from_end, layout)
            states = torch.cat([states, from_end.index_select(0, backwards)], dim=1)
        tokens = states
    return tokens


def _run_direction(
    network: nn.RNNBase, weights: tuple[Tensor, ...], tokens: Tensor, layout: RaggedLayout
) -> Tensor:
    """States [N, C'] of one layer from each document's first token on; padding comes after."""
    train = torch.is_grad_enabled()  # whether a gradient may follow; there is no dropout within
    blocks = []
    for block, _ in layout.pad(tokens):
        start = block.new_zeros(1, block.size(0), network.hidden_size)
        if isinstance(network, nn.LSTM):
            states = torch.lstm(
                block, [start, start], weights, network.bias, 1, 0.0, train, False, True
            )[0]
        else:
            states = torch.gru(block, start, weights, network.bias, 1, 0.0, train, False, True)[0]
        blocks.append(states.flatten(0, 1))
    return layout.unpad(blocks)
