"""A `HeteroData` as a corpus: round trips, PyG's own layouts, and refusals."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Data, HeteroData
from torch_geometric.transforms import ToUndirected

from match_graph.corpus import Corpus
from match_graph.corpus_builder import CorpusBuilder
from match_graph.datasets import from_hetero, open_dataset
from match_graph.datasets.options import SplitConfig
from match_graph.errors import ConfigError, CorpusError
from match_graph.graph import BuiltGraph, build_graph
from match_graph.typing import SPLITS, TAGGED


def give_back(built: BuiltGraph) -> Corpus:
    """Inverse of `build_graph`: the corpus of a built graph with all gold labels."""
    data = built.data.clone()
    targets = built.targets
    y = torch.zeros(len(targets.ptr) - 1, targets.num_labels, dtype=torch.bool)
    y[torch.arange(len(y)).repeat_interleave(targets.ptr.diff()), targets.index.long()] = True
    data["document"].y = y
    if "x" in data["label"]:
        del data["label"].x
    names = {name: table["id"].tolist() for name, table in built.tables.items()}
    names["y"] = names.pop("label")
    return from_hetero(
        data, hierarchy=data["label", "is_a", "label"].edge_index, names=names, drop=["label"]
    )


def assert_same_graph(one: HeteroData, other: HeteroData) -> None:
    assert {*one.node_types} == {*other.node_types}
    assert {*one.edge_types} == {*other.edge_types}
    for first, second in zip(
        [one[name] for name in (*one.node_types, *one.edge_types)],
        [other[name] for name in (*one.node_types, *one.edge_types)],
        strict=True,
    ):
        for key, value in first.items():
            if first._key == TAGGED:  # a set
                assert pairs(value) == pairs(second[key])
            elif isinstance(value, torch.Tensor):
                assert torch.equal(value, second[key]), (first._key, key)
            else:
                assert value == second[key]


words = st.lists(st.sampled_from("abc"), max_size=4)
documents = st.lists(
    st.tuples(
        words, st.lists(st.sampled_from("uvw"), max_size=3), st.sets(st.integers(0, 3)), words
    ),
    min_size=1,
    max_size=6,
)


@settings(max_examples=25)
@given(documents, st.lists(st.sampled_from(SPLITS), min_size=6, max_size=6))
def test_from_hetero_gives_a_built_graph_back(rows: list[Any], splits: list[str]) -> None:
    """Any corpus makes a round trip: nodes, edges, order, x, times, attributes, gold labels."""
    builder = CorpusBuilder("any", ["author", "reference"], "It must be a corpus")
    for number, (text, authors, cited, labels) in enumerate(rows):
        metadata = {"author": authors, "reference": [f"d{one}" for one in sorted(cited)]}
        split = splits[number] if number else "train"
        builder.add(f"d{number}", split, " ".join(text), metadata, labels, "", number - 2)
    corpus = builder.build([("a", "b", ""), ("b", "c", "")])
    features = {
        name: np.arange(2.0 * len(table)).reshape(-1, 2)
        for name, table in {"document": corpus.documents, **corpus.instances}.items()
        if name != "label"
    }
    edges = {
        name: table if name == "label" else table.assign(weight=np.arange(len(table)))
        for name, table in corpus.edges.items()
    }
    built = build_graph(replace(corpus, features=features, edges=edges))
    again = build_graph(give_back(built))
    assert_same_graph(built.data, again.data)
    assert torch.equal(built.targets.ptr, again.targets.ptr)
    assert torch.equal(built.targets.index, again.targets.index)


def test_from_hetero_gives_the_toy_graph_back(toy: Corpus) -> None:
    """The toy corpus makes a round trip, with a hierarchy of diamonds and labels by id."""
    built = build_graph(toy)
    again = build_graph(give_back(built))
    assert_same_graph(built.data, again.data)
    assert again.tables["label"]["id"].tolist() == built.tables["label"]["id"].tolist()


def random_edges(head: int, tail: int, number: int = 120, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    edges = [torch.randint(size, (number,), generator=generator) for size in (head, tail)]
    return torch.stack(edges).unique(dim=1)


def make_graph() -> HeteroData:
    """Movies with directors, actors and keywords, in the layout of PyG's IMDB and OGB."""
    data = HeteroData()
    data["movie"].x, data["movie"].y = torch.rand(40, 3), torch.arange(40).view(-1, 1) % 4
    data["movie"].year = torch.arange(40).view(-1, 1)
    masks = torch.arange(40) % 4
    data["movie"].train_mask, data["movie"].val_mask = masks < 2, masks == 2
    data["movie"].test_mask = masks == 3
    data["director"].x = torch.rand(8, 2, dtype=torch.float64)
    data["actor"].num_nodes = 9
    data["movie", "to", "director"].edge_index = random_edges(40, 8)
    data["actor", "to", "movie"].edge_index = random_edges(9, 40)
    data["actor", "to", "movie"].edge_attr = torch.rand(
        data["actor", "to", "movie"].edge_index.size(1), 2
    )
    data["movie", "follows", "movie"].edge_index = random_edges(40, 40, 30)
    return data


