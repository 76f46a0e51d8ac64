"""Nodes -> token ids."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric import seed_everything
from torch_geometric.datasets import FakeHeteroDataset

from match_graph.errors import GraphError
from match_graph.graph import BuiltGraph, TokenSpace
from match_graph.graph.tokens import PAD_ID
from match_graph.typing import DOCUMENT, WORD

spaces = st.lists(st.integers(0, 5), min_size=1, max_size=5).map(
    lambda kept: TokenSpace(tuple(f"type{number}" for number in range(len(kept))), tuple(kept))
)


@given(spaces)
def test_TokenSpace_pad_unknowns_and_spans_cover_the_ids_once(space: TokenSpace) -> None:
    """[PAD], one [UNK] per type, then the spans, in order and without gap or overlap."""
    ids = [PAD_ID, *(space.unk_id(name) for name in space.types)]
    for name in space.types:
        ids += range(space.num_tokens)[space.span(name)]
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


def test_TokenSpace_document_counts_equal_a_loop(toy_graph: BuiltGraph) -> None:
    """Documents with each token, once each however often it occurs; rare nodes count as [UNK]."""
    data = toy_graph.data
    space = TokenSpace.from_data(data, min_count=2, min_word_count=3)
    documents = data[DOCUMENT].train_mask.nonzero().view(-1)
    seen: dict[int, set[int]] = {token: set() for token in range(space.num_tokens)}
    for name in space.types:
        store = data[DOCUMENT, "contains" if name == WORD else "has", name]
        for row, col in store.edge_index.t().tolist():
            if row in documents.tolist():
                seen[int(space.encode(name, torch.tensor(col)))].add(row)
    expected = [len(seen[token]) for token in range(space.num_tokens)]
    assert space.document_count(data, documents).tolist() == expected
    assert max(expected) > 3
