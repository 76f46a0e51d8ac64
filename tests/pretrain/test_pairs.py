"""Positive pairs and negatives, against naive listings and by chi-square tests."""

from collections import Counter
from collections.abc import Callable

import pytest
import torch
from scipy.stats import chisquare
from torch import Tensor
from torch_geometric.data import HeteroData

from match_graph.datasets import Synthetic
from match_graph.errors import GraphError
from match_graph.graph import BuiltGraph
from match_graph.graph.adjacency import Adjacency
from match_graph.pretrain import CONTEXT, PairFeed, Relation, find_relations, pairs
from match_graph.pretrain.pairs import SequenceRelation, SetRelation

P_LEAST = 1e-4  # the seeds are fixed: a failure means that the distribution changed


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def all_rows(data: HeteroData) -> dict[str, int]:
    return {name: int(data[name].num_nodes) for name in data.node_types}


ROW = [0, 0, 0, 0, 0, 1, 1, 1, 2, 2, 2]
COL = [0, 1, 1, 4, 2, 0, 1, 2, 3, 2, 0]
TRAIN = torch.tensor([True, False, True])
KIND = ("document", "contains", "word")


def words_relation(window: int = 0) -> Relation:
    """Three documents, of which the middle one is not drawn; word 4 is beyond the kept ones."""
    edge_index = torch.tensor([ROW, COL], dtype=torch.int32)
    lists, degree = Adjacency.from_edges(KIND, edge_index, 3), torch.tensor([2, 2, 2, 1])
    anchor = CONTEXT if window else "document"
    return SequenceRelation("words", anchor, "word", lists, degree, TRAIN, window)


def set_relation() -> Relation:
    """The same edges as sets."""
    edge_index = torch.tensor([ROW, COL], dtype=torch.int32)
    lists, degree = Adjacency.from_edges(KIND, edge_index, 3), torch.tensor([2, 2, 2, 1])
    back = Adjacency.by_training(KIND, edge_index, 5, TRAIN, None)
    return SetRelation("sets", "document", "word", lists, degree, back)


def draw_many(relation: Relation, number: int = 40_000) -> Counter[tuple[int, int]]:
    anchor, target = relation.sample(number, seeded())
    assert anchor.dtype == target.dtype == torch.int64
    return Counter(zip(anchor.tolist(), target.tolist(), strict=True))


def assert_uniform_over(found: Counter, weight: Counter) -> None:
    assert found.keys() == weight.keys()
    total = sum(found.values()) / sum(weight.values())
    keys = list(weight)
    result = chisquare([found[key] for key in keys], [weight[key] * total for key in keys])
    assert result.pvalue > P_LEAST


@pytest.mark.parametrize("make", [words_relation, set_relation])
def test_Relation_positives_uniform_over_edges_kept_targets(make: Callable[[], Relation]) -> None:
    """Positives are uniform over edges of kept targets and training anchors.

    A word that stands twice in a document is drawn twice as often.
    """
    weight = Counter({(0, 0): 1, (0, 1): 2, (0, 2): 1, (2, 3): 1, (2, 2): 1, (2, 0): 1})
    assert_uniform_over(draw_many(make()), weight)


def test_SetRelation_loses_no_draw() -> None:
    """Every one is a pair, whatever share of the edges may be drawn."""
    assert len(set_relation().sample(1000, seeded())[0]) == 1000


@pytest.mark.parametrize("window", [1, 2, 5])
def test_Relation_contexts_uniform_over_windows_each_document(window: int) -> None:
    """Contexts are uniform over the windows of each document."""
    relation = words_relation(window)
    row, col = ROW, COL
    weight: Counter[tuple[int, int]] = Counter()
    for center in range(len(row)):
        for partner in range(len(row)):
            inside = 0 < abs(center - partner) <= window and row[center] == row[partner]
            if inside and row[center] != 1 and 4 not in (col[center], col[partner]):
                weight[col[partner], col[center]] += 1  # the neighbour is the anchor
    assert_uniform_over(draw_many(relation), weight)


