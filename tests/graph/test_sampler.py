"""Ego-networks: sampled edges, budgets, probabilities, and no leak."""

import math
from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric import seed_everything
from torch_geometric.data import HeteroData
from torch_geometric.datasets import FakeHeteroDataset
from torch_geometric.loader import NodeLoader

from match_graph.datasets import Synthetic
from match_graph.errors import GraphError
from match_graph.graph import BuiltGraph, EgoSample, EgoSampler
from match_graph.graph.hashing import sample_uniform
from match_graph.graph.sampler import share_budget
from match_graph.typing import CONTAINS, TAGGED, EdgeType

FIELDS = ("venue", "author", "reference")


def neighbours(data: HeteroData, edge_type: EdgeType) -> list[list[int]]:
    """Targets by source, in the order of the edges."""
    lists: list[list[int]] = [[] for _ in range(data[edge_type[0]].num_nodes)]
    for source, target in data[edge_type].edge_index.t().tolist():
        lists[source].append(target)
    return lists


def unpack(draw: EgoSample) -> list[dict[EdgeType, list[int]]]:
    """Per seed the drawn nodes by edge type, in the order of the packing."""
    seeds: list[dict[EdgeType, list[int]]] = []
    for start, stop in zip(draw.ptr[:-1].tolist(), draw.ptr[1:].tolist(), strict=True):
        drawn: dict[EdgeType, list[int]] = {edge_type: [] for edge_type in draw.edge_types}
        for place in range(start, stop):
            drawn[draw.edge_types[draw.edge_type[place]]].append(int(draw.node[place]))
        seeds.append(drawn)
    return seeds


def pour(counts: list[int], budget: int) -> list[int]:
    """Water-filling by a loop: a unit to the type that has least, of ties to the larger one."""
    order = sorted(range(len(counts)), key=lambda number: (counts[number], number))
    taken = [0] * len(counts)
    for _ in range(min(budget, sum(counts))):
        open_types = [number for number in order if taken[number] < counts[number]]
        least = min(taken[number] for number in open_types)
        taken[[number for number in open_types if taken[number] == least][-1]] += 1
    return taken


def is_subsequence(part: list[int], whole: list[int]) -> bool:
    rest = iter(whole)
    return all(value in rest for value in part)


# Budgets -------------------------------------------------------------------------------------


@given(
    st.integers(1, 5).flatmap(
        lambda width: st.lists(
            st.lists(st.integers(0, 12), min_size=width, max_size=width), min_size=1, max_size=5
        )
    ),
    st.integers(0, 40),
)
def test_share_budget_equals_pouring_unit_by_unit(rows: list[list[int]], budget: int) -> None:
    """The vectorised share is the water-filling loop, row by row."""
    shares = share_budget(torch.tensor(rows), budget).tolist()
    assert shares == [pour(counts, budget) for counts in rows]


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=6), st.integers(0, 2000))
def test_share_budget_is_full_and_even(counts: list[int], budget: int) -> None:
    """The budget is used up, and no type lies below its fair share unless it is exhausted."""
    share = share_budget(torch.tensor([counts]), budget)[0].tolist()
    assert sum(share) == min(budget, sum(counts))
    for taken, count in zip(share, counts, strict=True):
        assert taken <= count
        assert taken == count or taken >= max(budget // len(counts), max(share) - 1)


def test_share_budget_without_types() -> None:
    """A graph without metadata has nothing to share."""
    assert share_budget(torch.empty(3, 0, dtype=torch.int64), 5).shape == (3, 0)


# What is drawn -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("max_metadata", "max_words"), [(64, 500), (3, 4), (1, 0), (0, 1), (0, 0), (7, 1000)]
)
def test_EgoSampler_first_edges_within_the_budgets(
    synthetic: Synthetic, max_metadata: int, max_words: int
) -> None:
    """Without chance: per type the first of its share, then the first words; order kept."""
    data = synthetic[0]
    lists = {field: neighbours(data, ("document", "has", field)) for field in FIELDS}
    words = neighbours(data, CONTAINS)
    sampler = EgoSampler(data, max_metadata, max_words)
    seed = torch.randperm(400, generator=torch.Generator().manual_seed(0))[:150]
    draw = sampler.sample(seed)
    assert torch.equal(draw.seed, seed)
    expected = []
    for document in seed.tolist():
        found = [lists[field][document] for field in FIELDS]
        shares = pour([len(values) for values in found], max_metadata)
        parts: dict[EdgeType, list[int]] = {
            ("document", "has", field): values[:share]
            for field, values, share in zip(FIELDS, found, shares, strict=True)
        }
        expected.append({**parts, CONTAINS: words[document][:max_words]})
    assert unpack(draw) == expected
    sizes = [sum(map(len, parts.values())) for parts in expected]
    assert sampler.lengths(seed).tolist() == sizes


