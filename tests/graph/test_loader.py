"""`EgoBatch` against a naive re-computation from the corpus, and batches of similar length."""

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.data import HeteroData
from torch_geometric.loader import NodeLoader
from torch_geometric.transforms import ToUndirected

from match_graph.corpus import Corpus
from match_graph.datasets import Synthetic
from match_graph.errors import GraphError
from match_graph.graph import (
    BuiltGraph,
    EgoBatch,
    EgoGraphs,
    EgoLoader,
    EgoSampler,
    LengthBucketSampler,
    NeighborhoodConfig,
    TokenSpace,
    build_graph,
)
from match_graph.typing import TAGGED

FIELDS = ("venue", "author", "reference")
Rows = list[list[tuple[int, int, int]]]


def make_loader(
    built: BuiltGraph, max_metadata: int = 64, max_words: int = 500, **options: object
) -> EgoLoader:
    sampler = EgoSampler(built.data, max_metadata, max_words)
    options = {"batch_size": 5, "input_nodes": torch.arange(12), **options}
    space = options.pop("token_space", None) or TokenSpace.from_data(built.data)
    return EgoLoader(built.data, sampler, space, **options)


def rows_of(batch: EgoBatch) -> Rows:
    """Per document its (token, field, position) triples."""
    triples = list(
        zip(batch.token_id.tolist(), batch.field.tolist(), batch.position.tolist(), strict=True)
    )
    return [triples[start:stop] for start, stop in itertools.pairwise(batch.ptr.tolist())]


def naive_rows(
    corpus: Corpus, max_metadata: int, max_words: int, min_count: int, min_word_count: int
) -> Rows:
    """Token sets straight from the tables: count, rank, number, cut."""
    names = [*FIELDS, "word"]
    splits = corpus.documents["split"].tolist()
    lists: dict[str, list[list[str]]] = {}
    kept: dict[str, list[str]] = {}
    for name in names:
        ids = corpus.instances[name]["id"].tolist()
        lists[name] = [[] for _ in splits]
        counts = dict.fromkeys(ids, 0)
        for document, instance in corpus.edges[name].itertuples(index=False):
            lists[name][document].append(ids[instance])
            counts[ids[instance]] += splits[document] == "train"
        least = min_word_count if name == "word" else min_count
        ranked = sorted(ids, key=lambda value: (-counts[value], value))
        kept[name] = [value for value in ranked if counts[value] >= least]
    number: dict[tuple[str, str], int] = {}
    for name in names:
        for value in kept[name]:
            number[name, value] = 1 + len(names) + len(number)

    rows = []
    for document in range(len(splits)):
        taken = dict.fromkeys(FIELDS, 0)
        sizes = {name: len(lists[name][document]) for name in FIELDS}
        for _ in range(min(max_metadata, sum(sizes.values()))):
            # to the type that has least; of equals, to the one with more to give, the later one
            taken[
                min(
                    (name for name in FIELDS if taken[name] < sizes[name]),
                    key=lambda name: (taken[name], -sizes[name], -FIELDS.index(name)),
                )
            ] += 1
        row = []
        for field, name in enumerate(names):
            limit = max_words if name == "word" else taken[name]
            for place, value in enumerate(lists[name][document][:limit]):
                token = number.get((name, value), 1 + field)
                row.append((token, field, place if name == "word" else 0))
        rows.append(row)
    return rows


@pytest.mark.parametrize(
    ("max_metadata", "max_words", "min_count", "min_word_count"),
    [(64, 500, 2, 2), (64, 500, 1, 1), (2, 3, 1, 2), (3, 0, 2, 1), (0, 4, 1, 1)],
)
def test_EgoLoader_batches_equal_a_naive_computation(
    toy: Corpus,
    toy_graph: BuiltGraph,
    max_metadata: int,
    max_words: int,
    min_count: int,
    min_word_count: int,
) -> None:
    """Tokens, fields, positions and ptr of every document, metadata first, within the budgets."""
    space = TokenSpace.from_data(toy_graph.data, min_count, min_word_count)
    rows: Rows = []
    documents: list[int] = []
    for batch in make_loader(toy_graph, max_metadata, max_words, token_space=space):
        assert batch.num_documents == len(batch.document)
        assert batch.ptr.dtype == batch.token_id.dtype == torch.int64
        documents += batch.document.tolist()
        rows += rows_of(batch)
    assert documents == list(range(12))
    assert rows == naive_rows(toy, max_metadata, max_words, min_count, min_word_count)