def pairs(edge_index: torch.Tensor) -> set[tuple[int, ...]]:
    return {*map(tuple, edge_index.t().tolist())}


def test_from_hetero_edges_are_fields_whichever_way_they_point() -> None:
    """Edges of either direction are fields, those between documents citations."""
    data = make_graph()
    corpus = from_hetero(data, time="year")
    assert corpus.fields == ["director", "actor", "reference"]
    assert corpus.warnings == []
    actor = corpus.edges["actor"]
    edges = data["actor", "to", "movie"]
    expected = {
        (movie, one): row
        for (one, movie), row in zip(edges.edge_index.t().tolist(), edges.edge_attr, strict=True)
    }
    found = {
        (document, one): torch.tensor(row, dtype=torch.float32)
        for document, one, *row in actor.itertuples(index=False)
    }
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[key], expected[key]) for key in found)
    assert corpus.features["director"].dtype == np.float32
    assert corpus.documents["time"].tolist() == [*range(40)]
    assert corpus.documents["split"].tolist() == ["train", "train", "valid", "test"] * 10
    assert corpus.edges["label"]["document"].tolist() == [*range(40)]
    graph = build_graph(corpus).data
    follows = {(a, b) for a, b in pairs(data["movie", "follows", "movie"].edge_index) if a != b}
    assert pairs(graph["document", "cites", "document"].edge_index) == follows
    assert torch.equal(graph["document"].x, data["movie"].x)


def test_from_hetero_reads_nodes_that_only_edges_name() -> None:
    """A node type without a store is read from its edges; the input is not changed."""
    data = make_graph()
    by = torch.tensor([[0, 0, 1, 3], [2, 5, 2, 0]])
    data["movie", "by", "writer"].edge_index = by
    corpus = from_hetero(data)
    assert "writer" not in data.node_types
    names = corpus.instances["writer"]["id"].tolist()
    found = {(a, names[b]) for a, b, *_ in corpus.edges["writer"].itertuples(index=False)}
    assert found == {(0, "2"), (0, "5"), (1, "2"), (3, "0")}
    assert "writer" not in from_hetero(data, drop=["writer"]).fields


@pytest.mark.parametrize("merge", [True, False])
def test_from_hetero_reverse_edges_count_once(merge: bool) -> None:
    """Reverses of ToUndirected count once; merged citations are of both directions."""
    data = make_graph()
    plain = from_hetero(data)
    both = from_hetero(ToUndirected(merge=merge)(data.clone()))
    assert both.fields == plain.fields
    assert any("point both ways" in one for one in both.warnings) == merge
    assert not any("point both ways" in one for one in plain.warnings)
    for name in ("director", "actor", *([] if merge else ["reference"])):
        assert {*both.edges[name].itertuples(index=False, name=None)} == {
            *plain.edges[name].itertuples(index=False, name=None)
        }
    edges = torch.tensor([[0, 0, 1], [5, 5, 2]])
    data["movie", "to", "director"].edge_index = edges
    data["director", "rev_to", "movie"].edge_index = edges.flip(0)
    assert from_hetero(data).notes == {"repeated_values_dropped": 1}
    del data["director", "rev_to", "movie"]
    data["movie", "rev_to", "director"].edge_index = torch.tensor([[7], [3]])  # of its own
    assert (7, 3) in {*from_hetero(data).edges["director"].itertuples(index=False, name=None)}
    data["movie", "rev_up", "movie"].edge_index = torch.tensor([[7], [3]])  # of no other either
    assert "'rev_up'" in from_hetero(data).warnings[-1]


