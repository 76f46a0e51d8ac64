"""Packed attention against padded attention; attention recorded while a model computes."""

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

from match_graph.graph import EgoBatch, TokenSpace
from match_graph.graph.csr import make_ptr
from match_graph.nn import BertXmlEncoder, MatchEncoder, StarTransformerEncoder, TokenEmbedding
from match_graph.nn.attention import (
    RaggedAttention,
    RaggedLayout,
    attend,
    lay_out,
    record_attention,
    unreached,
)
from match_graph.nn.encoders import Encoder, TransformerEncoder, XmlCnnEncoder

lengths_of_documents = st.lists(st.integers(1, 9), min_size=1, max_size=12)


def ptr_of(lengths: list[int]) -> Tensor:
    return make_ptr(torch.tensor(lengths, dtype=torch.int64))


def random_tokens(number: int, channels: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(number, channels, generator=generator, dtype=torch.float64)


def make_attention(channels: int, num_heads: int, seed: int = 0) -> RaggedAttention:
    """In float64, biases not zero."""
    torch.manual_seed(seed)
    attention = RaggedAttention(channels, num_heads).double()
    with torch.no_grad():
        for parameter in attention.parameters():
            parameter.normal_(std=0.5)
    return attention


def naive_attention(attention: RaggedAttention, tokens: Tensor) -> Tensor:
    """One document's tokens [T, C]: loops over heads, queries and keys, no matrix of scores."""
    channels, num_heads = attention.channels, attention.num_heads
    width = channels // num_heads
    weights = attention.project.weight.split(channels)
    biases = attention.project.bias.split(channels)
    rows = []
    for query_token in tokens:
        joined = []
        for head in range(num_heads):
            part = slice(head * width, (head + 1) * width)
            query = weights[0][part] @ query_token + biases[0][part]
            exponentials, values = [], []
            for token in tokens:
                key = weights[1][part] @ token + biases[1][part]
                exponentials.append(torch.exp(torch.dot(query, key) / math.sqrt(width)))
                values.append(weights[2][part] @ token + biases[2][part])
            total = sum(exponentials)
            joined.append(
                sum(e / total * value for e, value in zip(exponentials, values, strict=True))
            )
        rows.append(attention.out.weight @ torch.cat(joined) + attention.out.bias)
    return torch.stack(rows)


@given(lengths_of_documents, st.one_of(st.none(), st.integers(1, 15)))
def test_RaggedLayout_pad_then_unpad_gives_the_tokens_back(
    lengths: list[int], num_groups: int | None
) -> None:
    """Also with documents of one token and more groups than documents."""
    tokens = random_tokens(sum(lengths), 3)
    layout = RaggedLayout.from_ptr(ptr_of(lengths), num_groups)
    blocks = [block.flatten(0, 1) for block, _ in layout.pad(tokens)]
    assert torch.equal(layout.unpad(blocks), tokens)


@given(lengths_of_documents, st.integers(1, 15))
def test_RaggedLayout_blocks_hold_each_document_in_a_row(
    lengths: list[int], num_groups: int
) -> None:
    """Its tokens in order, then its first token; valid marks them, None without padding."""
    tokens = random_tokens(sum(lengths), 2)
    documents = tokens.split(lengths)
    layout = RaggedLayout.from_ptr(ptr_of(lengths), num_groups)
    assert sorted(layout.order.tolist()) == list(range(len(lengths)))
    assert [lengths[document] for document in layout.order] == sorted(lengths)
    rows = iter(layout.order.tolist())
    for block, valid in layout.pad(tokens):
        found = [lengths[document] for document in (next(rows) for _ in range(len(block)))]
        assert block.size(1) == max(found)
        assert (valid is None) == (min(found) == max(found))
    rows = iter(layout.order.tolist())
    for block, valid in layout.pad(tokens):
        for place, row in enumerate(block):
            document = documents[next(rows)]
            assert torch.equal(row[: len(document)], document)
            assert torch.equal(
                row[len(document) :], document[:1].expand(len(row) - len(document), 2)
            )
            if valid is not None:
                assert valid[place].tolist() == [slot < len(document) for slot in range(len(row))]
    assert next(rows, None) is None


@given(st.lists(st.integers(0, 3), min_size=1, max_size=12).filter(any), st.integers(1, 4))
def test_RaggedLayout_documents_without_tokens_are_in_no_block(
    lengths: list[int], num_groups: int
) -> None:
    """The layout is that of the others, by their own numbers."""
    layout = RaggedLayout.from_ptr(ptr_of(lengths), num_groups)
    filled = [document for document, length in enumerate(lengths) if length]
    others = RaggedLayout.from_ptr(ptr_of([lengths[document] for document in filled]), num_groups)
    assert layout.order.tolist() == [filled[document] for document in others.order.tolist()]
    assert layout.shapes == others.shapes
    assert torch.equal(layout.slot_token, others.slot_token)
    assert torch.equal(layout.token_slot, others.token_slot)


@given(st.lists(st.integers(0, 500), min_size=1, max_size=100).filter(any))
def test_RaggedLayout_groups_end_where_padding_costs_more(lengths: list[int]) -> None:
    """Groups end where padding costs more than a group.

    No group pads more than 65,536 pairs; joined to the next longer one, each would pad more.
    """
    layout = RaggedLayout.from_ptr(ptr_of(lengths))
    filled = sorted(length for length in lengths if length)
    groups = []
    for rows, longest in layout.shapes:
        groups.append([filled.pop(0) for _ in range(rows)])
        assert groups[-1][-1] == longest
    assert not filled
    piece = max(1, sum(map(len, groups)) // 16)

    def pad(group: list[int]) -> int:
        """Padded pairs, a piece of the documents being as long as its longest."""
        tops = [group[max(0, end - 1)] for end in range(len(group), 0, -piece)]
        sizes = [min(piece, end) for end in range(len(group), 0, -piece)]
        return sum(size * (tops[0] ** 2 - top**2) for top, size in zip(tops, sizes, strict=True))

    assert all(pad(group) <= 65_536 for group in groups)
    for short, long in pairwise(groups):
        assert pad(short[-piece:] + long) > 65_536


def test_RaggedLayout_groups_need_less_padding_than_one_block() -> None:
    """What the groups are for, and one where all documents are about as long."""
    ptr = ptr_of([1 + number % 500 for number in range(100)])
    slots = [RaggedLayout.from_ptr(ptr, groups).slot_token.numel() for groups in (1, None)]
    assert slots[1] < 0.7 * slots[0]
    assert len(RaggedLayout.from_ptr(torch.arange(501)).shapes) == 1
    assert len(RaggedLayout.from_ptr(ptr_of([60 + number % 9 for number in range(64)])).shapes) == 1


def test_lay_out_lengths_and_rows_come_again_on_cpu() -> None:
    """Blocks of multiples of 8, rows of multiples of 256; the spare rows hold no document."""
    ptr, tokens = ptr_of([3, 9, 20]), random_tokens(32, 2)
    rows, layout = lay_out(tokens, ptr)
    assert (rows.shape, layout.shapes, layout.is_full) == ((256, 2), [(3, 24)], [False])
    assert torch.equal(rows[:32], tokens)
    assert not rows[32:].any()
    assert layout.spare.tolist() == list(range(32, 256))
    assert layout.padding.tolist() == [
        row * 24 + slot for row, length in enumerate([3, 9, 20]) for slot in range(length, 24)
    ]
    assert len(lay_out(random_tokens(256, 2), ptr_of([256]))[0]) == 256


@pytest.mark.gpu
def test_lay_out_adds_no_rows_on_a_gpu() -> None:
    """Blocks are as long as their longest document."""
    rows, layout = lay_out(random_tokens(32, 2).cuda(), ptr_of([3, 9, 20]).cuda())
    assert (len(rows), len(layout.spare)) == (32, 0)
    assert max(length for _, length in layout.shapes) == 20


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_attend_on_a_gpu_takes_no_kernel_of_cudnn(dtype: torch.dtype) -> None:
    """Nor changes what torch takes elsewhere; values as in float64."""
    query, key, value = (random_tokens(4 * 9, 16, seed).view(2, 2, 9, 16) for seed in range(3))
    valid = torch.ones(2, 9, dtype=torch.bool)
    valid[1, 5:] = False
    expected = attend(query, key, value, valid)
    given = [one.to("cuda", dtype) for one in (query, key, value)]
    enabled = torch.backends.cuda.cudnn_sdp_enabled()
    with profile(activities=[ProfilerActivity.CPU], acc_events=True) as found:
        attended = attend(*given, valid.cuda())
    names = {event.key for event in found.key_averages()}
    assert any("scaled_dot_product" in name for name in names)
    assert not any("cudnn" in name for name in names)
    assert torch.backends.cuda.cudnn_sdp_enabled() == enabled
    torch.testing.assert_close(attended.cpu().double(), expected, atol=0.02, rtol=0.02)


@given(lengths_of_documents, st.integers(1, 5), st.integers(0, 3), st.sampled_from([1, 4]))
@settings(max_examples=15)
def test_RaggedLayout_gradients_of_the_round_trip(
    lengths: list[int], num_groups: int, num_spare: int, length_step: int
) -> None:
    """gradcheck in float64 of pad, a function of the tokens, and unpad; spare rows take none."""
    layout = RaggedLayout.from_ptr(
        ptr_of(lengths), num_groups, sum(lengths) + num_spare, length_step
    )

    def round_trip(tokens: Tensor) -> Tensor:
        blocks = [block.flatten(0, 1).sin() for block, _ in layout.pad(tokens)]
        return layout.unpad(blocks)[: sum(lengths)]

    tokens = random_tokens(sum(lengths) + num_spare, 2).requires_grad_()
    assert torch.autograd.gradcheck(round_trip, tokens)


@pytest.mark.parametrize("num_queries", [0, 1, 2])
@pytest.mark.parametrize("num_groups", [1, 3])
def test_RaggedAttention_gradients_of_attention(num_queries: int, num_groups: int) -> None:
    """gradcheck in float64 for tokens and weights: padding neither adds nor takes a gradient."""
    lengths = [2, 5, 3, 2, 4]
    attention = FirstAttention(make_attention(4, 2), num_queries)
    ptr = ptr_of(lengths)
    layout = RaggedLayout.from_ptr(ptr, num_groups, sum(lengths) + 2, length_step=2)
    names = [name for name, _ in attention.named_parameters()]

    def run(tokens: Tensor, *weights: Tensor) -> Tensor:
        parameters = dict(zip(names, weights, strict=True))
        found: Tensor = torch.func.functional_call(attention, parameters, (tokens, layout, ptr))
        return found if num_queries else found[: sum(lengths)]

    tokens = random_tokens(sum(lengths) + 2, 4).requires_grad_()
    weights = [value.detach().clone().requires_grad_() for value in attention.parameters()]
    assert torch.autograd.gradcheck(run, (tokens, *weights), fast_mode=True)


class FirstAttention(nn.Module):
    """Attention of the first tokens of each document; of all tokens where that is 0."""

    def __init__(self, attention: RaggedAttention, num_queries: int) -> None:
        super().__init__()
        self.attention, self.num_queries = attention, num_queries

    def forward(self, tokens: Tensor, layout: RaggedLayout, ptr: Tensor) -> Tensor:
        if not self.num_queries:
            return self.attention(tokens, layout)
        start = ptr[:-1][layout.order].unsqueeze(1)
        queries = tokens[(start + torch.arange(self.num_queries)).view(-1)]
        return self.attention(tokens, layout, queries)


@given(lengths_of_documents, st.sampled_from([(4, 1), (4, 2), (6, 3)]), st.integers(1, 4))
@settings(max_examples=12)
def test_RaggedAttention_equals_a_naive_loop(
    lengths: list[int], width: tuple[int, int], num_groups: int
) -> None:
    """Per document, without padding, scaled by the root of a head's width, in float64."""
    attention = make_attention(*width)
    tokens = random_tokens(sum(lengths), width[0])
    layout = RaggedLayout.from_ptr(ptr_of(lengths), num_groups)
    with torch.no_grad():
        expected = [naive_attention(attention, part) for part in tokens.split(lengths)]
        found = attention(tokens, layout)
        assert torch.allclose(found, torch.cat(expected), rtol=1e-10, atol=1e-12)
        first = FirstAttention(attention, 1)(tokens, layout, ptr_of(lengths))
        in_order = torch.stack([expected[document][0] for document in layout.order])
        assert torch.allclose(first, in_order, rtol=1e-10, atol=1e-12)


def test_RaggedAttention_of_first_tokens_projects_no_other_token() -> None:
    """8 queries of 2 heads to 4 documents of 200 tokens: a third of what keys and values cost."""
    attention, lengths, channels = RaggedAttention(64, 2), [200] * 4, 64
    tokens, ptr = random_tokens(800, channels).float(), ptr_of(lengths)
    layout = RaggedLayout.from_ptr(ptr)
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        FirstAttention(attention, 8)(tokens, layout, ptr)
    scores = 2 * 2 * 800 * 2 * 8 * channels  # a product and a sum for scores, and for values
    few = 2 * 32 * channels * (2 * channels + 2 * channels)  # of the 32 queries
    assert counter.get_total_flops() == scores + few
    assert counter.get_total_flops() < 2 * 800 * channels * 2 * channels / 2


@given(lengths_of_documents, st.data())
@settings(max_examples=30)
def test_RaggedLayout_documents_do_not_leak(lengths: list[int], data: st.DataObject) -> None:
    """Changing one document changes no other, and no gradient crosses."""
    changed = data.draw(st.integers(0, len(lengths) - 1))
    attention = make_attention(4, 2)
    layout = RaggedLayout.from_ptr(ptr_of(lengths), data.draw(st.integers(1, 4)))
    tokens = random_tokens(sum(lengths), 4).requires_grad_()
    before = attention(tokens, layout).split(lengths)
    other = tokens.detach().clone()
    other.split(lengths)[changed].add_(3.0)
    after = attention(other, layout).split(lengths)
    for document, (one, two) in enumerate(zip(before, after, strict=True)):
        assert torch.allclose(one, two, rtol=1e-12, atol=1e-12) == (document != changed)
    (before[changed] * torch.randn(before[changed].shape)).sum().backward()
    for document, gradient in enumerate(tokens.grad.split(lengths)):
        assert bool(gradient.any()) == (document == changed)


def random_heads(dtype: torch.dtype, num_queries: int = 7) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Query [3, 2, Q, 8], key and value [3, 2, 7, 8], and valid keys [3, 7]."""
    generator = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(3, 2, 7, 8, generator=generator).to(dtype) for _ in range(3))
    valid = torch.arange(7) < torch.tensor([[7], [1], [4]])
    return query[:, :, :num_queries], key, value, valid


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("masked", [False, True])
def test_attend_in_float_is_torch_own(dtype: torch.dtype, masked: bool) -> None:
    """Bit by bit scaled_dot_product_attention with the padding masked."""
    query, key, value, valid = random_heads(dtype)
    mask = valid[:, None, None, :] if masked else None
    expected = torch.nn.functional.scaled_dot_product_attention(query, key, value, mask)
    assert torch.equal(attend(query, key, value, valid if masked else None), expected)


@pytest.mark.parametrize("masked", [False, True])
def test_attend_in_float64_equals_the_formula(masked: bool) -> None:
    """softmax(q k^T / sqrt(C)) v, query by query over the valid keys."""
    query, key, value, valid = random_heads(torch.float64)
    found = attend(query, key, value, valid if masked else None)
    for row in range(3):
        last = int(valid[row].sum()) if masked else 7
        for head in range(2):
            for place in range(7):
                scores = [
                    math.exp(float(query[row, head, place] @ key[row, head, other]) / math.sqrt(8))
                    for other in range(last)
                ]
                expected = sum(
                    score / sum(scores) * value[row, head, other]
                    for other, score in enumerate(scores)
                )
                assert torch.allclose(found[row, head, place], expected, rtol=1e-12)


@pytest.mark.parametrize("num_queries", [2, 7])
@pytest.mark.parametrize("masked", [False, True])
def test_attend_in_bfloat16_is_close_to_torch_own(num_queries: int, masked: bool) -> None:
    """Value and gradients on CPU within bfloat16's tolerance of the float64 result."""
    inputs = random_heads(torch.bfloat16, num_queries)
    valid = inputs[3] if masked else None
    mask = inputs[3][:, None, None, :] if masked else None
    outgoing = torch.randn(3, 2, num_queries, 8, generator=torch.Generator().manual_seed(1))

    ours = [value.clone().requires_grad_() for value in inputs[:3]]
    found = attend(*ours, valid)
    found.backward(outgoing.bfloat16())
    exact = [value.double().requires_grad_() for value in inputs[:3]]
    expected = torch.nn.functional.scaled_dot_product_attention(*exact, mask)
    expected.backward(outgoing.bfloat16().double())

    torchs = torch.nn.functional.scaled_dot_product_attention(*inputs[:3], mask)
    assert found.dtype == torch.bfloat16
    assert found.shape == torchs.shape
    torch.testing.assert_close(found, torchs, rtol=2e-2, atol=2e-2)
    torch.testing.assert_close(found.double(), expected, rtol=2e-2, atol=2e-2)
    for one, other in zip(ours, exact, strict=True):
        torch.testing.assert_close(one.grad.double(), other.grad, rtol=5e-2, atol=5e-2)


def test_attend_in_bfloat16_reads_no_padding() -> None:
    """Keys and values of padding change nothing and get no gradient."""
    query, key, value, valid = random_heads(torch.bfloat16)
    before = attend(query, key, value, valid)
    hidden = ~valid[:, None, :, None].expand_as(key)
    key, value = (part.masked_fill(hidden, 100.0).requires_grad_() for part in (key, value))
    after = attend(query, key, value, valid)
    assert torch.equal(after, before)
    after.float().square().sum().backward()
    assert not key.grad[hidden].any()
    assert not value.grad[hidden].any()


@torch.no_grad()
def test_RaggedAttention_reset_is_xavier_by_the_seed() -> None:
    """Xavier uniform within its bound, biases zero, by the seed."""
    attention = make_attention(8, 2)
    torch.manual_seed(1)
    attention.reset_parameters()
    first = [parameter.detach().clone() for parameter in attention.parameters()]
    assert float(attention.project.weight.abs().max()) <= math.sqrt(6 / (8 + 24))
    assert float(attention.out.weight.abs().max()) <= math.sqrt(6 / (8 + 8))
    assert not attention.project.bias.any()
    assert not attention.out.bias.any()
    torch.manual_seed(1)
    attention.reset_parameters()
    assert all(map(torch.equal, first, attention.parameters()))


def test_unreached_gives_every_tensor_a_gradient_of_zero() -> None:
    """Also an empty one, without changing what it is added to."""
    weight, empty = torch.ones(2, 3, requires_grad=True), torch.ones(0, 4, requires_grad=True)
    total = torch.full((2,), 5.0) + unreached(weight, empty)
    assert total.tolist() == [5.0, 5.0]
    total.sum().backward()
    assert weight.grad is not None
    assert not weight.grad.any()
    assert empty.grad is not None


@pytest.mark.parametrize("num_queries", [1, 3])
def test_RaggedAttention_received_attention_is_that_of_torch(num_queries: int) -> None:
    """`nn.MultiheadAttention` of each document alone, its weights averaged over queries."""
    torch.manual_seed(0)
    attention = RaggedAttention(12, num_heads=3)
    reference = nn.MultiheadAttention(12, 3, batch_first=True)
    with torch.no_grad():
        reference.in_proj_weight.copy_(attention.project.weight)
        reference.in_proj_bias.copy_(attention.project.bias)
    lengths = torch.tensor([5, 3, 9, 3])
    ptr, tokens = make_ptr(lengths), torch.randn(20, 12)
    received = attention.received(tokens, RaggedLayout.from_ptr(ptr, 2), num_queries)
    for share, document in zip(
        received.split(lengths.tolist()), tokens.split(lengths.tolist()), strict=True
    ):
        one = document.unsqueeze(0)
        _, weight = reference(one[:, :num_queries], one, one)
        torch.testing.assert_close(share, weight.mean(dim=1).squeeze(0))
        assert float(share.detach().sum()) == pytest.approx(1)


@pytest.mark.parametrize(
    ("encoder_cls", "layers", "num_queries"),
    [
        (MatchEncoder, 1, 8),
        (BertXmlEncoder, 1, 5),
        (StarTransformerEncoder, 2, 1),
        (TransformerEncoder, 0, 0),
        (XmlCnnEncoder, 0, 0),
    ],
)
def test_record_attention_records_documents_states_only(
    toy_space: TokenSpace,
    toy_batch: EgoBatch,
    encoder_cls: type[Encoder],
    layers: int,
    num_queries: int,
) -> None:
    """Only the attention of documents' own states is recorded.

    [CLS] in the last layer, relays in every cycle; means over tokens and convolutions: none.
    """
    torch.manual_seed(0)
    encoder = encoder_cls(TokenEmbedding(toy_space, 100), encoder_cls.Config()).eval()
    plain = encoder(toy_batch).document
    with record_attention(encoder) as received:
        seen = encoder(toy_batch).document
    assert torch.equal(plain, seen)
    assert [one.num_queries for one in received] == [num_queries] * layers
    for one in received:
        assert float(one.share.sum()) == pytest.approx(toy_batch.num_documents, abs=1e-4)
    encoder(toy_batch)
    assert len(received) == layers  # nothing is recorded after the block


def test_record_attention_hooks_go_when_the_block_fails(toy_space: TokenSpace) -> None:
    """An error within the block leaves no hook behind."""
    encoder = MatchEncoder(TokenEmbedding(toy_space, 100), MatchEncoder.Config())

    def fail() -> None:
        with record_attention(encoder):
            raise ValueError

    with pytest.raises(ValueError):
        fail()
    assert not any(module._forward_pre_hooks for module in encoder.modules())
