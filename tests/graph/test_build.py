"""`build_graph` against a naive re-implementation that goes through the tables with loops."""

from collections import Counter
from dataclasses import replace

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import torch
from corpora import list_instances
from hypothesis import given
from hypothesis import strategies as st

from match_graph.corpus import Corpus, hierarchy_frame
from match_graph.datasets import Synthetic
from match_graph.errors import GraphError
from match_graph.graph import (
    BuiltGraph,
    DropFields,
    EgoSampler,
    TokenSpace,
    build_graph,
    metadata_fields,
)
from match_graph.graph.build import contract_hierarchy
from match_graph.typing import CITES, CONTAINS, MASKS, TAGGED

NUM_LABELS = 8
TYPES = ("venue", "author", "reference", "word", "label")


@pytest.fixture(params=["toy", "synthetic"])
def corpus(request: pytest.FixtureRequest, toy: Corpus, synthetic: Synthetic) -> Corpus:
    """A corpus that is small and dirty, and one with four hundred documents."""
    return toy if request.param == "toy" else synthetic.read()


@pytest.fixture
def built(corpus: Corpus) -> BuiltGraph:
    return build_graph(corpus)


def order_of(corpus: Corpus, name: str) -> tuple[list[str], Counter[str]]:
    """Ids by training frequency, descending, ties by id; and the frequencies."""
    splits = corpus.documents["split"].tolist()
    counts: Counter[str] = Counter()
    for split, values in zip(splits, list_instances(corpus, name), strict=True):
        counts.update(values if split == "train" else [])
    return sorted(corpus.instances[name]["id"], key=lambda value: (-counts[value], value)), counts


def named_edges(built: BuiltGraph, edge_type: tuple[str, str, str]) -> list[tuple[int, str]]:
    """(document, id) of every edge, in the order of the graph."""
    ids = built.tables[edge_type[2]]["id"].tolist()
    edges = built.data[edge_type].edge_index.t().tolist()
    return [(document, ids[node]) for document, node in edges]


@pytest.mark.parametrize("name", TYPES)
def test_BuiltGraph_nodes_are_ordered_by_training_frequency(
    corpus: Corpus, built: BuiltGraph, name: str
) -> None:
    """All instances of all splits, frequent first, ties by id, with their training counts."""
    ids, counts = order_of(corpus, name)
    assert built.tables[name]["id"].tolist() == ids
    assert built.data[name].num_nodes == len(ids)
    assert built.data[name].train_count.tolist() == [counts[value] for value in ids]
    assert built.data[name].train_count.dtype == torch.int32


@pytest.mark.parametrize("name", ["venue", "author", "reference"])
def test_BuiltGraph_metadata_edges_are_in_the_documents_order(
    corpus: Corpus, built: BuiltGraph, name: str
) -> None:
    """(document, has, FIELD) lists what the document lists, as it lists it."""
    expected = [
        (document, value)
        for document, values in enumerate(list_instances(corpus, name))
        for value in values
    ]
    assert named_edges(built, ("document", "has", name)) == expected


def test_BuiltGraph_words_are_a_sequence_with_positions(corpus: Corpus, built: BuiltGraph) -> None:
    """(document, contains, word) holds every occurrence, position counts from 0 per document."""
    store = built.data["document", "contains", "word"]
    expected = [
        (document, word, position)
        for document, words in enumerate(list_instances(corpus, "word"))
        for position, word in enumerate(words)
    ]
    edges = named_edges(built, ("document", "contains", "word"))
    assert [
        (*edge, position) for edge, position in zip(edges, store.position.tolist(), strict=True)
    ] == expected
    assert store.position.dtype == torch.int16
    assert built.notes["words_cut"] == 0


