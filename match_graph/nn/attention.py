"""Self-attention over packed documents of different lengths, without padding to the longest."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

#: Documents of a batch are grouped by length, and a group is padded to its longest document.
#: Launching the kernels of one more group takes as long as this many padded pairs of query and key;
#: the size of a group is a multiple of a sixteenth of the batch, so that few sizes occur.
_PAIRS_PER_GROUP, _PIECES = 1 << 16, 16
#: On CPU a matrix product of a shape not seen recently first compiles for .3 ms, up to 27 times per
#: step. So `lay_out` rounds the lengths of blocks up to a multiple of the first of these numbers,
#: and the number of rows to a multiple of the second.
_LENGTH_STEP, _ROW_STEP = 8, 256


@dataclass(frozen=True)
class RaggedLayout:
    """Layout of packed documents in padded blocks of similar length.

    Args:
        slot_token: Packed token of every slot of all blocks, [S], int64; padding repeats the
            first token of its document.
        slot_valid: Mask of slots that are not padding, [S], bool.
        padding: Slots that are padding, int64.
        token_slot: Slot of every packed token, [N], int64; 0 for spare rows.
        shapes: Number of documents, and of slots per document, of each block.
        order: Documents that have tokens, in the order of the blocks, [B'], int64.
        is_full: Whether each block is without padding.
        spare: Rows after the last token, which belong to no document, int64.
    """

    slot_token: Tensor
    slot_valid: Tensor
    padding: Tensor
    token_slot: Tensor
    shapes: list[tuple[int, int]]
    order: Tensor
    is_full: list[bool]
    spare: Tensor

    @classmethod
    def from_ptr(
        cls,
        ptr: Tensor,
        num_groups: int | None = None,
        num_rows: int | None = None,
        length_step: int = 1,
    ) -> "RaggedLayout":
        """The layout of packed documents, at least one of which has a token.

        Args:
            ptr: Offsets of the documents, [B + 1].
            num_groups: Number of groups of documents of similar length; None trades padding
                against the cost of a group.
            num_rows: Number of rows N, of which those after the last token are spare; None for no
                spare rows.
            length_step: Unit of block lengths, which are multiples of it.
        """
        device, ptr = ptr.device, ptr.cpu()  # avoids one synchronisation with a GPU per group
        num_rows = int(ptr[-1]) if num_rows is None else num_rows
        lengths = ptr.diff()
        order = torch.argsort(lengths, stable=True)
        order = order[lengths[order] > 0]
        if num_groups is None:
            groups = order.split(_cut_groups(lengths[order], length_step))
        else:
            groups = order.tensor_split(num_groups)
        tokens, valids, shapes, is_full = [], [], [], []
        for rows in groups:
            if not rows.numel():
                continue
            longest = _round_up(int(lengths[rows[-1]]), length_step)
            place = torch.arange(longest)
            valid = place < lengths[rows].unsqueeze(1)  # [B_g, T_g]
            start = ptr[rows].unsqueeze(1)
            tokens.append(torch.where(valid, start + place, start).view(-1))
            valids.append(valid.view(-1))
            shapes.append((rows.numel(), longest))
            is_full.append(int(lengths[rows[0]]) == longest)
        slot_token, slot_valid = torch.cat(tokens), torch.cat(valids)
        token_slot = torch.zeros(num_rows, dtype=torch.int64)
        slots = slot_valid.nonzero().view(-1)
        token_slot[slot_token[slots]] = slots
        padding = slot_valid.logical_not().nonzero().view(-1)
        spare = torch.arange(int(ptr[-1]), num_rows)
        slot_token, slot_valid, padding, token_slot, order, spare = (
            one.to(device, non_blocking=True)
            for one in (slot_token, slot_valid, padding, token_slot, order, spare)
        )
        return cls(slot_token, slot_valid, padding, token_slot, shapes, order, is_full, spare)

    def pad(self, tokens: Tensor) -> list[tuple[Tensor, Tensor | None]]:
        """Blocks [B_g, T_g, C] of packed tokens [N, C], each with its valid slots or None."""
        padded: Tensor = _Rearrange.apply(tokens, self.slot_token, self.token_slot, self.spare)
        sizes = [rows * longest for rows, longest in self.shapes]
        parts = zip(padded.split(sizes), self.slot_valid.split(sizes), strict=True)
        return [
            (block.view(*shape, -1), None if full else valid.view(shape))
            for (block, valid), shape, full in zip(parts, self.shapes, self.is_full, strict=True)
        ]

    def unpad(self, blocks: list[Tensor]) -> Tensor:
        """Packed tokens [N, C] of blocks [B_g * T_g, C]."""
        slots = torch.cat(blocks)
        packed: Tensor = _Rearrange.apply(slots, self.token_slot, self.slot_token, self.padding)
        return packed


def _cut_groups(lengths: Tensor, length_step: int) -> list[int]:
    """Sizes of groups of documents, whose lengths are sorted.

    From the longest documents down, a group ends where more documents would add more padded pairs
    to attention than a group of their own costs. Measured on batches of debtags: 1.5 groups of 64
    documents, with 1.18 times the pairs of no padding, where two halves have 1.64 times.
    """
    number = len(lengths)
    piece = max(1, number // _PIECES)
    ends = list(range(number, 0, -piece))
    sizes = [end - max(0, end - piece) for end in ends]
    groups: list[int] = []
    wasted = pairs = 0
    for size, longest in zip(sizes, lengths[[end - 1 for end in ends]].tolist(), strict=True):
        own = _round_up(longest, length_step) ** 2
        wasted += size * (pairs - own)
        if not groups or wasted > _PAIRS_PER_GROUP:
            groups.append(0)
            wasted, pairs = 0, own
        groups[-1] += size
    return groups[::-1]


def lay_out(tokens: Tensor, ptr: Tensor) -> tuple[Tensor, RaggedLayout]:
    """Packed tokens [N, C] and their layout; on CPU in shapes that recur, with spare rows."""
    length_step, row_step = (_LENGTH_STEP, _ROW_STEP) if ptr.device.type == "cpu" else (1, 1)
    num_rows = _round_up(len(tokens), row_step)
    layout = RaggedLayout.from_ptr(ptr, num_rows=num_rows, length_step=length_step)
    return nn.functional.pad(tokens, (0, 0, 0, num_rows - len(tokens))), layout


def _round_up(number: int, step: int) -> int:
    return -(-number // step) * step


class _Rearrange(torch.autograd.Function):
    """Gathers rows by index; the gradient gathers by the inverse index instead of a scatter-add.

    Padding is masked out of attention, so its gradient is zero and need not be added to the token
    that it repeats.
    """

    @staticmethod
    def forward(ctx: Any, values: Tensor, index: Tensor, inverse: Tensor, unread: Tensor) -> Tensor:
        ctx.inverse, ctx.unread = inverse, unread
        return values.index_select(0, index)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, outgoing: Tensor) -> tuple[Tensor, None, None, None]:
        gradient = outgoing.index_select(0, ctx.inverse)
        if len(ctx.unread):
            gradient.index_fill_(0, ctx.unread, 0)
        return gradient, None, None, None


@contextmanager
def _without_cudnn_attention(device: torch.device) -> Iterator[None]:
    """Disables cuDNN's attention, which torch prefers on a GPU in bfloat16.

    cuDNN builds an execution plan per shape, and nearly every batch has a new shape.
    """
    if device.type != "cuda" or not torch.backends.cuda.cudnn_sdp_enabled():
        yield
        return
    torch.backends.cuda.enable_cudnn_sdp(False)
    try:
        yield
    finally:
        torch.backends.cuda.enable_cudnn_sdp(True)


def attend(query: Tensor, key: Tensor, value: Tensor, valid: Tensor | None) -> Tensor:
    """Softmax(q k^T / sqrt(C)) v by the fastest available kernel.

    On CPU in bfloat16 plain matrix products take a third of the time of the fused kernel (measured
    forward and backward with 16 to 64 documents of 60 to 200 tokens), and a softmax in float32
    between them half of the time of one in bfloat16; elsewhere it is torch's own.

    Args:
        query: Queries, [B, num_heads, Q, C].
        key: Keys, [B, num_heads, T, C].
        value: Values, [B, num_heads, T, C].
        valid: Mask of keys that are not padding, [B, T], bool; None for all.

    Returns:
        [B, num_heads, Q, C].
    """
    if query.device.type != "cpu" or query.dtype != torch.bfloat16:
        mask = None if valid is None else valid[:, None, None, :]
        with _without_cudnn_attention(query.device):
            return nn.functional.scaled_dot_product_attention(query, key, value, mask)
    num_rows, num_heads, num_queries, width = query.shape
    query, key, value = query.flatten(0, 1), key.flatten(0, 1), value.flatten(0, 1)
    bias = query.new_zeros(num_rows, 1, 1, key.size(1))
    if valid is not None:
        bias = bias.masked_fill(~valid[:, None, None, :], float("-inf"))
    bias = bias.expand(-1, num_heads, -1, -1).flatten(0, 1)  # [B num_heads, 1, T]
    scores = torch.baddbmm(bias, query, key.transpose(1, 2), alpha=width**-0.5)
    weight = torch.softmax(scores, dim=-1, dtype=torch.float32).to(value.dtype)
    states = torch.bmm(weight, value)
    return states.view(num_rows, num_heads, num_queries, width)


class RaggedAttention(nn.Module):
    """Multi-head attention of tokens to the tokens of their own document.

    Source: equations 12 and 13 of MATCH, https://arxiv.org/abs/2102.07349, after Vaswani et al.
    2017. The paper prints the scale as the root of the whole width; here it is the root of a
    head's width, as in its source.

    Args:
        channels: Width of the tokens; must be a multiple of ``num_heads``.
        num_heads: Number of attention heads, the paper's k.
    """

    def __init__(self, channels: int, num_heads: int) -> None:
        super().__init__()
        self.channels, self.num_heads = channels, num_heads
        self.project = nn.Linear(channels, 3 * channels)
        self.out = nn.Linear(channels, channels)

    def reset_parameters(self) -> None:
        """Reinitializes the weights."""
        reset_layers(self.project, self.out)

    def forward(
        self, tokens: Tensor, layout: RaggedLayout, queries: Tensor | None = None
    ) -> Tensor:
        """Attended tokens.

        Args:
            tokens: Packed documents, [N, C].
            layout: Layout of the documents.
            queries: The first tokens of each document, as many of each, in the layout's order,
                [B' * K, C], if only these attend; None for all tokens.

        Returns:
            [N, C], or [B' * K, C].
        """
        if queries is not None:
            return self._attend_first(tokens, layout, queries)
        attended = []
        for block, valid in layout.pad(self.project(tokens)):
            query, key, value = self._split(block, 3)
            attended.append(self._join(attend(query, key, value, valid)))
        return self.out(layout.unpad(attended))

    def _attend_first(self, tokens: Tensor, layout: RaggedLayout, queries: Tensor) -> Tensor:
        r"""`forward` for few queries, without the keys and values of any token.

        .. math:: q^T (W_k x + b_k) = (W_k^T q)^T x + const,
            \quad \sum_t p_t (W_v x_t + b_v) = W_v \sum_t p_t x_t + b_v

        as weights sum to 1 and a constant leaves them as they are. So the queries of all heads go
        to the tokens' space, and a token costs 2 K num_heads products of C channels, not 2 C: 22 ms
        of processor time instead of 61 with its gradients, for 64 documents of 150 tokens, 8
        queries, 2 heads and 128 channels.
        """
        width = self.channels // self.num_heads
        query_weight, key_weight, value_weight = self.project.weight.split(self.channels)
        query_bias, _, value_bias = self.project.bias.split(self.channels)
        queries = nn.functional.linear(queries, query_weight, query_bias)
        queries = queries.view(len(layout.order), -1, self.num_heads, width)
        # `attend` divides by the root of C, a head asks for that of its width
        weight = key_weight.view(self.num_heads, width, -1) * self.num_heads**0.5
        queries = torch.einsum("bkhd,hdc->bhkc", queries, weight).flatten(1, 2)
        mixed = []
        blocks = layout.pad(tokens.to(queries.dtype))
        for (block, valid), part in zip(
            blocks, queries.split([rows for rows, _ in layout.shapes]), strict=True
        ):
            keys = block.unsqueeze(1)
            mixed.append(attend(part.unsqueeze(1), keys, keys, valid).squeeze(1))
        states = torch.cat(mixed).unflatten(1, (self.num_heads, -1))  # [B', num_heads, K, C]
        weight = value_weight.view(self.num_heads, width, -1)
        values = torch.einsum("bhkc,hdc->bkhd", states, weight).reshape(-1, self.channels)
        return self.out(values + value_bias)

    def received(self, tokens: Tensor, layout: RaggedLayout, num_queries: int) -> Tensor:
        """Attention that each token receives from its document's first tokens.

        Args:
            tokens: Packed documents, [N, C].
            layout: Layout of the documents.
            num_queries: Number of first tokens of each document that attend.

        Returns:
            Averaged over first tokens and heads, so that it sums to 1 per document; float32, [N]
            less the spare rows.
        """
        shares = []
        for block, valid in layout.pad(self.project(tokens)):
            query, key, _ = self._split(block, 3)
            scores = query[:, :, :num_queries] @ key.transpose(2, 3) * key.size(3) ** -0.5
            if valid is not None:
                scores = scores.masked_fill(~valid[:, None, None, :], float("-inf"))
            weight = torch.softmax(scores.float(), dim=-1)  # [B_g, num_heads, Q, T_g]
            shares.append(weight.mean(dim=(1, 2)).view(-1, 1))
        return layout.unpad(shares).squeeze(1)[: len(tokens) - len(layout.spare)]

    def _split(self, block: Tensor, number: int) -> Tensor:
        """[B_g, T_g, number * C] -> [number, B_g, num_heads, T_g, C / num_heads]."""
        shape = (number, self.num_heads, self.channels // self.num_heads)
        return block.unflatten(2, shape).permute(2, 0, 3, 1, 4)

    def _join(self, states: Tensor) -> Tensor:
        """[B_g, num_heads, T_g, C / num_heads] -> [B_g * T_g, C]."""
        return states.transpose(1, 2).reshape(-1, self.channels)


def reset_layers(*layers: nn.Module) -> None:
    """Reinitializes linear layers and convolutions: weights Xavier uniform, biases zero."""
    for layer in layers:
        assert isinstance(layer, nn.Linear | nn.Conv1d)
        nn.init.xavier_uniform_(layer.weight)
        if layer.bias is not None:
            nn.init.zeros_(layer.bias)


def unreached(*tensors: Tensor) -> Tensor:
    """Zero with a zero gradient for tensors that the forward pass of a batch does not use.

    Processes that average their gradients wait for a gradient of every parameter from each of them,
    also from one whose documents have no token.
    """
    return 0 * torch.stack([tensor.sum() for tensor in tensors]).sum()


@dataclass(frozen=True)
class ReceivedAttention:
    """Attention received by the tokens of packed documents in one layer.

    Args:
        share: Share of the attention of the document's first tokens, averaged over these and over
            heads, [N]; sums to 1 per document.
        num_queries: Number of first tokens of each document that attend.
    """

    share: Tensor
    num_queries: int


@contextmanager
def record_attention(model: nn.Module) -> Iterator[list[ReceivedAttention]]:
    """Records what documents' states attend to in each layer, for the forward passes of the block.

    A document's states are the tokens whose attention alone is computed: the [CLS] tokens of MATCH
    and BertXML in their last layer, the relay of Star-Transformer in every cycle. Models without
    such a layer add nothing. The weights are computed a second time, since fused kernels do not
    return them.
    """
    found: list[ReceivedAttention] = []

    @torch.no_grad()
    def observe(module: nn.Module, arguments: tuple[Any, ...]) -> None:
        tokens, layout, queries = (*arguments, None)[:3]
        if queries is not None:
            assert isinstance(module, RaggedAttention)
            num_queries = len(queries) // len(layout.order)
            found.append(
                ReceivedAttention(module.received(tokens, layout, num_queries), num_queries)
            )

    hooks = [
        module.register_forward_pre_hook(observe)
        for module in model.modules()
        if isinstance(module, RaggedAttention)
    ]
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()