def test_from_hetero_reverse_edges_must_be_reverses() -> None:
    """Edges that are only named like a reverse are refused."""
    data = make_graph()
    data["movie", "cites", "movie"].edge_index = torch.tensor([[0, 0, 1], [1, 1, 2]])
    data["movie", "rev_cites", "movie"].edge_index = torch.tensor([[2, 1], [1, 0]])
    assert "reference" in from_hetero(data).fields
    data["movie", "rev_cites", "movie"].edge_index = torch.tensor([[2, 1], [1, 3]])
    with pytest.raises(CorpusError) as caught:
        from_hetero(data)
    assert str(caught.value) == (
        "A HeteroData must be readable as a corpus: ('movie', 'rev_cites', 'movie') must be the "
        "edges ('movie', 'cites', 'movie') turned round, as by T.ToUndirected(merge=False), but "
        "they are others; rename it, or drop one of both."
    )


def test_from_hetero_drops_edges_with_their_reverses() -> None:
    """A dropped edge type takes its reverse along, unless that is the hierarchy."""
    data = make_graph()
    data["movie", "cites", "movie"].edge_index = torch.tensor([[0, 1], [1, 2]])
    data["movie", "of", "genre"].edge_index = torch.tensor([[0, 1, 2], [0, 1, 2]])
    data["genre", "parent_of", "genre"].edge_index = torch.tensor([[0, 0], [1, 2]])
    del data["movie", "follows", "movie"]
    cites, parent_of = ("movie", "cites", "movie"), ("genre", "parent_of", "genre")
    data = ToUndirected(merge=False)(data)
    found = from_hetero(data, labels="genre", drop=[cites, parent_of])
    assert (found.fields, found.hierarchy.empty) == (["director", "actor"], True)
    reverse = ("genre", "rev_parent_of", "genre")
    kept = from_hetero(data, labels="genre", drop=[parent_of], hierarchy=reverse).hierarchy
    assert {*kept[["child", "parent"]].itertuples(index=False, name=None)} == {
        ("1", "0"), ("2", "0")
    }  # fmt: skip
    data["movie", "rev_cites", "movie"].edge_index = torch.tensor([[3], [1]])  # of its own
    assert "reference" in from_hetero(data, labels="genre", drop=[cites]).fields


def test_from_hetero_hierarchy_may_be_a_reverse() -> None:
    """If edges lead from parents to children, the hierarchy is their reverse."""
    data = make_graph()
    data["movie", "of", "genre"].edge_index = torch.tensor([[0, 1, 2], [0, 1, 2]])
    data["genre", "parent_of", "genre"].edge_index = torch.tensor([[0, 0], [1, 2]])
    del data["movie"].y
    both = ToUndirected(merge=False)(data)
    corpus = from_hetero(both, "movie", "genre", hierarchy=("genre", "rev_parent_of", "genre"))
    assert corpus.hierarchy[["child", "parent"]].to_numpy().tolist() == [["1", "0"], ["2", "0"]]
    assert from_hetero(both, "movie", "genre").hierarchy["child"].tolist() == ["0", "0"]


def test_from_hetero_types_without_a_place_are_named(tmp_path: Any) -> None:
    """Types without a role, as in PyG's DBLP, are named, and may be dropped."""
    data = HeteroData()
    data["author"].y, data["author"].x = torch.arange(30) % 3, torch.rand(30, 2)
    data["paper"].x = torch.rand(40, 3)
    data["term"].num_nodes, data["conference"].num_nodes = 10, 5
    for tail, size in (("author", 30), ("term", 10), ("conference", 5)):
        data["paper", "to", tail].edge_index = random_edges(40, size)
        data[tail, "to", "paper"].edge_index = random_edges(40, size).flip(0)
    with pytest.raises(CorpusError) as caught:
        from_hetero(data)
    assert str(caught.value) == (
        "A HeteroData must be readable as a corpus: every type must be joined to 'author', or be "
        "the hierarchy of the labels, but ('paper', 'to', 'term'), ('term', 'to', 'paper'), "
        "('paper', 'to', 'conference'), ('conference', 'to', 'paper'), 'term', 'conference' have "
        "no place in a corpus; leave them out by drop=[...]."
    )
    corpus = from_hetero(data, drop=["term", "conference"])
    assert corpus.fields == ["paper_node"]
    assert corpus.warnings == [
        "the node type 'paper' became the field 'paper_node', as its own name is taken or has "
        "other characters than letters, digits and single underscores"
    ]
    assert corpus.features["paper_node"].shape == (40, 3)
    assert open_dataset(corpus, root=tmp_path)[0]["paper_node"].x.shape == (40, 3)