def test_EgoSampler_metadata_come_before_words(synthetic: Synthetic) -> None:
    """The packing is by type, sequences last, so that `edge_type` ascends within a seed."""
    draw = EgoSampler(synthetic[0], random=True).sample(torch.arange(100))
    assert draw.edge_types[-1] == CONTAINS
    for start, stop in zip(draw.ptr[:-1].tolist(), draw.ptr[1:].tolist(), strict=True):
        assert (draw.edge_type[start:stop].diff() >= 0).all()


def test_EgoSampler_positions_are_places_in_the_text(synthetic: Synthetic) -> None:
    """Words tell their stored position, metadata 0."""
    data = synthetic[0]
    draw = EgoSampler(data, max_words=9).sample(torch.arange(400))
    is_word = draw.edge_type == draw.edge_types.index(CONTAINS)
    assert draw.position[~is_word].max() == 0
    stored = data[CONTAINS].position[draw.edge[is_word]]
    assert torch.equal(draw.position[is_word], stored.to(torch.int64))


def test_EgoSampler_words_in_any_order_of_edges() -> None:
    """A graph of one's own may hold its words in any order: ``position`` says which is first."""
    data = HeteroData()
    data["document"].num_nodes, data["word"].num_nodes = 2, 5
    data[CONTAINS].edge_index = torch.tensor([[0, 0, 1, 0, 1], [0, 1, 4, 2, 3]])
    data[CONTAINS].position = torch.tensor([2, 0, 1, 1, 0])
    draw = EgoSampler(data, max_words=2).sample(torch.arange(2))
    assert draw.node.tolist() == [1, 2, 3, 4]
    assert draw.position.tolist() == data[CONTAINS].position[draw.edge].tolist() == [0, 1, 0, 1]


def test_EgoSampler_edges_lead_from_the_seed_to_the_node(synthetic: Synthetic) -> None:
    """`edge` names the edge that was followed."""
    data = synthetic[0]
    seed = torch.tensor([5, 3, 3, 250])
    draw = EgoSampler(data, 5, 5, random=True).sample(seed)
    source = torch.repeat_interleave(seed, draw.ptr.diff())
    for number, edge_type in enumerate(draw.edge_types):
        mask = draw.edge_type == number
        edge_index = data[edge_type].edge_index[:, draw.edge[mask]]
        assert torch.equal(edge_index[0].long(), source[mask])
        assert torch.equal(edge_index[1].long(), draw.node[mask])


@pytest.mark.parametrize("budget", [1, 2, 5, 16])
def test_EgoSampler_random_draws_are_true_neighbours_in_order(
    synthetic: Synthetic, budget: int
) -> None:
    """By chance: true neighbours only, none twice, the share of every type, order kept."""
    data = synthetic[0]
    sampler = EgoSampler(data, max_metadata=budget, max_words=6, random=True, seed=1)
    lists = {field: neighbours(data, ("document", "has", field)) for field in FIELDS}
    words = neighbours(data, CONTAINS)
    for document, drawn in enumerate(unpack(sampler.sample(torch.arange(400)))):
        found = [lists[field][document] for field in FIELDS]
        shares = pour([len(values) for values in found], budget)
        for field, values, share in zip(FIELDS, found, shares, strict=True):
            part = drawn["document", "has", field]
            assert len(part) == len(set(part)) == share
            assert is_subsequence(part, values)
        assert drawn[CONTAINS] == words[document][:6]


