"""A graph without a metadata field: nothing of it is left, and nothing else is gone."""

import pytest
import torch

from match_graph.datasets import Synthetic
from match_graph.errors import GraphError
from match_graph.graph import BuiltGraph, DropFields, EgoSampler, TokenSpace, metadata_fields
from match_graph.typing import CITES


def test_metadata_fields_are_those_that_documents_have(toy_graph: BuiltGraph) -> None:
    """In the graph's order; words, labels and citations are none."""
    assert metadata_fields(toy_graph.data) == ["venue", "author", "reference"]


@pytest.mark.parametrize("fields", [[], ["author"], ["reference", "venue"]])
def test_DropFields_dropped_fields_leave_no_node_and_no_edge(toy_graph: BuiltGraph, fields) -> None:
    """Citations go with references; everything else is the same tensor, and the graph is valid."""
    before = {*toy_graph.data.node_types, *toy_graph.data.edge_types}
    data = DropFields(fields)(toy_graph.data)
    data.validate()
    gone = {*fields, *(("document", "has", name) for name in fields)}
    gone |= {CITES} if "reference" in fields else set()
    assert {*data.node_types, *data.edge_types} == before - gone
    for edge_type in data.edge_types:
        assert data[edge_type].edge_index is toy_graph.data[edge_type].edge_index
    assert {*toy_graph.data.node_types, *toy_graph.data.edge_types} == before  # left alone
    sampler = EgoSampler(data)
    assert not {edge_type[2] for edge_type in sampler.edge_types} & set(fields)
    assert not set(TokenSpace.from_data(data).types) & set(fields)


def test_DropFields_data_set_drops_fields_at_every_access(synthetic: Synthetic) -> None:
    """As PyG's ``transform``; the same built data serve, and the splits stay."""
    dataset = Synthetic(
        num_documents=400, num_labels=24, num_layers=3, num_words=600, root=synthetic.root,
        transform=DropFields(["author"]),
    )  # fmt: skip
    assert dataset.checksum == synthetic.checksum
    assert metadata_fields(dataset[0]) == metadata_fields(dataset[0]) == ["venue", "reference"]
    assert dataset.token_space().types == ("venue", "reference", "word")
    found, expected = (one.documents("test_mask") for one in (dataset, synthetic))
    assert torch.equal(found, expected)


def test_DropFields_field_that_is_not_there_is_one_sentence(toy_graph: BuiltGraph) -> None:
    """With the choices."""
    with pytest.raises(GraphError) as caught:
        DropFields(["autor"])(toy_graph.data)
    assert str(caught.value) == (
        "Only metadata fields of the graph can be taken out, found ['autor']; "
        "choose from ['venue', 'author', 'reference']."
    )
    assert repr(DropFields(["venue"])) == "DropFields(['venue'])"