def test_from_hetero_without_masks_is_split_by_seed() -> None:
    """Without masks documents are split by hash; so is a missing validation mask."""
    data = make_graph()
    for mask in ("train_mask", "val_mask", "test_mask"):
        del data["movie"][mask]
    split = from_hetero(data, seed=3).documents["split"].tolist()
    assert split == [SplitConfig(seed=3).choose_split(str(one), "") for one in range(40)]
    texts = [f"text {one}" for one in range(40)]
    split = from_hetero(data, text=texts, seed=3).documents["split"].tolist()
    assert split == [SplitConfig(seed=3).choose_split("", one) for one in texts]
    data = make_graph()
    data["movie"].train_mask |= data["movie"].val_mask
    del data["movie"].val_mask
    splits = from_hetero(data).documents["split"]
    assert (splits == "test").sum() == 10
    assert 0 < (splits == "valid").sum() < 10


def test_from_hetero_documents_of_no_mask_are_left_out() -> None:
    """Documents in no mask are left out with a warning, but stay as references."""
    data = make_graph()
    data["movie"].val_mask = torch.arange(40) == 2
    plain, corpus = from_hetero(make_graph()), from_hetero(data)
    assert corpus.num_documents == 31
    assert corpus.warnings[0] == ("left out 9 of 40 documents, which are in none of the masks")
    ids = corpus.documents["id"]
    assert corpus.features["document"].tolist() == data["movie"].x[ids.astype(int)].tolist()

    def name(one: Corpus, field: str) -> set[tuple[str, str]]:
        edges, nodes = one.edges[field], one.instances[field]["id"]
        head = one.documents["id"].to_numpy()[edges["document"]]
        return {*zip(head, nodes.to_numpy()[edges["instance"]], strict=True)}

    for field in ("director", "reference", "label"):
        assert name(corpus, field) == {
            (head, tail) for head, tail in name(plain, field) if head in {*ids}
        }
    data["movie"].y = torch.arange(40).view(-1, 1)
    assert {*from_hetero(data).instances["label"]["id"]} == {*ids}


def test_from_hetero_labels_may_be_nodes_with_a_hierarchy() -> None:
    """Labels may be nodes; only those on documents are labels of the corpus."""
    data = make_graph()
    del data["movie"].y
    data["movie"].text = [f"w{one % 3} movie" for one in range(40)]
    data["genre"].x = torch.eye(4)
    data["genre"].name = ["top", "crime", "heist", "none"]
    data["movie", "is", "genre"].edge_index = torch.tensor([[*range(40)], [2, 1] * 20])
    data["genre", "below", "genre"].edge_index = torch.tensor([[2, 1, 3], [1, 0, 0]])
    names = {"genre": ["t", "c", "h", "n"]}
    corpus = from_hetero(data, "movie", "genre", names=names)
    assert corpus.instances["label"].to_dict("list") == {
        "id": ["c", "h"], "name": ["crime", "heist"]
    }  # fmt: skip
    assert corpus.features["label"].tolist() == torch.eye(4)[1:3].tolist()
    graph = build_graph(corpus)
    ids = graph.tables["label"]["id"]
    child, parent = graph.data["label", "is_a", "label"].edge_index
    assert [(ids[int(child)], ids[int(parent)])] == [("h", "c")]
    pairs = data["genre", "below", "genre"].edge_index
    del data["genre", "below", "genre"]
    same = from_hetero(data, "movie", "genre", hierarchy=pairs, names=names)
    assert same.hierarchy.equals(corpus.hierarchy)
    assert corpus.documents["text"][0] == "w0 movie"
    assert sorted(corpus.instances["word"]["id"]) == ["movie", "w0", "w1", "w2"]
    texts = [f"x{one}" for one in range(40)]
    assert from_hetero(data, "movie", "genre", text=texts).documents["text"].tolist() == texts