def test_EgoLoader_larger_batches_equal_a_naive_computation(synthetic: Synthetic) -> None:
    """The same on four hundred documents with a very long author list."""
    corpus = synthetic.read()
    loader = make_loader(build_graph(corpus), 12, 30, input_nodes=torch.arange(400), batch_size=64)
    rows = [row for batch in loader for row in rows_of(batch)]
    assert rows == naive_rows(corpus, 12, 30, 2, 2)


def test_EgoLoader_gold_labels_come_with_targets_only(toy: Corpus, toy_graph: BuiltGraph) -> None:
    """Packed labels of exactly these documents; None without targets."""
    (batch,) = make_loader(
        toy_graph, targets=toy_graph.targets, batch_size=3, input_nodes=torch.tensor([11, 4, 3])
    )
    names = toy_graph.tables["label"]["id"].tolist()
    found = [
        {names[label] for label in part.tolist()}
        for part in batch.label_index.split(batch.label_ptr.diff().tolist())
    ]
    assert found == [
        {"learning", "science"},
        set(),
        {"bridge", "learning", "biology", "science"},
    ]
    for batch in make_loader(toy_graph):
        assert batch.label_ptr is None
        assert batch.label_index is None
        assert batch.graph is None
        assert batch.text is None


def test_EgoLoader_texts_follow_the_documents(toy: Corpus, toy_graph: BuiltGraph) -> None:
    """Raw texts by document, whatever the order of the batch."""
    texts = toy.documents["text"].tolist()
    nodes = torch.tensor([9, 3, 0])
    (batch,) = make_loader(toy_graph, texts=texts, input_nodes=nodes)
    assert batch.text == [texts[9], "", texts[0]]


def test_EgoLoader_types_outside_the_token_space_are_left_out(
    toy: Corpus, toy_graph: BuiltGraph
) -> None:
    """A space of authors and words gives their tokens alone, with ptr to match."""
    space = TokenSpace.from_data(toy_graph.data, 1, 1, types=["author", "word"])
    num_authors = toy.edges["author"]["document"].value_counts()
    num_words = toy.edges["word"]["document"].value_counts()
    rows = [row for batch in make_loader(toy_graph, token_space=space) for row in rows_of(batch)]
    for document, row in enumerate(rows):
        fields = [field for _, field, _ in row]
        assert fields.count(0) == num_authors.get(document, 0)
        assert fields.count(1) == num_words.get(document, 0)
        assert len(fields) == fields.count(0) + fields.count(1)
        words = [position for _, field, position in row if field == 1]
        assert words == list(range(len(words)))


def test_EgoLoader_some_tokens_are_selected_of_each_document(
    toy: Corpus, toy_graph: BuiltGraph
) -> None:
    """Those of one type, in their order; a document may keep none; gold labels stay."""
    (batch,) = make_loader(toy_graph, batch_size=12, targets=toy_graph.targets)
    word = FIELDS.index("reference") + 1
    selected = batch.select_tokens(batch.field == word)
    expected = [[row for row in rows if row[1] == word] for rows in rows_of(batch)]
    assert rows_of(selected) == expected
    assert [] in expected
    assert torch.equal(selected.document, batch.document)
    assert torch.equal(selected.label_index, batch.label_index)
    none = batch.select_tokens(torch.zeros_like(batch.field, dtype=torch.bool))
    assert rows_of(none) == [[]] * 12


def test_EgoLoader_as_new_hides_the_rows_of_the_documents(toy_graph: BuiltGraph) -> None:
    """Also in the subgraph, where documents around them keep theirs; the batch is left alone."""
    space, config = TokenSpace.from_data(toy_graph.data), NeighborhoodConfig()
    graphs = EgoGraphs(toy_graph.data, config, space)
    sampler, documents = EgoSampler(toy_graph.data), torch.tensor([0, 3, 4])
    loader = EgoLoader(toy_graph.data, sampler, space, documents, graphs=graphs, batch_size=3)
    batch = next(iter(loader))
    new = batch.as_new()
    assert batch.document.tolist() == [0, 3, 4]
    assert new.document.tolist() == [-1, -1, -1]
    known, hidden = (one.graph["document"].n_id for one in (batch, new))
    assert known[:3].tolist() == [0, 3, 4]
    assert hidden[:3].tolist() == [-1, -1, -1]
    assert torch.equal(known[3:], hidden[3:])
    assert len(known) > 3


