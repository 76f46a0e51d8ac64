"""Statistics of graphs against naive counts."""

import math

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import HeteroData

from match_graph.corpus import Corpus, hierarchy_frame
from match_graph.graph import BuiltGraph, build_graph, compare_counts, describe_graph
from match_graph.graph.statistics import (
    count_degrees,
    count_duplicates,
    count_twins,
    describe_coverage,
    describe_degrees,
    describe_depths,
    describe_parents,
    fingerprint_texts,
)
from match_graph.typing import CONTAINS, DOCUMENT, MASKS


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


def lists_of(corpus: Corpus, name: str) -> list[list[int]]:
    """A type's instances per document."""
    table = corpus.edges[name]
    return [
        table["instance"][table["document"] == row].tolist() for row in range(corpus.num_documents)
    ]


def test_count_degrees_at_both_ends(toy: Corpus, toy_graph: BuiltGraph) -> None:
    """A bin count per end; of gold labels, training documents alone count."""
    degrees = count_degrees(toy_graph.data)
    assert degrees["document has author, per document"].tolist() == [
        len(values) for values in lists_of(toy, "author")
    ]
    ids = toy_graph.tables["author"]["id"].tolist()
    by_author = [name for values in lists_of(toy, "author") for name in values]
    expected = [by_author.count(toy.instances["author"]["id"].tolist().index(name)) for name in ids]
    assert degrees["document has author, per author"].tolist() == expected
    gold = degrees["document tagged label, per training document"]
    assert gold.tolist() == [len(values) for values in lists_of(toy, "label")[:8]]
    assert "document cites document, per cited document" in degrees
    assert int(degrees["label is_a label, per child"].sum()) == 7
    assert len(degrees) == 2 * len(toy_graph.data.edge_types)


def test_describe_degrees_are_summed_up(toy_graph: BuiltGraph) -> None:
    """A row per end, quantiles are degrees that occur."""
    frame = describe_degrees(toy_graph.data)
    row = frame.loc["document has author, per document"]
    assert row["nodes"] == 12
    assert row["without"] == pytest.approx(1 / 12)
    assert row["mean"] == pytest.approx(15 / 12)
    assert (row["median"], row["90 %"], row["99 %"], row["most"]) == (1, 2, 2, 2)


def test_describe_depths_labels_by_depth(toy: Corpus, toy_graph: BuiltGraph) -> None:
    """Counts of training documents, by hand."""
    frame = describe_depths(toy_graph.data, toy_graph.targets)
    assert frame.index.tolist() == [0, 1, 2]
    assert frame["labels"].tolist() == [2, 3, 3]  # science, misc; learning, biology, kernels
    assert frame["never in training"].tolist() == [0, 0, 1]  # cells
    assert frame["most"].tolist() == [5, 3, 1]
    assert frame["gold labels of training"].sum() == 15


def test_describe_coverage_by_split(toy: Corpus, toy_graph: BuiltGraph) -> None:
    """Shares and means against a loop over documents."""
    frame = describe_coverage(toy_graph.data)
    splits = toy.documents["split"].tolist()
    for field in ("venue", "author", "reference", "word"):
        values = lists_of(toy, field)
        seen = {value for row in range(12) if splits[row] == "train" for value in values[row]}
        for split in ("train", "valid", "test"):
            rows = [row for row in range(12) if splits[row] == split]
            held = [row for row in rows if values[row]]
            all_values = [value for row in rows for value in values[row]]
            found = frame.loc[(field, split)]
            assert found["documents"] == len(rows)
            assert found["with a value"] == pytest.approx(len(held) / len(rows))
            assert found["values per document"] == pytest.approx(len(all_values) / len(rows))
            unseen = [value for value in all_values if value not in seen]
            assert found["values unseen in training"] == pytest.approx(
                len(unseen) / len(all_values)
            )
            only = [row for row in held if not seen & set(values[row])]
            assert found["only unseen values"] == pytest.approx(len(only) / len(held))


def test_describe_parents_by_tenths(toy_graph: BuiltGraph) -> None:
    """9 of 10 pairs follow the hierarchy; cells is never in training."""
    frame = describe_parents(toy_graph.data, toy_graph.targets)
    assert frame["edges"].sum() == 7
    assert frame["edges"]["child never in training"] == 1
    assert frame["edges"]["0.9 to 1.0"] == 5
    assert frame["edges"]["0.5 to 0.6"] == 1  # one of two documents with kernels has science
    assert len(frame) == 11


