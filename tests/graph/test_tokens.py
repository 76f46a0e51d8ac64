"""Nodes -> token ids, and the batches that hold them."""

import copy
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric import seed_everything
from torch_geometric.datasets import FakeHeteroDataset

from match_graph.errors import GraphError
from match_graph.graph import (
    BuiltGraph,
    EgoBatch,
    EgoLoader,
    EgoSampler,
    NodeFeatures,
    TokenSpace,
)
from match_graph.graph.tokens import PAD_ID, make_batch
from match_graph.typing import DOCUMENT

spaces = st.lists(st.integers(0, 5), min_size=1, max_size=5).map(
    lambda kept: TokenSpace(tuple(f"type{number}" for number in range(len(kept))), tuple(kept))
)


@given(spaces)
def test_TokenSpace_pad_unknowns_and_spans_cover_the_ids_once(space: TokenSpace) -> None:
    """[PAD], one [UNK] per type, then the spans, in order and without gap or overlap."""
    ids = [PAD_ID, *(space.unk_id(name) for name in space.types)]
    for name in space.types:
        ids += range(space.num_tokens)[space.span(name)]
        assert len(range(space.num_tokens)[space.span(name)]) == space.kept_by_type[name]
    assert ids == list(range(space.num_tokens))


@given(spaces)
def test_TokenSpace_encode_equals_a_loop(space: TokenSpace) -> None:
    """Kept nodes get offset + index, the others the [UNK] of their type."""
    for name, num_kept in zip(space.types, space.num_kept, strict=True):
        index = torch.arange(8, dtype=torch.int32).view(2, 4)
        expected = [
            space.offset(name) + node if node < num_kept else space.unk_id(name)
            for node in range(8)
        ]
        found = space.encode(name, index)
        assert found.shape == (2, 4)
        assert found.dtype == torch.int64
        assert found.flatten().tolist() == expected


@pytest.mark.parametrize(
    ("min_count", "min_word_count"), [(1, 1), (2, 2), (2, 1), (3, 4), (99, 99)]
)
def test_TokenSpace_minimum_counts_keep_the_frequent_nodes(
    toy_graph: BuiltGraph, min_count: int, min_word_count: int
) -> None:
    """Nodes with enough training occurrences alone are no [UNK]; words have their own bound."""
    data = toy_graph.data
    space = TokenSpace.from_data(data, min_count, min_word_count)
    assert space.types == ("venue", "author", "reference", "word")
    for name in space.types:
        least = min_word_count if name == "word" else min_count
        ids = space.encode(name, torch.arange(data[name].num_nodes))
        for count, token in zip(data[name].train_count.tolist(), ids.tolist(), strict=True):
            assert (token != space.unk_id(name)) == (count >= least)
        assert (
            len(set(ids.tolist()) - {space.unk_id(name)}) == (data[name].train_count >= least).sum()
        )


def test_TokenSpace_types_choose_and_order(toy_graph: BuiltGraph) -> None:
    """Given types are taken as they are."""
    space = TokenSpace.from_data(toy_graph.data, types=["word", "venue"])
    assert space.types == ("word", "venue")
    assert space.unk_id("venue") == 2
    assert space.field_index("venue") == 1


def test_TokenSpace_types_without_counts_are_kept_whole() -> None:
    """Any heterogeneous graph has a token space."""
    seed_everything(0)
    data = FakeHeteroDataset(num_graphs=1)[0]
    space = TokenSpace.from_data(data)
    assert space.types == tuple(data.node_types)
    assert space.num_kept == tuple(data[name].num_nodes for name in data.node_types)


@pytest.mark.parametrize(
    ("types", "num_kept"), [(("a", "b"), (1,)), (("a", "a"), (1, 2))], ids=["count", "repeated"]
)
def test_TokenSpace_types_and_counts_must_match(
    types: tuple[str, ...], num_kept: tuple[int, ...]
) -> None:
    """One count for each distinct type."""
    with pytest.raises(GraphError) as caught:
        TokenSpace(types, num_kept)
    assert str(caught.value) == (
        f"A token space needs one count for each of its distinct types, found types {types} with "
        f"counts {num_kept}."
    )