def test_EgoLoader_graph_has_no_label_and_only_what_was_drawn(toy_graph: BuiltGraph) -> None:
    """Types that were not drawn are gone, labels above all, even if test gold is planted."""
    planted = toy_graph.data.clone()
    document = torch.repeat_interleave(torch.arange(12), toy_graph.targets.ptr.diff())
    planted[TAGGED].edge_index = torch.stack([document, toy_graph.targets.index.long()]).int()
    sampler = EgoSampler(planted, 3, 4)
    space = TokenSpace.from_data(planted)
    loader = EgoLoader(planted, sampler, space, torch.arange(12), with_graph=True, batch_size=5)
    for batch in loader:
        assert isinstance(batch.graph, HeteroData)
        assert set(batch.graph.node_types) == {"document", *FIELDS, "word"}
        assert {edge_type[1:] for edge_type in batch.graph.edge_types} == {
            *(("has", field) for field in FIELDS),
            ("contains", "word"),
        }
        assert batch.graph.validate()
        assert torch.equal(batch.graph["document"].n_id, batch.document)


def test_EgoLoader_graph_and_the_tokens_are_one_draw(toy_graph: BuiltGraph) -> None:
    """By chance too, the subgraph's edges are the tokens of the batch."""
    sampler = EgoSampler(toy_graph.data, 2, 3, random=True)
    space = TokenSpace.from_data(toy_graph.data, 1, 1)
    loader = EgoLoader(
        toy_graph.data, sampler, space, torch.arange(12), with_graph=True, batch_size=12
    )
    (batch,) = loader
    for edge_type in batch.graph.edge_types:
        row, col = batch.graph[edge_type].edge_index
        tokens = space.encode(edge_type[2], batch.graph[edge_type[2]].n_id[col])
        number = space.field_index(edge_type[2])
        expected = [
            (place, token)
            for place, triples in enumerate(rows_of(batch))
            for token, field, _ in triples
            if field == number
        ]
        assert list(zip(row.tolist(), tokens.tolist(), strict=True)) == expected


def test_EgoLoader_with_and_without_graph_the_tokens_are_same(toy_graph: BuiltGraph) -> None:
    """The subgraph is an addition."""
    for plain, rich in zip(
        make_loader(toy_graph), make_loader(toy_graph, with_graph=True), strict=True
    ):
        assert rows_of(plain) == rows_of(rich)


def test_EgoLoader_transform_sees_and_keeps_the_sampled_graph(toy_graph: BuiltGraph) -> None:
    """Reverse edges that a transform adds stay, and none of them touches a label."""
    (batch,) = make_loader(
        toy_graph, with_graph=True, batch_size=12, transform=ToUndirected(merge=False)
    )
    edge_types = set(batch.graph.edge_types)
    assert ("word", "rev_contains", "document") in edge_types
    assert ("author", "rev_has", "document") in edge_types
    assert not any("label" in edge_type for edge_type in edge_types)


def test_EgoLoader_transform_sees_graphs_of_several_hops(toy_graph: BuiltGraph) -> None:
    """As the sampled ego-networks; what it gives stands in the batch."""
    space = TokenSpace.from_data(toy_graph.data)
    graphs = EgoGraphs(toy_graph.data, NeighborhoodConfig(), space)
    seen: list[HeteroData] = []

    def mark(graph: HeteroData) -> HeteroData:
        seen.append(graph)
        return ToUndirected()(graph)

    for batch in make_loader(toy_graph, graphs=graphs, transform=mark):
        assert ("author", "rev_has", "document") in batch.graph.edge_types
    assert len(seen) == 3


