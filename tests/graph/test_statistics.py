"""The paper's Table 1 for a built graph."""

import math

import pytest
import torch

from match_graph.corpus import Corpus, hierarchy_frame
from match_graph.graph import BuiltGraph, build_graph, compare_counts, describe_graph


def test_describe_graph_rows_of_toy_graph_are_counted_by_hand(
    toy: Corpus, toy_graph: BuiltGraph
) -> None:
    """Every row, in the order of the table."""
    num_words = len(toy.edges["word"])
    rows = describe_graph(toy_graph.data, toy_graph.targets)
    expected = {
        "train documents": 8,
        "valid documents": 2,
        "test documents": 2,
        "labels": 8,
        "labels / document": 25 / 12,
        "labels never in training": 1,
        "vocabulary": len(toy.instances["word"]),
        "words / document": num_words / 12,
        "venue nodes": 3,
        "author nodes": 5,
        "reference nodes": 10,
        "document-venue edges": 10,
        "document-author edges": 15,
        "document-reference edges": 16,
        "document contains word edges": num_words,
        "document cites document edges": 9,
        "document tagged label edges": 15,
        "label is_a label edges": 7,
        "hierarchy edges": 7,
        "hierarchy layers": 3,
        "labels with several parents": 1,
        "P(parent | child) in training": 9 / 10,
    }
    assert list(rows) == list(expected)
    assert rows == {key: pytest.approx(value) for key, value in expected.items()}


def test_describe_graph_parent_given_child_pools_training_pairs(toy_graph: BuiltGraph) -> None:
    """Of all (training document, edge whose child it carries), the share with the parent."""
    data, targets = toy_graph.data, toy_graph.targets
    sets = [set(part.tolist()) for part in targets.index.split(targets.ptr.diff().tolist())]
    carried = [
        parent in sets[document]
        for document in data["document"].train_mask.nonzero().view(-1).tolist()
        for child, parent in data["label", "is_a", "label"].edge_index.t().tolist()
        if child in sets[document]
    ]
    rows = describe_graph(data, targets)
    assert rows["P(parent | child) in training"] == sum(carried) / len(carried)


def test_describe_graph_without_hierarchy_probability_not_number(toy: Corpus) -> None:
    """No edge, no layer, no pair."""
    corpus = Corpus("flat", toy.documents, toy.instances, toy.edges, hierarchy_frame([]))
    built = build_graph(corpus)
    rows = describe_graph(built.data, built.targets)
    assert rows["hierarchy edges"] == rows["hierarchy layers"] == 0
    assert rows["labels with several parents"] == 0
    assert math.isnan(rows["P(parent | child) in training"])


def test_describe_graph_values_are_plain_numbers(toy_graph: BuiltGraph) -> None:
    """Reports and JSON take them as they are."""
    for key, value in describe_graph(toy_graph.data, toy_graph.targets).items():
        assert type(value) in (int, float), key
        assert not isinstance(value, torch.Tensor)


def test_compare_counts_published_counts_are_compared_row_by_row() -> None:
    """Means by the two decimals of a paper, counts exactly; rows of one side only are left out."""
    found = {"labels": 7, "words / document": 126.334, "venue nodes": 3}
    published = {"labels": 9, "words / document": 126.33, "author nodes": 5}
    assert compare_counts(found, published) == {"labels": (9, -2), "words / document": (126.33, 0)}