def test_from_hetero_takes_one_hierarchy_alone() -> None:
    """Two relations between labels need a choice; indices replace that of the graph."""
    data = make_graph()
    del data["movie"].y
    data["genre"].num_nodes = 4
    data["movie", "is", "genre"].edge_index = torch.tensor([[*range(40)], [2, 1] * 20])
    data["genre", "below", "genre"].edge_index = pairs = torch.tensor([[2], [1]])
    with pytest.raises(CorpusError, match=r"but \('genre', 'below', 'genre'\) have no place"):
        from_hetero(data, "movie", "genre", hierarchy=pairs)
    data["genre", "beside", "genre"].edge_index = pairs.flip(0)
    both = r"\('genre', 'below', 'genre'\), \('genre', 'beside', 'genre'\)"
    with pytest.raises(CorpusError, match=f"but {both} have no place"):
        from_hetero(data, "movie", "genre")


def test_from_hetero_labels_of_some_documents() -> None:
    """Labels of some documents alone, as in PyG's AMiner, and negative class indices."""
    data = make_graph()
    data["movie"].y, data["movie"].y_index = torch.tensor([2, 0]), torch.tensor([7, 3])
    corpus = from_hetero(data, names={"y": ["zero", "one", "two"]})
    ids = corpus.instances["label"]["id"]
    edges = corpus.edges["label"].itertuples(index=False, name=None)
    assert [(one, ids[label]) for one, label in edges] == [(3, "zero"), (7, "two")]
    data["movie"].y, data["movie"].y_index = torch.full((40,), -1), torch.arange(40)
    data["movie"].y[5] = 0
    assert from_hetero(data).edges["label"]["document"].tolist() == [5]


def test_from_hetero_says_what_it_leaves_out() -> None:
    """Attributes without a role and differing edge types are warned of."""
    data = make_graph()
    data["director"].born = torch.arange(8)
    data["director", "knows", "movie"].edge_index = torch.tensor([[0], [0]])
    warnings = from_hetero(data).warnings
    assert warnings == [
        "left out attributes that have no place in a corpus: ['movie.year', 'director.born']",
        "the edge types [('movie', 'to', 'director'), ('director', 'knows', 'movie')] have other "
        "edges each, and became one field, 'director'",
    ]


def test_from_hetero_says_what_documents_and_labels_lose() -> None:
    """Names of documents and attributes of the hierarchy's edges are warned of."""
    data = make_graph()
    data["movie"].name, data["movie"].year = ["title"] * 40, torch.arange(40)
    data["genre"].num_nodes = 2
    data["movie", "of", "genre"].edge_index = torch.tensor([[0, 1], [0, 1]])
    data["movie", "of", "genre"].edge_attr = torch.ones(2, 1)
    data["genre", "is_a", "genre"].edge_index = torch.tensor([[1], [0]])
    data["genre", "is_a", "genre"].edge_attr = torch.ones(1, 1)
    assert from_hetero(data, "movie", "genre", time="year").warnings == [
        "left out attributes that have no place in a corpus: ['movie.y', 'movie.name', "
        "\"('genre', 'is_a', 'genre').edge_attr\"]",
    ]


def test_from_hetero_several_document_relations_warn() -> None:
    """Several citation relations are merged with a warning, unless they are equal."""
    data = make_graph()
    data["movie", "follows", "movie"].edge_index = torch.tensor([[0, 1], [1, 2]])
    assert not any("became one" in one for one in from_hetero(data).warnings)
    data["movie", "similar", "movie"].edge_index = torch.tensor([[0], [3]])
    corpus = from_hetero(data)
    assert len(corpus.edges["reference"]) == 3
    assert corpus.warnings[-1] == (
        "the edge types [('movie', 'follows', 'movie'), ('movie', 'similar', 'movie')] between "
        "documents became one, citations; drop=[...] leaves some of them out"
    )


def _set(node_type: Any, **values: Any) -> Callable[[HeteroData], None]:
    def spoil(data: HeteroData) -> None:
        for key, value in values.items():
            data[node_type][key] = value

    return spoil


EDGE = ("movie", "to", "director")