def test_EgoLoader_to_moves_every_tensor_and_the_graph(toy: Corpus, toy_graph: BuiltGraph) -> None:
    """Every tensor is on the device, the rest is kept, the batch itself is not changed."""
    texts = toy.documents["text"].tolist()
    (batch,) = make_loader(
        toy_graph, targets=toy_graph.targets, with_graph=True, texts=texts, batch_size=12
    )
    moved = batch.to("meta")
    for name, value in vars(moved).items():
        if isinstance(value, Tensor):
            assert value.device.type == "meta", name
            assert value.shape == getattr(batch, name).shape
    assert moved.graph["document", "contains", "word"].edge_index.device.type == "meta"
    assert batch.graph["document", "contains", "word"].edge_index.device.type == "cpu"
    assert moved.text == texts
    assert batch.token_id.device.type == "cpu"
    assert make_loader(toy_graph).collate_fn([0]).to("cpu").graph is None


def test_EgoLoader_it_is_a_node_loader_and_callable(toy_graph: BuiltGraph) -> None:
    """PyG's call on positions of `input_nodes` gives a batch too; no workers unless asked for."""
    loader = make_loader(toy_graph, input_nodes=torch.tensor([7, 8, 9]))
    assert isinstance(loader, NodeLoader)
    assert loader.num_workers == 0
    for with_graph in (False, True):
        loader = make_loader(toy_graph, input_nodes=torch.tensor([7, 8, 9]), with_graph=with_graph)
        assert loader([2, 0]).document.tolist() == [9, 7]
        assert loader(torch.tensor([1])).document.tolist() == [8]


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("with_graph", [False, True])
def test_EgoLoader_workers_give_the_same_batches(toy_graph: BuiltGraph, with_graph: bool) -> None:
    """Batches come ready from other processes; random draws are those of one process too."""

    def make(num_workers: int) -> EgoLoader:
        sampler = EgoSampler(toy_graph.data, 2, 3, random=True, seed=4)
        return EgoLoader(
            toy_graph.data, sampler, TokenSpace.from_data(toy_graph.data, 1, 1), torch.arange(12),
            with_graph=with_graph, batch_size=2, num_workers=num_workers,
        )  # fmt: skip

    here, there = make(0), make(2)
    seen = []
    for epoch in range(2):
        here.node_sampler.set_epoch(epoch)
        there.node_sampler.set_epoch(epoch)
        for left, right in zip(here, there, strict=True):
            assert rows_of(left) == rows_of(right)
            assert (left.graph is None) == (right.graph is None) == (not with_graph)
            seen.append(rows_of(left))
    assert seen[:6] != seen[6:]


def test_EgoLoader_workers_that_outlive_an_epoch_are_refused(toy_graph: BuiltGraph) -> None:
    """They would miss the number of the next epoch; without random samples they may persist."""
    sampler = EgoSampler(toy_graph.data, random=True)
    space = TokenSpace.from_data(toy_graph.data)
    kept = {"num_workers": 1, "persistent_workers": True}
    with pytest.raises(GraphError) as caught:
        EgoLoader(toy_graph.data, sampler, space, torch.arange(12), **kept)
    assert str(caught.value) == (
        "Workers of a loader that samples by chance must start anew every epoch to learn its "
        "number, found persistent_workers=True; leave it out."
    )
    graphs = EgoGraphs(toy_graph.data, NeighborhoodConfig(), space).with_random(True)
    with pytest.raises(GraphError, match="must start anew every epoch"):
        make_loader(toy_graph, graphs=graphs, **kept)
    assert make_loader(toy_graph, **kept).persistent_workers


# Batches of similar length -------------------------------------------------------------------

lengths_of = st.lists(st.integers(0, 60), max_size=80)


@given(lengths_of, st.integers(1, 9), st.integers(1, 4), st.booleans(), st.integers(0, 3))
def test_LengthBucketSampler_batches_are_a_permutation(
    lengths: list[int], batch_size: int, pool: int, shuffle: bool, epoch: int
) -> None:
    """Every item once; all batches full but one; len counts them, also with a partial pool."""
    sampler = LengthBucketSampler(
        torch.tensor(lengths, dtype=torch.int64), batch_size, shuffle, seed=1, pool=pool
    )
    sampler.set_epoch(epoch)
    batches = list(sampler)
    assert sorted(item for batch in batches for item in batch) == list(range(len(lengths)))
    assert len(sampler) == len(batches) == math.ceil(len(lengths) / batch_size)
    assert sum(len(batch) < batch_size for batch in batches) == bool(len(lengths) % batch_size)


