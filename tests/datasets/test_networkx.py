"""Corpora of networkx graphs."""

from typing import Any

import networkx as nx
import numpy as np
import pytest
import torch

from match_graph.datasets import from_networkx
from match_graph.errors import CorpusError
from match_graph.graph import build_graph


def make_graph() -> "nx.DiGraph[str]":
    """Documents with authors, labels in a hierarchy, and citations."""
    graph: nx.DiGraph[str] = nx.DiGraph()
    for label in ("top", "left", "right"):
        graph.add_node(label, type="label", name=label.upper())
    graph.add_edges_from([("left", "top"), ("right", "top")], type="is_a")
    splits = ["train", "train", "train", "dev", "test"]
    for number in range(10):
        name = f"d{number}"
        graph.add_node(
            name, type="document", text=f"text {number}", split=splits[number % 5], time=number,
            x=[number, 1],
        )  # fmt: skip
        graph.add_node(f"a{number % 3}", type="person")
        graph.add_edge(f"a{number % 3}", name, type="wrote", weight=number / 2)
        graph.add_edge(name, ("left", "right")[number % 2], type="tagged")
        graph.add_edge(name, "top", type="tagged")
        if number:
            graph.add_edge(name, f"d{number - 1}", type="cites")
    return graph


def test_from_networkx_types_become_a_corpus() -> None:
    """Types become fields, citations, labels and hierarchy; attributes are read."""
    corpus = from_networkx(make_graph())
    assert corpus.warnings == []
    assert corpus.fields == ["person", "reference"]
    assert corpus.documents["id"].tolist() == [f"d{one}" for one in range(10)]
    assert corpus.documents["split"].tolist() == ["train"] * 3 + ["valid", "test"] + [
        "train", "train", "train", "valid", "test"
    ]  # fmt: skip
    built = build_graph(corpus)
    assert built.data["document"].x.tolist() == [[one, 1] for one in range(10)]
    assert built.data["document"].time.tolist() == [*range(10)]
    assert built.data["document", "has", "person"].edge_attr.view(-1).tolist() == [
        one / 2 for one in range(10)
    ]
    assert built.tables["label"].set_index("id")["name"].to_dict() == {
        "top": "TOP", "left": "LEFT", "right": "RIGHT"
    }  # fmt: skip
    assert built.data["label", "is_a", "label"].edge_index.size(1) == 2
    cites = built.data["document", "cites", "document"].edge_index
    assert torch.equal(cites, torch.stack([torch.arange(1, 10), torch.arange(9)]).int())


def test_from_networkx_undirected_graph_with_labels_as_attribute() -> None:
    """Undirected citations lead both ways; labels may be a string or a list."""
    graph = nx.Graph(make_graph().subgraph([f"d{one}" for one in range(10)] + ["a0", "a1", "a2"]))
    for number in range(10):
        graph.nodes[f"d{number}"]["tags"] = ["one", "two"] if number % 2 else "one"
    corpus = from_networkx(graph, labels="tags")
    assert corpus.instances["label"]["id"].tolist() == ["one", "two"]
    assert len(corpus.edges["label"]) == 15
    assert len(corpus.edges["reference"]) == 18
    assert corpus.edges["person"].shape == (10, 3)


def _set(node: Any, **values: Any) -> Any:
    def spoil(graph: "nx.DiGraph[Any]") -> None:
        graph.add_node(node, **values)

    return spoil


@pytest.mark.parametrize(
    ("spoil", "fault"),
    [
        (
            lambda graph: graph.add_nodes_from(["new", "newer"]),
            "every node must have its type in 'type', but 2 of 18 have none, such as 'new'; name "
            "another attribute by key.",
        ),
        (_set("d1", split="x"), "split must be one of ['train', 'training', 'valid',"),
        (_set("d1", time=0.5), "time must be an integer of every document, or of none."),
        (
            _set("d1", x=[1, 2, 3]),
            "x must be given for all nodes of the type 'document', as equally many numbers, or for "
            "none.",
        ),
        (
            lambda graph: graph.add_edge("a0", "d0", weight="heavy"),
            "weight must be a number of every edge ('person', 'wrote', 'document'), or of none.",
        ),
        (_set("d1", time=2**70), "time must be an integer of every document, or of none."),
        (
            lambda graph: graph.add_edge("a0", "d0", type="wrote", position=0),
            "position must be an integer of every edge ('person', 'wrote', 'document'), or of none",
        ),
        (
            lambda graph: graph.add_edge("a0", "a1"),
            "every type must be joined to 'document', or be the hierarchy of the labels, but "
            "('person', 'to', 'person') have no place in a corpus; leave them out by drop=[...].",
        ),
    ],
)
def test_from_networkx_fault_is_one_sentence(spoil: Any, fault: str) -> None:
    """Each fault is one sentence with what must hold and what was found."""
    graph = make_graph()
    spoil(graph)
    with pytest.raises(CorpusError) as caught:
        from_networkx(graph)
    assert fault in str(caught.value)