@pytest.mark.parametrize(
    ("spoil", "fault"),
    [
        (
            _set("movie", val_mask=(torch.arange(40) + 3) % 4 < 2),
            "a document must be in one mask, but 10 are in two, the first is 1, in train_mask and "
            "val_mask.",
        ),
        (
            _set("movie", train_mask=torch.ones(40, 3, dtype=torch.bool)),
            "train_mask must be [40] of bool, found bool [40, 3].",
        ),
        (
            _set("movie", x=torch.rand(39, 2), num_nodes=40),
            "x of 'movie' must be [40, F], found [39, 2].",
        ),
        (
            _set("director", x=torch.rand(8), num_nodes=8),
            "x of 'director' must be [8, F], found [8].",
        ),
        (
            _set("movie", y=torch.zeros(39, dtype=torch.int64)),
            "labels 'y' must be [40] or [40, L], a row per document, found [39].",
        ),
        (
            _set("movie", y=torch.rand(40)),
            "class indices 'y' must be integers, found float32.",
        ),
        (
            _set("movie", y=torch.full((40, 3), 2)),
            "multi-hot labels 'y' must be 0 or 1, found other numbers.",
        ),
        (
            _set("movie", y_index=torch.arange(40) + 1),
            "'y_index' must be in [0, 40), found 1 to 40.",
        ),
        (
            _set("movie", y_index=torch.arange(40) % 39),
            "'y_index' must name every document once, but some are repeated.",
        ),
        (
            _set("movie", y_index=torch.arange(40) < 20),
            "'y_index' must be indices of documents, found bool.",
        ),
        (
            _set("movie", time=torch.rand(40)),
            "time must be [40] of integers, found float32 [40].",
        ),
        (
            _set("movie", text=["a"]),
            "the texts of 'movie' must be 40 strings, one per node, found 1 items.",
        ),
        (
            _set(EDGE, edge_index=torch.tensor([[0], [8]])),
            f"the edge_index of {EDGE} must be in [0, 8), found 8 to 8.",
        ),
        (
            _set(EDGE, edge_index=torch.tensor([[0], [1]]), position=torch.tensor([0, 1])),
            f"the position of {EDGE} must be [1], found [2].",
        ),
        (
            _set(EDGE, edge_index=torch.rand(2, 3)),
            f"the edge_index of {EDGE} must be [2, E] of integers, found float32 [2, 3].",
        ),
        (
            _set(EDGE, edge_index=torch.ones(2, 3, dtype=torch.int64, device="meta")),
            f"the edge_index of {EDGE} must be [2, E] of integers, found Tensor.",
        ),
        (
            _set(EDGE, edge_index=torch.eye(3, dtype=torch.int64).to_sparse()),
            f"the edge_index of {EDGE} must be [2, E] of integers, found int64 [3, 3].",
        ),
        (
            _set("movie", x=torch.ones(40, 2, device="meta")),
            "x of 'movie' must be [40, F], found Tensor.",
        ),
        (
            _set(EDGE, edge_index=torch.tensor([[0], [1]]), edge_attr=torch.rand(2, 1)),
            f"the edge_attr of {EDGE} must be [1, K], found [2, 1].",
        ),
        (
            _set(("director", "to", "movie"), edge_index=torch.tensor([[0], [1]]),
                 edge_attr=torch.rand(1, 1)),
            f"the edges of {[EDGE, ('director', 'to', 'movie')]} become one and must have "
            "edge_attr of one width, found [0, 1] (0: none); drop one of them, or give all the "
            "same attributes.",
        ),
    ],
)  # fmt: skip
def test_from_hetero_fault_is_one_sentence(spoil: Callable[[HeteroData], None], fault: str) -> None:
    """Each fault is one sentence with what must hold and what was found."""
    data = make_graph()
    spoil(data)
    with pytest.raises(CorpusError) as caught:
        from_hetero(data)
    assert str(caught.value) == f"A HeteroData must be readable as a corpus: {fault}"