def test_Relation_negatives_follow_degree_to_three_quarters() -> None:
    generator = seeded()
    col = torch.repeat_interleave(torch.arange(6), torch.tensor([50, 20, 9, 4, 0, 1]))
    row = torch.zeros_like(col)
    lists = Adjacency.from_edges(KIND, torch.stack([row, col]), 1)
    relation = SequenceRelation("r", "a", "t", lists, col.bincount())
    drawn = relation.sample_negatives((30_000, 2), generator)
    assert drawn.shape == (30_000, 2)
    count = torch.bincount(drawn.view(-1), minlength=6).double()
    expected = torch.tensor([50, 20, 9, 4, 0, 1], dtype=torch.float64) ** 0.75
    expected *= count.sum() / expected.sum()
    assert int(count[4]) == 0  # no edge, never a negative
    present = expected > 0
    assert chisquare(count[present], expected[present]).pvalue > P_LEAST


def test_Relation_negatives_count_training_degrees_only() -> None:
    relation = words_relation()
    degree = relation.cdf.diff(prepend=torch.zeros(1, dtype=relation.cdf.dtype)).double()
    expected = torch.tensor([2.0, 2.0, 2.0, 1.0], dtype=torch.float64) ** 0.75
    assert torch.allclose(degree / degree.sum(), expected / expected.sum(), atol=1e-6)


def test_Relation_negatives_have_an_edge(monkeypatch: pytest.MonkeyPatch) -> None:
    """The smallest number that can be drawn gives the first target that has one."""
    lists = Adjacency.from_edges(KIND, torch.tensor([[0, 0], [1, 2]]), 1)
    relation = SequenceRelation("r", "a", "t", lists, torch.tensor([0, 1, 1]))
    monkeypatch.setattr(torch, "rand", lambda *shape, **_: torch.zeros(*shape).double())
    assert relation.sample_negatives((3,), seeded()).tolist() == [1, 1, 1]