def test_NodeFeatures_are_the_x_of_a_graph(toy_graph: BuiltGraph) -> None:
    """The documents' width, and the rows of every other type that has any."""
    data = copy.copy(toy_graph.data)
    assert NodeFeatures.from_data(data) == NodeFeatures()
    data[DOCUMENT].x, data["venue"].x = torch.zeros(4, 3), torch.ones(5, 2)
    features = NodeFeatures.from_data(data)
    assert features.width == 3
    assert features.rows.keys() == {"venue"}
    assert features.rows["venue"] is data["venue"].x


def test_EgoLoader_batches_carry_the_documents_features(toy_graph: BuiltGraph) -> None:
    """By document, whatever the order; the token sets stay as they are."""
    data = copy.copy(toy_graph.data)
    space = TokenSpace.from_data(data)
    number = int(data[DOCUMENT].num_nodes)
    data[DOCUMENT].x = torch.randn(number, 3).half()
    order = torch.arange(number).flip(0)
    (batch,) = EgoLoader(data, EgoSampler(data), space, order, batch_size=number)
    assert torch.equal(batch.x, data[DOCUMENT].x[order])
    (bare,) = EgoLoader(toy_graph.data, EgoSampler(data), space, order, batch_size=number)
    assert bare.x is None
    assert torch.equal(batch.token_id, bare.token_id)


def test_EgoBatch_document_tokens_come_first(toy_graph: BuiltGraph) -> None:
    """Against a loop over documents, one of which has no token."""
    token_id, field = torch.tensor([5, 6, 7]), torch.tensor([0, 2, 2])
    ptr, position = torch.tensor([0, 1, 1, 3]), torch.tensor([0, 0, 1])
    batch = EgoBatch(torch.arange(3), token_id, field, position, ptr)
    found = batch.with_document_tokens(9)
    expected: dict[str, list[int]] = {"token_id": [], "field": [], "position": []}
    for document in range(3):
        span = slice(int(ptr[document]), int(ptr[document + 1]))
        for name, first in (("token_id", PAD_ID), ("field", 9), ("position", 0)):
            expected[name] += [first, *getattr(batch, name)[span].tolist()]
    assert {name: getattr(found, name).tolist() for name in expected} == expected
    assert found.ptr.tolist() == [0, 2, 3, 6]


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4).filter(lambda sizes: sum(sizes) <= 12))
def test_EgoBatch_split_equals_batches_sampled_alone(
    toy_graph: BuiltGraph, sizes: list[int]
) -> None:
    """Also documents without words or gold labels, with features and texts, or without."""
    space, sampler = TokenSpace.from_data(toy_graph.data), EgoSampler(toy_graph.data)
    documents, x = torch.arange(sum(sizes)), torch.rand(12, 3)

    def make(rows: torch.Tensor, is_full: bool) -> EgoBatch:
        targets = toy_graph.targets if is_full else None
        batch = make_batch(sampler.sample(rows), space, targets, x if is_full else None)
        return replace(batch, text=[f"text {row}" for row in rows.tolist()] if is_full else None)

    for is_full in (True, False):
        parts = make(documents, is_full).split(sizes)
        for part, rows in zip(parts, documents.split(sizes), strict=True):
            alone = make(rows, is_full)
            for name, value in vars(alone).items():
                found = getattr(part, name)
                same = torch.equal(found, value) if torch.is_tensor(value) else found == value
                assert same, name


def test_EgoBatch_split_refuses_a_subgraph(toy_graph: BuiltGraph) -> None:
    """Its components would have to be numbered anew."""
    space, sampler = TokenSpace.from_data(toy_graph.data), EgoSampler(toy_graph.data)
    loader = EgoLoader(
        toy_graph.data, sampler, space, torch.arange(4), with_graph=True, batch_size=4
    )
    with pytest.raises(GraphError) as caught:
        next(iter(loader)).split([2, 2])
    assert str(caught.value) == (
        "A batch must have no subgraph to be split, found one; sample anew."
    )