def test_from_hetero_features_must_be_finite() -> None:
    """Features with NaN are refused."""
    data = make_graph()
    data["movie"].x[4, 0] = float("nan")
    with pytest.raises(CorpusError, match="the features of 'document' must be finite, but 1 rows"):
        from_hetero(data)


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (
            {"document": "film"},
            "document must name a node type, one of ['movie', 'director', 'actor'], found 'film'.",
        ),
        ({"labels": "genre"}, "labels must name a node type or an attribute of 'movie', one of"),
        ({"drop": ["genre"]}, "drop must name node and edge types of the graph, found ['genre']"),
        ({"hierarchy": ("a", "b", "a")}, "hierarchy must name an edge type between labels, one of"),
        ({"text": "plot"}, "text must name an attribute of 'movie', found 'plot'."),
        ({"time": "date"}, "time must name an attribute of 'movie', found 'date'."),
        ({"drop": "actor"}, "drop must be a list of types, found 'actor'."),
        ({"drop": 3}, "drop must be a list of types, found 3."),
        (
            {"hierarchy": [[0], [1]]},
            "hierarchy must be an edge type between labels, or class indices [2, E] as a tensor or "
            "an array, found list.",
        ),
        (
            {"names": {"actor": ["Ada"]}},
            "the names of 'actor' must be 9 strings, one per node, found 1 items.",
        ),
        ({"names": {"y": "ab"}}, "the names of 'y' must be a list of ids, found str."),
        ({"names": {"actor": {*"abcdefghi"}}}, "the names of 'actor' must be a list of ids, found"),
        ({"names": {"actor": 5}}, "the names of 'actor' must be a list of ids, found int."),
        ({"names": {"actor": [None] * 9}}, "the names of 'actor' must be 9 strings, one per node,"),
        ({"names": {"acter": ["Ada"]}}, "names must be of the types ['movie', 'director', 'actor"),
        ({"names": ["Ada"]}, "names must be lists of ids by node type, found list."),
    ],
)
def test_from_hetero_wrong_argument_is_one_sentence(arguments: Any, fault: str) -> None:
    """A wrong argument is one sentence with the choices."""
    with pytest.raises(CorpusError) as caught:
        from_hetero(make_graph(), **arguments)
    assert str(caught.value).startswith(f"A HeteroData must be readable as a corpus: {fault}")


def test_from_hetero_wrong_seed_is_one_sentence() -> None:
    """A negative seed is refused as a setting."""
    with pytest.raises(ConfigError, match="'seed': Input should be greater than or equal to 0"):
        from_hetero(make_graph(), seed=-1)


@pytest.mark.parametrize("as_ids", [torch.tensor, np.array, tuple, list])
def test_from_hetero_names_may_be_numbers(as_ids: Callable[[list[int]], Any]) -> None:
    """Names may be numbers, in lists, arrays or tensors."""
    corpus = from_hetero(make_graph(), names={"actor": as_ids([*range(20, 29)])})
    assert corpus.instances["actor"]["id"].tolist() == [str(one) for one in range(20, 29)]


def test_from_hetero_words_of_both_directions_count_once() -> None:
    """Word edges of both directions count once; those from documents are read."""
    data = HeteroData()
    data["document"].y, data["word"].num_nodes = torch.zeros(3, dtype=torch.int64), 3
    ends = torch.tensor([[0, 0, 0, 2], [0, 1, 0, 2]])
    data["document", "contains", "word"].edge_index = ends
    alone = from_hetero(data).edges["word"]
    assert alone.to_numpy().tolist() == ends.t().tolist()
    assert from_hetero(ToUndirected(merge=False)(data)).edges["word"].equals(alone)
    turned = HeteroData()
    turned["document"].y, turned["word"].num_nodes = data["document"].y, 3
    turned["word", "in", "document"].edge_index = ends.flip(0)
    assert from_hetero(turned).edges["word"].equals(alone)


def test_from_hetero_hierarchy_may_be_an_array() -> None:
    """A NumPy array [2, E] gives the hierarchy that the same tensor gives."""
    pairs = [[0, 1], [2, 2]]
    both_ways = ToUndirected(merge=False)(make_graph())
    found = from_hetero(both_ways, hierarchy=np.array(pairs)).hierarchy
    assert found.equals(from_hetero(make_graph(), hierarchy=torch.tensor(pairs)).hierarchy)
    assert found[["child", "parent"]].to_numpy().tolist() == [["0", "2"], ["1", "2"]]