@pytest.mark.parametrize("window", [0, 2])
def test_SequenceRelation_ends_are_those_of_all_pieces(
    window: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The edges that are drawn from begin and end with allowed ones, however they are read."""
    monkeypatch.setattr(pairs, "_PIECE", 2)
    relation = words_relation(window)
    assert isinstance(relation, SequenceRelation)
    assert (relation.first, relation.stop) == (0, len(ROW))


@pytest.mark.parametrize("make", [words_relation, set_relation])
def test_Relation_holds_knows_every_pair(make: Callable[[], Relation]) -> None:
    relation, pairs = make(), set(zip(ROW, COL, strict=True))
    anchor = torch.tensor([0, 2, 0])
    for target in (torch.arange(4), torch.arange(4).expand(3, 4)):
        held = relation.holds(anchor, target)
        for p, a in enumerate(anchor.tolist()):
            assert [(a, t) in pairs for t in range(4)] == held[p].tolist()


def test_Relation_holds_knows_targets_beyond_kept_rows() -> None:
    """An edge to a target without a row is an edge too, and none of another document."""
    held = set_relation().holds(torch.tensor([0, 2]), torch.tensor([4, 0]))
    assert held.tolist() == [[True, True], [False, True]]


def test_Relation_holds_leaves_contexts_alone() -> None:
    held = words_relation(window=2).holds(torch.tensor([0]), torch.arange(4))
    assert not held.any()


def test_find_relations_of_a_corpus_graph(toy_graph: BuiltGraph) -> None:
    data = toy_graph.data
    kinds = find_relations(data, all_rows(data), window=5)
    names = [[relation.name for relation in kind] for kind in kinds]
    assert sorted(map(sorted, names)) == sorted(
        [
            ["(document, author)", "(document, reference)", "(document, venue)"],
            ["(document, word)"],
            ["(word, context)"],
            ["(document, label)"],
        ]
    )
    context = next(kind[0] for kind in kinds if kind[0].name == "(word, context)")
    assert (context.anchor, context.target) == (CONTEXT, "word")


def test_find_relations_only_training_documents_are_drawn(synthetic: Synthetic) -> None:
    data = synthetic[0]
    in_train = data["document"].train_mask
    for kind in find_relations(data, all_rows(data), window=3):
        for relation in kind:
            if relation.anchor == "document":
                anchor, _ = relation.sample(20_000, seeded())
                assert bool(in_train[anchor].all())
                assert len(anchor.unique()) > 0.5 * int(in_train.sum())


def sequences(*edge_types: tuple[str, str, str], num_nodes: int = 20) -> HeteroData:
    """Ten lists of ten nodes of each edge type; the odd nodes are not of training."""
    data, generator = HeteroData(), seeded()
    row = torch.arange(100) // 10
    for edge_type in edge_types:
        data[edge_type[0]].num_nodes, data[edge_type[2]].num_nodes = 10, num_nodes
        data[edge_type[2]].train_mask = torch.arange(num_nodes) % 2 == 0
        col = torch.randint(num_nodes, (100,), generator=generator)
        data[edge_type].edge_index = torch.stack([row, col])
        data[edge_type].position = (torch.arange(100) % 10).to(torch.int16)
    return data


def test_find_relations_only_training_targets_are_drawn() -> None:
    """Positives, negatives and contexts of edges with positions are all training nodes."""
    data = sequences(("session", "views", "item"))
    (words,), (context,) = find_relations(data, all_rows(data), window=3)
    for relation in (words, context):
        anchor, target = relation.sample(5_000, seeded())
        assert len(target.unique()) > 5
        assert not bool((target % 2).any())
        assert relation is words or not bool((anchor % 2).any())
        assert not bool((relation.sample_negatives((500,), seeded()) % 2).any())


def test_find_relations_kept_rows_and_training_targets_both_hold() -> None:
    """Targets beyond the kept rows are not drawn, also where the last kept one is of training."""
    data = sequences(("session", "views", "item"))
    (words,), (context,) = find_relations(data, {**all_rows(data), "item": 11}, window=3)
    for relation in (words, context):
        anchor, target = relation.sample(5_000, seeded())
        assert int(target.max()) == 10
        assert relation is words or int(anchor.max()) == 10


def test_find_relations_sequences_to_one_type_are_apart() -> None:
    """Each has a name of its own, by which a trainer keeps its pairs."""
    ends = [("document", "title"), ("document", "body"), ("session", "body")]
    data = sequences(*((*one, "word") for one in ends))
    kinds = find_relations(data, all_rows(data), window=3)
    assert [relation.name for kind in kinds for relation in kind] == [
        "(document, word)",
        "(word, context)",
        "(document, body, word)",
        "(document, body, word, context)",
        "(session, word)",
        "(session, body, word, context)",
    ]


def test_find_relations_no_targets_at_all_are_left_out() -> None:
    """A node type with a training mask whose table has no rows gives no pairs."""
    data = sequences(("session", "views", "item"))
    assert find_relations(data, {**all_rows(data), "item": 0}, window=3) == []


@pytest.mark.parametrize("others", [["item"], [CONTEXT]])
def test_find_relations_contexts_are_of_one_node_type(others: list[str]) -> None:
    """They are rows of one table, which no nodes may share."""
    types = [("document", "has", one) for one in ("word", *others)]
    data = sequences(*types)
    with pytest.raises(GraphError, match=r"nodes of one type in a table 'context', found \['"):
        find_relations(data, all_rows(data), window=3)
    assert len(find_relations(data, all_rows(data), window=0)) == 1
    data = sequences(("document", "has", "word"))
    data[CONTEXT].num_nodes = 3
    with pytest.raises(GraphError, match=r"found \['word', 'context'\]; choose other edge_types"):
        find_relations(data, all_rows(data), window=3)


def test_find_relations_targets_beyond_kept_rows_are_not_drawn(synthetic: Synthetic) -> None:
    data = synthetic[0]
    rows = {**all_rows(data), "word": 50}
    for kind in find_relations(data, rows, window=3):
        for relation in kind:
            if relation.target == "word":
                anchor, target = relation.sample(5_000, seeded())
                assert int(target.max()) < 50
                assert relation.anchor != CONTEXT or int(anchor.max()) < 50
                assert int(relation.sample_negatives((500,), seeded()).max()) < 50


def test_find_relations_relation_one_distinct_target_left_out(toy_graph: BuiltGraph) -> None:
    """One venue for all: there is no negative; the other fields stay."""
    data = toy_graph.data.clone()
    data["document", "has", "venue"].edge_index[1] = 0
    names = {
        relation.name
        for kind in find_relations(data, all_rows(data), window=2)
        for relation in kind
    }
    assert "(document, venue)" not in names
    assert "(document, author)" in names


def test_find_relations_type_without_pairs_is_left_out(toy_graph: BuiltGraph) -> None:
    data = toy_graph.data.clone()
    edge_index = data["document", "tagged", "label"].edge_index
    data["document", "tagged", "label"].edge_index = edge_index[:, :0]
    kinds = find_relations(data, all_rows(data), window=0)
    assert [len(kind) for kind in kinds] == [3, 1]


def test_find_relations_unknown_edge_types_are_named(toy_graph: BuiltGraph) -> None:
    edge_type = ("document", "has", "colour")
    with pytest.raises(GraphError, match=r"colour.*choose from"):
        find_relations(toy_graph.data, all_rows(toy_graph.data), 5, [edge_type])


def test_find_relations_texts_of_one_word_have_no_contexts(toy_graph: BuiltGraph) -> None:
    """Words there are, but no neighbours: the relation is left out instead of drawn for ever."""
    data = toy_graph.data.clone()
    store = data["document", "contains", "word"]
    first = store.position == 0
    store.edge_index, store.position = store.edge_index[:, first], store.position[first]
    kinds = find_relations(data, all_rows(data), window=5)
    assert CONTEXT not in {relation.anchor for kind in kinds for relation in kind}


def test_find_relations_rare_contexts_are_kept() -> None:
    """One text of two words among 3,000 of one word: a context in 30,000 samples."""
    data = HeteroData()
    data["document"].num_nodes, data["word"].num_nodes = 3_000, 3_001
    data["document"].train_mask = torch.ones(3_000, dtype=torch.bool)
    row = torch.cat([torch.arange(3_000), torch.tensor([2_999])])
    data[KIND].edge_index = torch.stack([row, torch.arange(3_001)])
    data[KIND].position = (torch.arange(3_001) == 3_000).to(torch.int16)
    kinds = find_relations(data, all_rows(data), window=10)
    assert [kind[0].anchor for kind in kinds] == ["document", CONTEXT]


@pytest.mark.parametrize("shared", [True, False])
def test_Relation_feed_hands_out_full_chunks_of_allowed_pairs(shared: bool) -> None:
    feed, generator = PairFeed(words_relation(2), 16, 4, shared), seeded()
    chunks = [feed.next_chunk(16, generator) for _ in range(2_000)]
    assert all(chunk.anchor.shape == chunk.positive.shape == (16,) for chunk in chunks)
    assert all(chunk.negative.shape == ((4,) if shared else (16, 4)) for chunk in chunks)
    assert len({tuple(chunk.negative.flatten().tolist()) for chunk in chunks}) > 100
    drawn = words_relation(2).sample(60_000, seeded(1))
    expected = Counter(zip(*(side.tolist() for side in drawn), strict=True))
    found = Counter(
        pair for c in chunks for pair in zip(c.anchor.tolist(), c.positive.tolist(), strict=True)
    )
    assert found.keys() == expected.keys()
    share = {key: value / sum(expected.values()) for key, value in expected.items()}
    assert all(abs(found[key] / 32_000 - value) < 0.02 for key, value in share.items())


def bytes_of(relation: Relation) -> dict[int, int]:
    """Bytes by storage of everything that a relation holds."""
    tensors = [value for value in vars(relation).values() if isinstance(value, Tensor)]
    return {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}


def test_find_relations_nothing_held_grows_words_times_window(synthetic: Synthetic) -> None:
    """Sequences are shared with the graph; what is added grows with nodes, not with tokens."""
    data = synthetic[0]
    graph = {
        value.untyped_storage().data_ptr()
        for store in data.stores
        for value in store.values()
        if isinstance(value, Tensor)
    }
    sizes = {}
    for window in (1, 50):
        kinds = find_relations(data, all_rows(data), window)
        sizes[window] = sum(
            size
            for kind in kinds
            for relation in kind
            if relation.target == "word"
            for storage, size in bytes_of(relation).items()
            if storage not in graph
        )
    num_words = int(data["word"].num_nodes)
    assert sizes[1] == sizes[50]
    assert sizes[1] <= 2 * 8 * num_words