@given(st.integers(1, 40), st.integers(1, 40), st.integers(0, 9))
def test_systematic_draws_never_repeat_an_edge(degree: int, budget: int, seed: int) -> None:
    """min(degree, budget) different edges for every seed, also where the step is no integer."""
    data = stars(20, degree)
    sampler = EgoSampler(data, budget, random=True, seed=seed, seed_type="hub")
    for drawn in unpack(sampler.sample(torch.arange(20))):
        (part,) = drawn.values()
        assert len(part) == len(set(part)) == min(degree, budget)
        assert part == sorted(part)


def test_EgoSampler_draws_each_edge_type_by_itself() -> None:
    """Places among ten leaves are not those among ten fruits, though both relations are `to`."""
    data = stars(50, 10)
    data["fruit"].num_nodes = 10
    data["hub", "to", "fruit"].edge_index = data["hub", "to", "leaf"].edge_index
    sampler = EgoSampler(data, 2, random=True, seed_type="hub")
    leaf, fruit = sampler.sample(torch.arange(50)).node.view(50, 2).T
    assert not torch.equal(leaf, fruit)


@pytest.mark.parametrize("hub", [0, 1])
def test_EgoSampler_largest_shift_draws_the_last_edge(
    hub: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The largest number below 1 is rounded up beside a rank; no edge of the next hub is taken."""
    shift = torch.tensor([1 - 2**-53], dtype=torch.float64)
    monkeypatch.setattr("match_graph.graph.sampler.sample_uniform", lambda *_: shift)
    sampler = EgoSampler(stars(2, 30), 3, random=True, seed_type="hub")
    assert sampler.sample(torch.tensor([hub])).node.tolist() == [9, 20, 29]


def stars(number: int, degree: int) -> HeteroData:
    """Hubs that share ``degree`` leaves."""
    data = HeteroData()
    data["hub"].num_nodes = number
    data["leaf"].num_nodes = degree
    data["hub", "to", "leaf"].edge_index = torch.stack(
        [torch.arange(number).repeat_interleave(degree), torch.arange(degree).repeat(number)]
    )
    return data


@pytest.mark.parametrize("by", ["hub", "epoch", "seed"])
@pytest.mark.parametrize(("degree", "budget"), [(10, 3), (7, 5), (40, 1), (9, 8)])
def test_EgoSampler_every_edge_has_the_same_chance(degree: int, budget: int, by: str) -> None:
    """Over 4,000 draws each edge is drawn budget / degree of the time, within 5 deviations.

    So it is over the seeds of one epoch, and over epochs or seeds of the sampler at one place.
    """
    num_hubs = {"hub": 4000}.get(by, 20)
    data = stars(num_hubs, degree)
    parts = []
    for number in range(4000 // num_hubs):
        seed = number if by == "seed" else 7
        sampler = EgoSampler(data, budget, random=True, seed=seed, seed_type="hub")
        sampler.set_epoch(number if by == "epoch" else 3)
        parts.append(sampler.sample(torch.arange(num_hubs)).node)
    node = torch.cat(parts)
    share = budget / degree
    bound = 5 * math.sqrt(4000 * share * (1 - share))
    counts = torch.bincount(node, minlength=degree)
    assert counts.sum() == 4000 * budget
    assert (counts - 4000 * share).abs().max() <= bound


# Reproducibility -----------------------------------------------------------------------------


def test_EgoSampler_epoch_is_reproducible_and_epochs_differ(synthetic: Synthetic) -> None:
    """Draws depend on (seed, epoch) alone, and change with either."""
    documents = torch.arange(400)

    def nodes(seed: int, epoch: int) -> Tensor:
        sampler = EgoSampler(synthetic[0], 2, 0, random=True, seed=seed)
        sampler.sample(documents[:17])
        sampler.set_epoch(epoch)
        return sampler.sample(documents).node

    assert torch.equal(nodes(0, 3), nodes(0, 3))
    assert not torch.equal(nodes(0, 3), nodes(0, 4))
    assert not torch.equal(nodes(0, 3), nodes(1, 3))


def test_EgoSampler_seed_draws_the_same_in_any_batch(synthetic: Synthetic) -> None:
    """A sample does not depend on the batch, its order, or the order of edge types."""
    sampler = EgoSampler(synthetic[0], 2, 5, random=True, seed=5)
    whole = unpack(sampler.sample(torch.arange(400)))
    order = torch.randperm(400, generator=torch.Generator().manual_seed(1))
    for part in order.split(33):
        for document, drawn in zip(part.tolist(), unpack(sampler.sample(part)), strict=True):
            assert drawn == whole[document]
    documents = torch.arange(400)
    fields = [("document", "has", field) for field in ("author", "reference")]
    two, turned = (
        EgoSampler(synthetic[0], 2, 0, random=True, seed=5, edge_types=edge_types)
        for edge_types in (fields, fields[::-1])
    )
    assert unpack(two.sample(documents)) == unpack(turned.sample(documents))
    assert not torch.equal(sample_uniform(documents, 5, 0, 0), sample_uniform(documents, 5, 0, 1))


def test_EgoSampler_draws_leave_the_global_generator_alone(synthetic: Synthetic) -> None:
    """Sampling does not change the state of torch's global generator."""
    state = torch.get_rng_state()
    EgoSampler(synthetic[0], 2, random=True).sample(torch.arange(50))
    assert torch.equal(torch.get_rng_state(), state)


# No leak -------------------------------------------------------------------------------------


def plant_gold(built: BuiltGraph) -> HeteroData:
    """A copy of the graph whose tagged edges are the gold labels of all documents, test too."""
    data = built.data.clone()
    document = torch.repeat_interleave(torch.arange(12), built.targets.ptr.diff())
    data[TAGGED].edge_index = torch.stack([document, built.targets.index.long()]).int()
    data["document", "hints", "label"].edge_index = data[TAGGED].edge_index
    return data


def test_EgoSampler_planted_gold_is_never_drawn(toy_graph: BuiltGraph) -> None:
    """Even if every gold label is an edge of the graph, no batch holds a label or such an edge."""
    data = plant_gold(toy_graph)
    assert data[TAGGED].edge_index.size(1) == 25
    sampler = EgoSampler(data)
    assert {edge_type[2] for edge_type in sampler.edge_types} == {*FIELDS, "word"}
    for batch in NodeLoader(data, sampler, input_nodes="document", batch_size=5):
        assert batch["label"].num_nodes == 0
        for edge_type in batch.edge_types:
            if "label" in edge_type:
                assert batch[edge_type].edge_index.size(1) == 0, edge_type


def test_EgoSampler_documents_never_reach_documents(toy_graph: BuiltGraph) -> None:
    """The batch's documents are its seeds; `cites` is not followed."""
    loader = NodeLoader(
        toy_graph.data, EgoSampler(toy_graph.data), input_nodes="document", batch_size=4
    )
    for number, batch in enumerate(loader):
        assert batch["document"].n_id.tolist() == list(range(4 * number, 4 * number + 4))
        assert batch["document", "cites", "document"].edge_index.size(1) == 0


# PyG -----------------------------------------------------------------------------------------


def assert_maps_back(batch: HeteroData, data: HeteroData, edge_type: EdgeType) -> None:
    """The batch's edges, through n_id, are the edges of the graph that e_id names."""
    row, col = batch[edge_type].edge_index
    original = data[edge_type].edge_index[:, batch[edge_type].e_id].long()
    assert torch.equal(batch[edge_type[0]].n_id[row], original[0])
    assert torch.equal(batch[edge_type[2]].n_id[col], original[1])


def test_EgoSampler_node_loader_gives_edges_of_the_graph(synthetic: Synthetic) -> None:
    """Plain NodeLoader: HeteroData of the seeds and their distinct neighbours."""
    data = synthetic[0]
    sampler = EgoSampler(data, 6, 20, random=True)
    mask = data["document"].test_mask
    seen = []
    for batch in NodeLoader(data, sampler, input_nodes=("document", mask), batch_size=16):
        assert isinstance(batch, HeteroData)
        assert batch.validate()
        assert batch["document"].batch_size == batch["document"].num_nodes
        for edge_type in sampler.edge_types:
            assert_maps_back(batch, data, edge_type)
            node = batch[edge_type[2]].n_id
            assert node.unique().numel() == node.numel()
            assert torch.equal(
                batch[edge_type[2]].train_count, data[edge_type[2]].train_count[node]
            )
        assert torch.equal(batch[CONTAINS].position, data[CONTAINS].position[batch[CONTAINS].e_id])
        seen += batch["document"].n_id.tolist()
    assert seen == mask.nonzero().view(-1).tolist()


@pytest.mark.parametrize("random", [False, True])
@pytest.mark.parametrize("seed_type", ["v0", "v1", "v2"])
def test_EgoSampler_it_works_on_any_heterogeneous_graph(seed_type: str, random: bool) -> None:
    """Unsorted edges: e_id, edge attributes and edge_index of a batch map back to true edges."""
    seed_everything(0)
    data = FakeHeteroDataset(num_graphs=1, avg_num_nodes=60, edge_dim=2)[0]
    for edge_type in data.edge_types:
        shuffled = torch.randperm(data[edge_type].edge_index.size(1))
        data[edge_type].edge_index = data[edge_type].edge_index[:, shuffled]
        data[edge_type].number = torch.arange(len(shuffled))
    sampler = EgoSampler(data, max_metadata=7, random=random, seed_type=seed_type)
    edge_types = [
        edge_type for edge_type in data.edge_types if edge_type[0] == seed_type != edge_type[2]
    ]
    assert edge_types
    assert list(sampler.edge_types) == edge_types
    lists = {edge_type: neighbours(data, edge_type) for edge_type in edge_types}
    num_seen = 0
    for batch in NodeLoader(data, sampler, input_nodes=seed_type, batch_size=13):
        for edge_type in edge_types:
            assert_maps_back(batch, data, edge_type)
            assert torch.equal(batch[edge_type].number, batch[edge_type].e_id)
            assert batch[edge_type].e_id.unique().numel() == batch[edge_type].e_id.numel()
        for place, node in enumerate(batch[seed_type].n_id.tolist()):
            shares = pour([len(lists[edge_type][node]) for edge_type in edge_types], 7)
            for edge_type, share in zip(edge_types, shares, strict=True):
                row, col = batch[edge_type].edge_index
                drawn = Counter(batch[edge_type[2]].n_id[col[row == place]].tolist())
                assert drawn.total() == share
                assert not drawn - Counter(lists[edge_type][node])
        num_seen += batch[seed_type].num_nodes
    assert num_seen == data[seed_type].num_nodes


def test_EgoSampler_type_two_edge_types_reach_is_numbered_once() -> None:
    """Nodes reached on two ways are one node of the batch."""
    data = HeteroData()
    data["document"].num_nodes = 2
    data["author"].num_nodes = 5
    data["document", "has", "author"].edge_index = torch.tensor([[0, 0, 1], [4, 2, 0]])
    data["document", "thanks", "author"].edge_index = torch.tensor([[0, 1, 1], [2, 3, 4]])
    (batch,) = NodeLoader(data, EgoSampler(data), input_nodes="document", batch_size=2)
    assert batch["author"].n_id.tolist() == [0, 2, 3, 4]
    for edge_type in data.edge_types:
        assert batch[edge_type].edge_index.size(1) == 3
        assert_maps_back(batch, data, edge_type)
    assert batch["author"].num_sampled_nodes == [0, 4]
    assert batch["document"].num_sampled_nodes == [2, 0]


def test_EgoSampler_graph_without_neighbours_gives_empty() -> None:
    """A graph without neighbours gives empty networks.

    Only documents: draws are empty, and so are the batches.
    """
    data = HeteroData()
    data["document"].num_nodes = 3
    draw = EgoSampler(data).sample(torch.tensor([2, 0]))
    assert draw.ptr.tolist() == [0, 0, 0]
    assert draw.node.numel() == 0
    (batch,) = NodeLoader(data, EgoSampler(data), input_nodes="document", batch_size=3)
    assert batch["document"].num_nodes == 3


def test_EgoSampler_chosen_edge_types_are_the_only_ones(toy_graph: BuiltGraph) -> None:
    """Sequences stay last whatever the order given."""
    edge_types = [CONTAINS, ("document", "has", "author")]
    sampler = EgoSampler(toy_graph.data, edge_types=edge_types)
    assert sampler.edge_types == (("document", "has", "author"), CONTAINS)
    drawn = unpack(sampler.sample(torch.tensor([0])))[0]
    assert set(drawn) == set(edge_types)
    assert len(drawn["document", "has", "author"]) == 2


# Errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "edge_type",
    [
        ("document", "tagged", "label"),
        ("document", "cites", "document"),
        ("label", "is_a", "label"),
        ("document", "has", "journal"),
    ],
)
def test_EgoSampler_wrong_edge_types_are_refused(
    toy_graph: BuiltGraph, edge_type: EdgeType
) -> None:
    """Labels, seeds, other starts and unknown types cannot be asked for."""
    known = [("document", "has", field) for field in FIELDS] + [CONTAINS]
    with pytest.raises(GraphError) as caught:
        EgoSampler(toy_graph.data, edge_types=[CONTAINS, edge_type])
    assert str(caught.value) == (
        f"EgoSampler samples edges that start at 'document' and lead neither to labels nor to "
        f"seeds, found {edge_type}; choose from {known}."
    )