def test_count_duplicates_equal_texts_by_pair_of_splits(toy: Corpus) -> None:
    """Copies in other splits and within one; the empty text is no copy of another."""
    copies = {8: 0, 10: 0, 6: 1, 11: 9}  # to -> from; 0 to 7 train, 8 and 9 valid, 10 and 11 test
    words = lists_of(toy, "word")
    for to, origin in copies.items():
        words[to] = words[origin]
    words[7] = words[1][::-1]  # the same words in another order are another text
    pairs = [(row, word) for row, values in enumerate(words) for word in values]
    edges = pd.DataFrame(pairs, columns=["document", "instance"], dtype="int32")
    corpus = Corpus(
        "copies", toy.documents, toy.instances, {**toy.edges, "word": edges}, toy.hierarchy
    )
    frame = count_duplicates(build_graph(corpus).data)
    assert frame["documents"].to_dict() == {
        "train in train": 1,
        "valid in train": 1,
        "test in train": 1,
        "valid in valid": 0,
        "test in valid": 2,
        "test in test": 0,
    }
    assert frame["share"]["valid in train"] == 0.5


@given(
    st.lists(
        st.tuples(st.sampled_from([*MASKS]), st.lists(st.integers(0, 2), max_size=20)),
        min_size=1,
        max_size=20,
    ),
    st.lists(st.tuples(st.integers(0, 19), st.sampled_from([*MASKS]), st.integers(0, 19))),
    st.sampled_from([1, 50_000]),
)
def test_count_twins_by_loop(
    documents: list[tuple[str, list[int]]], copies: list[tuple[int, str, int]], size: int
) -> None:
    """Copies in any split, some with one word of the middle changed; texts without words."""
    for origin, split, place in copies:
        words = list(documents[origin % len(documents)][1])
        if place < len(words):
            words[place] += 1
        documents = [*documents, (split, words)]
    graph = make_words([words for _, words in documents])
    for split, mask in MASKS.items():
        graph[DOCUMENT][mask] = torch.tensor([one == split for one, _ in documents])
    known = {str(words) for split, words in documents if split == "train" and words}
    expected = {
        split: sum(one == split and str(words) in known for one, words in documents)
        for split in ("valid", "test")
        if any(one == split for one, _ in documents)
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("match_graph.graph.statistics._DOCUMENTS", size)
        found = count_twins(graph)
    assert found == (expected if any(words for _, words in documents) else {})


def test_count_twins_of_a_corpus(toy: Corpus) -> None:
    """As many as `count_duplicates` finds."""
    data = build_graph(toy).data
    found = count_duplicates(data)["documents"]
    assert count_twins(data) == {split: found[f"{split} in train"] for split in ("valid", "test")}


def make_words(texts: list[list[int]]) -> HeteroData:
    """A graph of documents and their words alone."""
    graph = HeteroData()
    graph[DOCUMENT].num_nodes = len(texts)
    pairs = [(row, word, at) for row, words in enumerate(texts) for at, word in enumerate(words)]
    columns = torch.tensor(pairs, dtype=torch.int32).view(-1, 3).t()
    graph[CONTAINS].edge_index = columns[:2].contiguous()
    graph[CONTAINS].position = columns[2].to(torch.int16)
    return graph


@given(st.lists(st.lists(st.integers(0, 3), max_size=4), min_size=1, max_size=20), st.data())
def test_fingerprint_texts_fingerprints_are_equal_where_texts(
    texts: list[list[int]], data: st.DataObject
) -> None:
    """And different elsewhere, in one part and in several."""
    graph = make_words(texts)
    size = data.draw(st.sampled_from([1, 3, 50_000]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("match_graph.graph.statistics._DOCUMENTS", size)
        prints = fingerprint_texts(graph)
    _, by_print = np.unique(prints, return_inverse=True)
    _, by_text = np.unique([str(words) for words in texts], return_inverse=True)
    same = by_text[:, None] == by_text[None, :]
    assert np.array_equal(by_print[:, None] == by_print[None, :], same)


def test_describe_coverage_empty_splits_and_no_hierarchy(toy: Corpus) -> None:
    """No share of nothing; every label has depth 0."""
    documents = toy.documents.assign(split="train")
    corpus = Corpus("flat", documents, toy.instances, toy.edges, hierarchy_frame([]))
    built = build_graph(corpus)
    frame = describe_coverage(built.data)
    assert math.isnan(frame.loc[("author", "test"), "with a value"])
    assert describe_depths(built.data, built.targets).index.tolist() == [0]
    assert describe_parents(built.data, built.targets)["edges"].sum() == 0
    assert describe_degrees(built.data).loc["label is_a label, per child", "most"] == 0
    assert math.isnan(count_duplicates(built.data).loc["test in train", "share"])


def test_describe_graph_of_further_node_types(toy_graph: BuiltGraph) -> None:
    """A node type without a ``has`` edge is no metadata field; its edges have a row of counts."""
    data = HeteroData.from_dict(toy_graph.data.to_dict())
    data["team"].x = torch.ones(3, 2)
    data["document", "of", "team"].edge_index = torch.tensor([[0, 1], [0, 2]])
    rows = describe_graph(data, toy_graph.targets)
    assert rows["document of team edges"] == 2
    assert "team nodes" not in rows
    assert "team" not in describe_coverage(data).index.get_level_values("field")