@given(lengths_of, st.integers(1, 9), st.integers(1, 4))
def test_LengthBucketSampler_items_are_sorted_within_their_pool(
    lengths: list[int], batch_size: int, pool: int
) -> None:
    """Batches of a pool follow on one another by length, so at most one per pool is wide."""
    sampler = LengthBucketSampler(
        torch.tensor(lengths, dtype=torch.int64), batch_size, True, 0, pool
    )
    for batch in sampler:
        of_batch = [lengths[item] for item in batch]
        assert of_batch == sorted(of_batch)
    wide = [
        max(lengths[item] for item in batch) - min(lengths[item] for item in batch)
        for batch in sampler
    ]
    pool = min(pool, max(1, len(sampler) // 3))
    num_pools = math.ceil(len(lengths) / (batch_size * pool))
    assert sum(wide) <= 60 * num_pools


@pytest.mark.parametrize("num_items", [93, 100])
def test_LengthBucketSampler_order_depends_seed_and_epoch_alone(num_items: int) -> None:
    """Same (seed, epoch), same batches, whatever the global generator; another, others."""
    lengths = torch.arange(num_items) % 17

    def batches(seed: int, epoch: int, noise: int) -> list[list[int]]:
        torch.manual_seed(noise)
        sampler = LengthBucketSampler(lengths, 8, shuffle=True, seed=seed)
        list(sampler)
        sampler.set_epoch(epoch)
        return list(sampler)

    assert all(batches(0, 2, noise=0) == batches(0, 2, noise=noise) for noise in range(1, 9))
    assert batches(0, 2, noise=0) != batches(0, 3, noise=0)
    assert batches(0, 2, noise=0) != batches(1, 2, noise=0)
    assert batches(0, 2, noise=0) != batches(1, 1, noise=0)


@pytest.mark.parametrize("num_items", [65, 161, 305])
def test_LengthBucketSampler_few_batches_are_mixed(num_items: int) -> None:
    """Epochs have other batches, and the small one has other items than the longest."""
    lengths = torch.randperm(num_items, generator=torch.Generator().manual_seed(0))
    sampler = LengthBucketSampler(lengths, 16, shuffle=True)
    partitions, small = set(), set()
    for epoch in range(8):
        sampler.set_epoch(epoch)
        batches = list(sampler)
        partitions.add(frozenset(map(frozenset, batches)))
        small |= {int(lengths[item]) for batch in batches if len(batch) < 16 for item in batch}
    assert len(partitions) == 8
    assert len(small) > 4
    assert min(small) < num_items // 2


def test_LengthBucketSampler_padding_is_smaller_than_unsorted() -> None:
    """On skewed lengths, less than a fifth of the padding of batches in random order."""
    generator = torch.Generator().manual_seed(0)
    lengths = (torch.rand(3000, generator=generator).pow(4) * 500).long()

    def padding(batches: list[list[int]]) -> int:
        parts = [lengths[batch] for batch in batches]
        return sum(int(part.max()) * len(part) - int(part.sum()) for part in parts)

    unsorted = torch.randperm(3000, generator=generator).split(32)
    bucketed = LengthBucketSampler(lengths, 32, shuffle=True)
    assert padding(list(bucketed)) < padding([batch.tolist() for batch in unsorted]) / 5


def test_LengthBucketSampler_without_shuffle_all_sorted_length() -> None:
    """One pool, ties in their own order."""
    sampler = LengthBucketSampler(torch.tensor([3, 1, 2, 1, 3]), 2, shuffle=False)
    assert list(sampler) == [[1, 3], [2, 0], [4]]


def test_LengthBucketSampler_epochs_have_other_batches() -> None:
    """With several pools, items of a batch are not together in every epoch."""
    sampler = LengthBucketSampler(torch.ones(64, dtype=torch.int64), 4, shuffle=True, pool=2)
    first = {frozenset(batch) for batch in sampler}
    sampler.set_epoch(1)
    assert first.isdisjoint({frozenset(batch) for batch in sampler})


def test_LengthBucketSampler_process_without_items_takes_first() -> None:
    """All processes have as many batches; what one takes twice has a share of 0."""
    lengths, parts, shares = torch.ones(5, dtype=torch.int64), [], []
    for rank in range(3):
        sampler = LengthBucketSampler(lengths, 4, shuffle=False, rank=rank, num_processes=3)
        parts.append(list(sampler))
        shares.append(list(sampler.shares()))
        assert list(sampler.sizes()) == [*map(len, parts[-1])]
    assert parts == [[[0, 3], [4]], [[1], [4]], [[2], [4]]]
    assert shares == [[0.5, 1.0], [0.25, 0.0], [0.25, 0.0]]


def test_EgoLoader_it_drives_a_loader(toy_graph: BuiltGraph) -> None:
    """As batch_sampler, positions become documents, and lengths are those of the draws."""
    documents = torch.arange(3, 12)
    node_sampler = EgoSampler(toy_graph.data)
    order = LengthBucketSampler(node_sampler.lengths(documents), 4, shuffle=True)
    space = TokenSpace.from_data(toy_graph.data)
    loader = EgoLoader(toy_graph.data, node_sampler, space, documents, batch_sampler=order)
    batches = list(loader)
    assert len(loader) == len(batches) == 3
    found = [document for batch in batches for document in batch.document.tolist()]
    assert sorted(found) == documents.tolist()
    sizes = torch.cat([batch.ptr.diff() for batch in batches])
    assert torch.equal(sizes, node_sampler.lengths(torch.tensor(found)))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("num_workers", [0, 1])
@pytest.mark.parametrize(("num_processes", "start"), [(1, 0), (1, 7), (3, 0)])
def test_EgoLoader_joined_batches_are_the_same(
    synthetic: Synthetic, num_processes: int, start: int, num_workers: int
) -> None:
    """Every list of every batch and its share, also from within an epoch and of a process."""
    built = build_graph(synthetic.read())
    documents, sampler = torch.arange(400), EgoSampler(built.data, 3, 20, random=True, seed=5)
    x = torch.rand(400, 2)
    built.data["document"].x = x
    order = LengthBucketSampler(
        sampler.lengths(documents), 40, shuffle=True, rank=num_processes - 1,
        num_processes=num_processes,
    )  # fmt: skip
    texts = [f"text {number}" for number in range(400)]
    space = TokenSpace.from_data(built.data)
    loader = EgoLoader(
        built.data, sampler, space, documents, built.targets, texts=texts, batch_sampler=order,
        num_workers=num_workers,
    )  # fmt: skip
    loader.set_epoch(2)
    order.set_epoch(2, start)
    batches = list(loader)
    expected = [loader.collate_fn(items) for items in order]
    assert len(batches) == len(expected) == len(loader) - start == 10 - start
    shares = list(order.shares())
    for found, alone, share in zip(batches, expected, shares, strict=True):
        assert found.share == share
        assert found.text == alone.text
        for name in ("document", "token_id", "field", "position", "ptr", "label_ptr", "x"):
            assert torch.equal(getattr(found, name), getattr(alone, name)), name
        assert torch.equal(found.label_index, alone.label_index)


def test_EgoLoader_samples_several_batches_in_one_call(
    toy_graph: BuiltGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Six batches of two documents take two calls where up to seven documents are in one."""
    monkeypatch.setattr("match_graph.graph.loader._DOCUMENTS_AHEAD", 7)
    sampler, documents = EgoSampler(toy_graph.data), torch.arange(12)
    asked, sample = [], sampler.sample
    monkeypatch.setattr(sampler, "sample", lambda seed: asked.append(len(seed)) or sample(seed))
    order = LengthBucketSampler(sampler.lengths(documents), 2, shuffle=True)
    space = TokenSpace.from_data(toy_graph.data)
    loader = EgoLoader(toy_graph.data, sampler, space, documents, batch_sampler=order)
    assert [batch.num_documents for batch in loader] == [2] * 6
    assert asked == [6, 6]


def test_EgoLoader_takes_any_order_of_batches(toy_graph: BuiltGraph) -> None:
    """Lists of positions, as a `DataLoader` does."""
    sampler, space = EgoSampler(toy_graph.data), TokenSpace.from_data(toy_graph.data)
    order = [[3, 0], [7]]
    loader = EgoLoader(toy_graph.data, sampler, space, torch.arange(12), batch_sampler=order)
    assert [batch.document.tolist() for batch in loader] == order
    assert len(loader) == 2