def test_build_graph_words_beyond_the_last_position_are_cut(
    toy: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first MAX_POSITIONS words stay, the rest is counted; training counts see all words."""
    monkeypatch.setattr("match_graph.graph.build.MAX_POSITIONS", 4)
    cut = build_graph(toy)
    words = list_instances(toy, "word")
    assert named_edges(cut, ("document", "contains", "word")) == [
        (document, word) for document, values in enumerate(words) for word in values[:4]
    ]
    assert cut.data["document", "contains", "word"].position.max() == 3
    assert cut.notes["words_cut"] == sum(max(0, len(values) - 4) for values in words) > 0


def test_build_graph_positions_fit_int16() -> None:
    """A text of 40,000 words keeps 32,767, with positions 0 to 32,766."""
    words = pd.DataFrame({"document": 0, "instance": range(40_000)}, dtype="int32")
    empty = pd.DataFrame({"document": [], "instance": []}, dtype="int32")
    corpus = Corpus(
        name="long",
        documents=pd.DataFrame({"id": ["d"], "split": ["train"]}),
        instances={
            "word": pd.DataFrame({"id": [f"w{number}" for number in range(40_000)]}),
            "label": pd.DataFrame({"id": pd.Series([], dtype=str)}),
        },
        edges={"word": words, "label": empty},
        hierarchy=hierarchy_frame([]),
    )
    built = build_graph(corpus)
    position = built.data["document", "contains", "word"].position
    assert position.tolist() == list(range(32_767))
    assert built.notes["words_cut"] == 40_000 - 32_767


def test_BuiltGraph_cites_are_references_that_resolve(corpus: Corpus, built: BuiltGraph) -> None:
    """A reference to a document of the corpus is an edge, to itself or to outside it is none."""
    number = {value: row for row, value in enumerate(corpus.documents["id"])}
    expected = [
        (document, number[value])
        for document, values in enumerate(list_instances(corpus, "reference"))
        for value in values
        if value in number and number[value] != document
    ]
    assert expected
    cites = built.data["document", "cites", "document"].edge_index
    assert list(map(tuple, cites.t().tolist())) == expected


def test_BuiltGraph_tagged_edges_are_training_gold_only(corpus: Corpus, built: BuiltGraph) -> None:
    """Every training label is an edge, no label of another split is."""
    splits = corpus.documents["split"].tolist()
    tagged = named_edges(built, ("document", "tagged", "label"))
    assert set(tagged) == {
        (document, label)
        for document, labels in enumerate(list_instances(corpus, "label"))
        for label in labels
        if splits[document] == "train"
    }
    assert len(tagged) == len(set(tagged))


def test_BuiltGraph_targets_hold_the_labels_of_all_splits(
    corpus: Corpus, built: BuiltGraph
) -> None:
    """One ascending list per document, whatever its split."""
    number = {value: row for row, value in enumerate(built.tables["label"]["id"])}
    targets = built.targets
    lists = targets.index.split(targets.ptr.diff().tolist())
    assert [labels.tolist() for labels in lists] == [
        sorted(number[label] for label in labels) for labels in list_instances(corpus, "label")
    ]
    assert targets.num_labels == len(number)
    assert (targets.ptr.dtype, targets.index.dtype) == (torch.int64, torch.int32)


def test_BuiltGraph_masks_are_the_splits(corpus: Corpus, built: BuiltGraph) -> None:
    """PyG's names for train, valid and test; every document in exactly one."""
    for split, mask in MASKS.items():
        assert built.data["document"][mask].tolist() == [
            value == split for value in corpus.documents["split"]
        ]


def test_BuiltGraph_hierarchy_is_contracted(toy_graph: BuiltGraph, toy: Corpus) -> None:
    """The node that no document carries is gone and counted; row 0 is the child."""
    ids = toy_graph.tables["label"]["id"].tolist()
    edges = toy_graph.data["label", "is_a", "label"].edge_index.t().tolist()
    named = sorted((ids[child], ids[parent]) for child, parent in edges)
    read = set(zip(toy.hierarchy["child"], toy.hierarchy["parent"], strict=True))
    expected = (read - {("methods", "science"), ("kernels", "methods")}) | {("kernels", "science")}
    assert named == sorted(expected)
    assert toy_graph.notes["hierarchy_nodes_contracted"] == 1
    assert toy_graph.notes["hierarchy_edges_read"] == 8


def test_BuiltGraph_labels_outside_training_are_labels_too(toy_graph: BuiltGraph) -> None:
    """A label seen on test alone is a node without training count."""
    table = toy_graph.tables["label"]
    assert table["id"].tolist()[-1] == "cells"
    assert toy_graph.data["label"].train_count.tolist()[-1] == 0


def test_build_graph_corpus_without_hierarchy_or_metadata_builds(toy: Corpus) -> None:
    """Only words and labels: no metadata type, no cites, no is_a edge."""
    corpus = Corpus(
        "bare",
        toy.documents,
        {name: toy.instances[name] for name in ("word", "label")},
        {name: toy.edges[name] for name in ("word", "label")},
        hierarchy_frame([]),
    )
    data = build_graph(corpus).data
    assert data.node_types == ["document", "word", "label"]
    assert {edge_type[1] for edge_type in data.edge_types} == {"contains", "tagged", "is_a"}
    assert data["label", "is_a", "label"].edge_index.shape == (2, 0)


def test_BuiltGraph_edges_int32_contiguous_and_sorted_by_source(built: BuiltGraph) -> None:
    """PyG's layers take int32; samplers read sorted edges without a copy."""
    assert built.data.validate()
    for edge_type in built.data.edge_types:
        edge_index = built.data[edge_type].edge_index
        assert edge_index.dtype == torch.int32, edge_type
        assert edge_index.is_contiguous(), edge_type
        assert (edge_index[0].diff() >= 0).all(), edge_type


def test_BuiltGraph_holds_tensors_and_numbers_only(built: BuiltGraph) -> None:
    """A list of names in `data` would make PyG's loaders fail."""
    for store in built.data.stores:
        for key, value in store.items():
            assert isinstance(value, torch.Tensor | int), key


def test_build_graph_corpus_is_not_changed(toy: Corpus) -> None:
    """Building reads the tables and nothing else."""
    before = {name: frame.copy() for name, frame in {**toy.instances, **toy.edges}.items()}
    build_graph(toy)
    for name, frame in before.items():
        assert {**toy.instances, **toy.edges}[name].equals(frame)


@st.composite
def dag_edges(draw: st.DrawFn) -> list[tuple[int, int]]:
    """(child, parent) edges that follow a random order of the labels, so without a cycle."""
    order = draw(st.permutations(range(NUM_LABELS)))
    pairs = st.tuples(st.integers(0, NUM_LABELS - 1), st.integers(0, NUM_LABELS - 1))
    chosen = draw(st.lists(pairs.filter(lambda pair: pair[0] != pair[1]), max_size=14, unique=True))
    return list(dict.fromkeys((order[max(pair)], order[min(pair)]) for pair in chosen))


@given(dag_edges(), st.sets(st.integers(0, NUM_LABELS - 1)))
def test_contract_hierarchy_contraction_joins_nearest_kept(
    edges: list[tuple[int, int]], dropped: set[int]
) -> None:
    """Contraction joins the nearest kept ancestors.

    An edge for every upward path between kept labels whose inner nodes are all left out.
    """
    kept = [f"l{label}" for label in range(NUM_LABELS) if label not in dropped]
    frame = hierarchy_frame([(f"l{child}", f"l{parent}", "") for child, parent in edges])
    pairs, num_dropped = contract_hierarchy(frame, kept)

    def nearest(label: int) -> set[int]:
        found: set[int] = set()
        for parent in (parent for child, parent in edges if child == label):
            found |= {parent} if parent not in dropped else nearest(parent)
        return found

    expected = {
        (f"l{child}", f"l{parent}")
        for child in range(NUM_LABELS)
        if child not in dropped
        for parent in nearest(child)
    }
    assert set(pairs) == expected
    assert len(pairs) == len(expected)
    assert num_dropped == len(dropped & {label for edge in edges for label in edge})


@given(dag_edges(), st.sets(st.integers(0, NUM_LABELS - 1)))
def test_contract_hierarchy_contraction_keeps_who_is_above_whom(
    edges: list[tuple[int, int]], dropped: set[int]
) -> None:
    """Between kept labels, reachability is the same before and after."""
    kept = {f"l{label}" for label in range(NUM_LABELS) if label not in dropped}
    named = [(f"l{child}", f"l{parent}") for child, parent in edges]
    frame = hierarchy_frame([(*pair, "") for pair in named])
    before = nx.DiGraph(named)
    after = nx.DiGraph(contract_hierarchy(frame, sorted(kept))[0])
    for label in kept & set(before):
        above = nx.descendants(after, label) if label in after else set()
        assert above == nx.descendants(before, label) & kept


@pytest.fixture
def featured(toy: Corpus) -> Corpus:
    """The toy corpus with features of every type that are a code of its row, times, attributes."""
    rows = {"document": toy.num_documents, **{k: len(v) for k, v in toy.instances.items()}}
    features = {name: np.arange(2.0 * rows[name]).reshape(-1, 2) for name in rows}
    features["word"] = features["word"].astype(np.float16)
    edges = {
        name: table.assign(weight=np.arange(len(table)), twice=2.0 * np.arange(len(table)))
        for name, table in toy.edges.items()
    }
    documents = toy.documents.assign(time=np.arange(toy.num_documents) - 5)
    return replace(toy, documents=documents, edges=edges, features=features)


def test_BuiltGraph_features_follow_their_nodes(featured: Corpus) -> None:
    """By id, in the graph's order; documents stay as they are."""
    built = build_graph(featured)
    for name, table in {"document": featured.documents, **featured.instances}.items():
        by_id = dict(zip(table["id"], featured.features[name].tolist(), strict=True))
        x = built.data[name].x
        assert x.tolist() == [by_id[value] for value in built.tables[name]["id"]]
        assert x.dtype == (torch.float16 if name == "word" else torch.float32)
    assert built.data["document"].time.tolist() == [*range(-5, featured.num_documents - 5)]
    assert built.data["document"].time.dtype == torch.int64


def test_BuiltGraph_attributes_follow_their_edges(featured: Corpus) -> None:
    """Also where edges are left out: of citations outside and of gold labels of other splits."""
    built = build_graph(featured)
    for edge_type in built.data.edge_types:
        if edge_type == ("label", "is_a", "label"):
            continue
        name = "reference" if edge_type == CITES else edge_type[2]
        ids = built.tables[edge_type[2]]["id"].tolist()
        table, names = featured.edges[name], featured.instances[name]["id"].tolist()
        expected = {
            (document, names[instance]): [weight, twice]
            for document, instance, weight, twice in table.itertuples(index=False)
        }
        store = built.data[edge_type]
        assert store.edge_attr.dtype == torch.float32
        for (document, node), row in zip(
            store.edge_index.t().tolist(), store.edge_attr.tolist(), strict=True
        ):
            if edge_type == CONTAINS:  # words repeat
                assert names[table["instance"].iloc[int(row[0])]] == ids[node]
            else:
                assert expected[document, ids[node]] == row
    assert built.data[TAGGED].edge_attr.size(0) < len(featured.edges["label"])


def test_DropFields_drops_features_and_attributes_of_a_field(featured: Corpus) -> None:
    """What stays keeps its own."""
    data = DropFields(["author", "reference"])(build_graph(featured).data)
    assert data.validate()
    assert {*data.collect("x")} == {"document", "venue", "word", "label"}
    assert CITES not in data.edge_types
    assert data["document", "has", "venue"].edge_attr.size(1) == 2


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