def test_from_hetero_hierarchy_may_have_classes_of_no_document() -> None:
    """The hierarchy may name classes without documents that have names."""
    names, pairs = {"y": ["a", "b", "c", "d", "e"]}, torch.tensor([[0], [4]])
    corpus = from_hetero(make_graph(), hierarchy=pairs, names=names)
    assert corpus.hierarchy[["child", "parent"]].to_numpy().tolist() == [["a", "e"]]
    assert "e" not in {*corpus.instances["label"]["id"]}


def test_from_hetero_counts_documents_by_what_they_have() -> None:
    """Without x and num_nodes, documents are counted by classes, masks, texts or times."""
    for key, values in [
        ("y", torch.tensor([0, 1, 0, 1])),
        ("train_mask", torch.ones(4, dtype=torch.bool)),
        ("text", ["a", "b", "c", "d"]),
        ("time", torch.arange(4)),
    ]:
        data = HeteroData()
        data["document"][key] = values
        data["label"].name = ["A", "B", "C"]
        data["document", "tagged", "label"].edge_index = torch.tensor([[0, 1], [0, 1]])
        labels = "y" if key == "y" else "label"
        corpus = from_hetero(data, labels=labels, drop=["label"] if key == "y" else [])
        assert len(corpus.documents) == 4
    data = HeteroData()
    data["document"].y, data["document"].y_index = torch.tensor([0]), torch.tensor([1])
    data["document", "follows", "document"].edge_index = torch.tensor([[0], [2]])
    assert len(from_hetero(data).documents) == 3  # as edges say where nothing else does
    data = HeteroData()
    data["document"].y, data["document"].time = torch.tensor([0, 1]), torch.tensor(5)
    with pytest.raises(CorpusError, match=r"time must be \[2\] of integers, found int64 \[\]"):
        from_hetero(data)


def test_from_hetero_classes_may_be_ids_of_millions() -> None:
    """Class indices may be up to 2^40; only those that occur become labels."""
    data = HeteroData()
    data["document"].x = torch.rand(3, 2)
    data["document"].y = torch.tensor([2**40, -1, 7])
    corpus = from_hetero(data, hierarchy=torch.tensor([[7], [3]]))
    assert corpus.instances["label"]["id"].tolist() == ["7", str(2**40)]
    assert corpus.edges["label"].to_numpy().tolist() == [[0, 1], [2, 0]]
    assert corpus.hierarchy[["child", "parent"]].to_numpy().tolist() == [["7", "3"]]
    with pytest.raises(CorpusError, match=f"the names of 'y' must be {2**40 + 1:,} strings"):
        from_hetero(data, names={"y": ["a", "b"]})


def test_from_hetero_label_nodes_beside_classes_are_refused() -> None:
    """Label nodes beside classes are refused, as they would leak labels as metadata."""
    data = make_graph()
    data["label"].num_nodes = 4
    data["movie", "tagged", "label"].edge_index = random_edges(40, 4)
    with pytest.raises(CorpusError, match="labels must be 'y' or the nodes 'label', found both"):
        from_hetero(data)
    assert "label" not in from_hetero(data, drop=["label"]).fields
    assert len(from_hetero(data, labels="label").instances["label"]) == 4


def test_from_hetero_repeated_names_are_one_sentence() -> None:
    """Repeated ids are one sentence."""
    with pytest.raises(CorpusError, match="the director 'A' is given twice"):
        from_hetero(make_graph(), names={"director": ["A"] * 8})


def test_open_dataset_graph_must_show_documents_and_labels() -> None:
    """A graph needs documents and labels by the defaults of from_hetero."""
    data = make_graph()
    data["actor"].y = torch.zeros(9, dtype=torch.int64)
    with pytest.raises(CorpusError) as caught:
        open_dataset(data)
    assert str(caught.value) == (
        "A HeteroData must show which nodes are documents, by the type 'document' or by 'y' of "
        "one type, found 'y' of ['movie', 'actor']; call from_hetero(data, document=...)."
    )
    data["document"].num_nodes = 3
    with pytest.raises(CorpusError) as caught:
        open_dataset(data)
    assert str(caught.value) == (
        "A HeteroData must show its labels, by 'y' of 'document' or by a node type 'label', found "
        "neither; call from_hetero(data, document=..., labels=...)."
    )
    with pytest.raises(CorpusError, match="reads a HeteroData, found Data; a Data becomes one by"):
        from_hetero(Data())