def test_EgoSampler_repeated_edge_type_is_refused(toy_graph: BuiltGraph) -> None:
    """Twice the same edges would be drawn twice."""
    with pytest.raises(GraphError) as caught:
        EgoSampler(toy_graph.data, edge_types=[CONTAINS, CONTAINS])
    assert str(caught.value) == (
        f"EgoSampler samples each edge type once, found one repeated in {[CONTAINS, CONTAINS]}."
    )


def test_EgoSampler_unknown_seed_type_is_refused(toy_graph: BuiltGraph) -> None:
    """In a sentence, and the graph gets no such type."""
    with pytest.raises(GraphError) as caught:
        EgoSampler(toy_graph.data, seed_type="paper")
    assert str(caught.value) == (
        "A graph must tell how many nodes of each type it has, found no number of 'paper'; set "
        "data['paper'].num_nodes."
    )
    assert "paper" not in toy_graph.data.node_types


@pytest.mark.parametrize(("max_metadata", "max_words"), [(-1, 5), (5, -2)])
def test_EgoSampler_negative_budgets_are_refused(
    toy_graph: BuiltGraph, max_metadata: int, max_words: int
) -> None:
    """Both values are in the sentence."""
    with pytest.raises(GraphError) as caught:
        EgoSampler(toy_graph.data, max_metadata, max_words)
    assert str(caught.value) == (
        f"max_metadata and max_words must be at least 0, found {max_metadata} and {max_words}."
    )


def test_EgoSampler_edges_cannot_be_seeds(toy_graph: BuiltGraph) -> None:
    """PyG's other entry says what to use."""
    with pytest.raises(GraphError) as caught:
        EgoSampler(toy_graph.data).sample_from_edges(None)
    assert str(caught.value) == (
        "EgoSampler samples around nodes, found a call for edges; use NodeLoader."
    )