@pytest.mark.parametrize(
    ("graph", "arguments", "fault"),
    [
        (3, {}, "A networkx graph must be readable as a corpus: it must be a Graph, found int."),
        (make_graph(), {"document": "paper"}, "it must have nodes of the type 'paper', found"),
        (make_graph(), {"labels": "tags"}, "labels must name a node type or an attribute of"),
        (nx.Graph(make_graph()), {}, "edges between labels must point from child to parent, but"),
    ],
)
def test_from_networkx_wrong_argument_is_one_sentence(
    graph: Any, arguments: Any, fault: str
) -> None:
    """A wrong argument is one sentence with the choices."""
    with pytest.raises(CorpusError) as caught:
        from_networkx(graph, **arguments)
    assert fault in str(caught.value)


def test_from_networkx_words_stand_by_their_positions() -> None:
    """Words are in the order of their positions, although networkx groups parallel edges."""
    graph: nx.MultiDiGraph[str] = nx.MultiDiGraph()
    graph.add_node("d", type="document", split="train", tags=["x"])
    for word in "abc":
        graph.add_node(word, type="word")
    for position, word in [(3, "a"), (1, "b"), (0, "a"), (2, "c")]:
        graph.add_edge("d", word, type="contains", position=position)
    corpus = from_networkx(graph, labels="tags")
    ids = corpus.instances["word"]["id"]
    assert ids[corpus.edges["word"]["instance"]].tolist() == ["a", "b", "c", "a"]


def test_from_networkx_undirected_edges_start_at_documents() -> None:
    """Undirected edges start at the document, whichever end was added first."""
    graph: nx.Graph[str] = nx.Graph()
    for number in range(4):
        name = f"d{number}"
        graph.add_node(name, type="document", split="train", tags=["x"])
        for position, word in enumerate(["beta", "alpha"]):
            graph.add_node(word, type="word")
            graph.add_edge(name, word, position=position)
        for position, author in enumerate(["ann", f"bob{number}"]):
            graph.add_node(author, type="author")
            graph.add_edge(name, author, position=position)
    corpus = from_networkx(graph, labels="tags")
    assert corpus.warnings == []
    for field, expected in (("word", "alpha"), ("author", "bob3")):
        ids = corpus.instances[field]["id"]
        listed = ids[corpus.edges[field]["instance"]].tolist()
        assert len(listed) == 8
        assert listed[-1] == expected
    assert build_graph(corpus).notes["repeated_values_dropped"] == 0


def test_from_networkx_labels_of_a_set_are_in_order() -> None:
    """Labels of a set are sorted, as its order changes between processes."""
    graph: nx.DiGraph[str] = nx.DiGraph()
    tags = {f"label {number}" for number in range(20)}
    graph.add_node("d0", type="document", split="train", tags=tags)
    corpus = from_networkx(graph, labels="tags")
    assert corpus.instances["label"]["id"].tolist() == sorted(tags)


@pytest.mark.parametrize("tags", [np.array([2, 7]), [np.int64(2), np.int64(7)], (2.0, "7")])
def test_from_networkx_labels_of_numpy(tags: Any) -> None:
    """Arrays and numbers of NumPy are labels; NaN is a missing one."""
    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_node("d0", type="document", split="train", tags=tags)
    graph.add_node("d1", type="document", split="train", tags=np.int64(7))
    graph.add_node("d2", type="document", split="train", tags=float("nan"))
    corpus = from_networkx(graph, labels="tags")
    assert corpus.instances["label"]["id"].tolist() == ["2", "7"]
    assert corpus.edges["label"]["document"].tolist() == [0, 0, 1]


def test_from_networkx_warns_of_attributes_left_out() -> None:
    """Attributes that are not read are named, but not those of dropped types."""
    graph = make_graph()
    graph.nodes["d1"]["year"], graph.nodes["a0"]["split"] = 2001, "train"
    graph.nodes["a1"]["name"] = graph.nodes["top"]["weight"] = 7
    graph.edges["d1", "d0"]["since"] = 2002
    graph.add_node("place", type="place", country="CH")
    graph.add_edge("d1", "place", distance=3)
    corpus = from_networkx(graph, drop=["place"])
    assert corpus.warnings == [
        "left out attributes that have no place in a corpus: ['label.weight', 'document.year', "
        "'person.split', 'person.name', \"('document', 'cites', 'document').since\"]"
    ]


def test_from_networkx_text_that_is_no_string() -> None:
    graph = nx.DiGraph()
    graph.add_node("d0", type="document", text="first")
    graph.add_node("d1", type="document", text=5)
    graph.add_edge("d0", "l", type="tagged")
    graph.add_node("l", type="label")
    with pytest.raises(CorpusError) as caught:
        from_networkx(graph)
    assert str(caught.value) == (
        "A HeteroData must be readable as a corpus: the texts of 'document' must be 2 strings, one "
        "per node, found 5 among them."
    )
