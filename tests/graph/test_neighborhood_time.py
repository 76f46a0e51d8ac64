"""Draws up to a time: no later document by any way, on any hop, against a slow search."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.data import HeteroData
from torch_geometric.loader import NodeLoader

from match_graph.datasets import Synthetic
from match_graph.errors import GraphError
from match_graph.graph import Neighborhood, NeighborhoodSampler
from match_graph.graph.adjacency import check_times
from match_graph.typing import CITES, DOCUMENT, EdgeType, has_edge, reverse_edge

AUTHOR = has_edge("author")
WAYS = (AUTHOR, reverse_edge(AUTHOR), CITES, reverse_edge(CITES))
NUM_DOCUMENTS, NUM_AUTHORS = 7, 4

documents = st.integers(0, NUM_DOCUMENTS - 1)
cites_of = st.lists(st.tuples(documents, documents), max_size=14)
authors_of = st.lists(st.tuples(documents, st.integers(0, NUM_AUTHORS - 1)), max_size=14)
times_of = st.lists(st.integers(-2, 2), min_size=NUM_DOCUMENTS, max_size=NUM_DOCUMENTS)
masks = st.none() | st.lists(st.booleans(), min_size=NUM_DOCUMENTS, max_size=NUM_DOCUMENTS)


def fan(hops: list[int]) -> dict[EdgeType, list[int]]:
    return dict.fromkeys(WAYS, hops)


def make(cites: list, authors: list, time: list[int]) -> HeteroData:
    data = HeteroData()
    data[DOCUMENT].num_nodes, data["author"].num_nodes = NUM_DOCUMENTS, NUM_AUTHORS
    data[DOCUMENT].time = torch.tensor(time)
    for edge_type, pairs in ((CITES, cites), (AUTHOR, authors)):
        data[edge_type].edge_index = torch.tensor(pairs, dtype=torch.int32).view(-1, 2).t()
    return data


def search(
    data: HeteroData, seed: int, until: float, hops: int, reachable: list[bool] | None
) -> tuple[set[tuple[str, int]], set[tuple[EdgeType, int]]]:
    """Breadth-first over lists of edges, around later documents."""
    time = data[DOCUMENT].time.tolist()
    nodes, edges = {(DOCUMENT, seed)}, set()
    frontier = set(nodes)
    for _ in range(hops):
        new = set()
        for edge_type in (CITES, AUTHOR):
            for number, (row, col) in enumerate(data[edge_type].edge_index.t().tolist()):
                ends = (edge_type[0], row), (edge_type[2], col)
                for start, end in (ends, ends[::-1]):
                    is_document = end[0] == DOCUMENT
                    if is_document and time[end[1]] > until:
                        continue
                    if is_document and reachable is not None and not reachable[end[1]]:
                        continue
                    if start in frontier:
                        edges.add((edge_type, number))
                        new.add(end)
        frontier = new - nodes
        nodes |= new
    return nodes, edges


def component(draw: Neighborhood, number: int) -> tuple[list, list]:
    nodes = [
        (name, value)
        for name, node in draw.node.items()
        for value in node[draw.root[name] == number].tolist()
    ]
    edges = [
        (edge_type, value)
        for edge_type, edge in draw.edge.items()
        for value in edge[draw.root[edge_type[0]][draw.row[edge_type]] == number].tolist()
    ]
    return nodes, edges


# Against a search ----------------------------------------------------------------------------


@given(cites_of, authors_of, times_of, times_of, st.integers(1, 3), masks)
def test_NeighborhoodSampler_up_to_a_time_is_a_search(
    cites: list, authors: list, time: list[int], until: list[int], hops: int, mask: list | None
) -> None:
    """All edges: exactly the nodes and edges that a search around later documents finds."""
    data = make(cites, authors, time)
    reachable = None if mask is None else torch.tensor(mask)
    sampler = NeighborhoodSampler(data, fan([-1] * hops), reachable)
    draw = sampler.sample(torch.arange(NUM_DOCUMENTS), torch.tensor(until))
    for document in range(NUM_DOCUMENTS):
        nodes, edges = component(draw, document)
        assert len(nodes) == len(set(nodes))
        expected = search(data, document, until[document], hops, mask)
        assert (set(nodes), set(edges)) == expected


@given(cites_of, authors_of, times_of, times_of, st.integers(1, 2), st.booleans())
def test_NeighborhoodSampler_up_to_a_time_fills_the_fanouts(
    cites: list, authors: list, time: list[int], until: list[int], fanout: int, random: bool
) -> None:
    """On the first hop min(fan-out, what is early enough), and the same alone as in a batch."""
    data = make(cites, authors, time)
    sampler = NeighborhoodSampler(data, fan([fanout, fanout]), random=random)
    seed, limit = torch.arange(NUM_DOCUMENTS), torch.tensor(until)
    one_hop = NeighborhoodSampler(data, {CITES: [fanout]}, random=random).sample(seed, limit)
    together = sampler.sample(seed, limit)
    for document in range(NUM_DOCUMENTS):
        allowed = [
            end for start, end in cites if start == document and time[end] <= until[document]
        ]
        edges = component(one_hop, document)[1]
        assert len(edges) == len(set(edges)) == min(fanout, len(allowed))
        alone = sampler.sample(seed[document : document + 1], limit[document : document + 1])
        assert [*map(set, component(alone, 0))] == [*map(set, component(together, document))]


# Ways to ask ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def timed(synthetic: Synthetic) -> HeteroData:
    """A planted graph with times, many of them equal."""
    data = synthetic[0].clone()
    generator = torch.Generator().manual_seed(0)
    data[DOCUMENT].time = torch.randint(0, 40, (400,), generator=generator)
    return data


def reached(draw: Neighborhood, num_seeds: int) -> tuple[Tensor, Tensor]:
    """The documents that a draw reached, and their seeds."""
    return draw.node[DOCUMENT][num_seeds:], draw.root[DOCUMENT][num_seeds:]


def test_NeighborhoodSampler_draws_of_two_kinds_do_not_mix(timed: HeteroData) -> None:
    """A draw up to a time changes nothing of those without one, before and after it."""
    seed = torch.arange(50)
    sampler = NeighborhoodSampler(timed, fan([3, 2]))
    expected = NeighborhoodSampler(timed, fan([3, 2])).sample(seed)
    before = sampler.sample(seed)
    sampler.sample(seed, timed[DOCUMENT].time[:50])
    for found in (before, sampler.sample(seed)):
        assert all(torch.equal(found.node[name], node) for name, node in expected.node.items())
        assert all(torch.equal(found.edge[name], edge) for name, edge in expected.edge.items())


@pytest.mark.parametrize("dtype", [torch.int32, torch.float64])
def test_NeighborhoodSampler_node_loader_with_input_time(
    timed: HeteroData, dtype: torch.dtype
) -> None:
    """PyG's loader hands its times on; what came before all others reaches nothing."""
    data = timed.clone()
    data[DOCUMENT].time = data[DOCUMENT].time.to(dtype)
    sampler = NeighborhoodSampler(data, fan([3, 3]), random=True)
    documents = torch.arange(60)
    until = data[DOCUMENT].time[documents] - 5
    loader = NodeLoader(
        data, sampler, input_nodes=(DOCUMENT, documents), input_time=until, batch_size=16
    )
    number = 0
    for batch in loader:
        store, size = batch[DOCUMENT], batch[DOCUMENT].batch_size
        limit = store.seed_time[store.batch]
        assert torch.equal(store.seed_time, until[store.input_id])
        assert (store.time[size:] <= limit[size:]).all()
        number += store.num_nodes - size
    assert number > 200
    before = torch.full((60,), -1).to(dtype)
    assert reached(sampler.sample(documents, before), 60)[0].numel() == 0


def test_NeighborhoodSampler_adopted_seeds_have_times_too(timed: HeteroData) -> None:
    """Seeds outside the graph; the graph's own documents are sorted for them too."""
    new = HeteroData()
    new[DOCUMENT].num_nodes = 2
    new["author"].num_nodes = timed["author"].num_nodes
    every = torch.arange(400).repeat(2)
    new[CITES].edge_index = torch.stack([torch.arange(2).repeat_interleave(400), every])
    new[reverse_edge(CITES)].edge_index = new[CITES].edge_index
    sampler = NeighborhoodSampler(timed, fan([-1, 5])).adopt(new)
    node, root = reached(sampler.sample(torch.arange(2), torch.tensor([7, 30])), 2)
    limit = torch.tensor([7, 30])[root]
    assert (timed[DOCUMENT].time[node] <= limit).all()
    early = [int((timed[DOCUMENT].time <= until).sum()) for until in (7, 30)]
    assert torch.bincount(root).tolist() == early


# Faults --------------------------------------------------------------------------------------


def test_check_times_faults_are_one_sentence() -> None:
    """No time, too few, NaN; limits of another number or kind."""
    data = HeteroData()
    data[DOCUMENT].num_nodes = 3
    with pytest.raises(GraphError) as caught:
        NeighborhoodSampler(data, {}).sample(torch.arange(2), torch.arange(2))
    assert str(caught.value) == (
        "Neighbours up to a time can be sampled only where 'document' has a time, found none in "
        "the graph; set data['document'].time, [num_nodes]."
    )
    for time, shape, number in (
        (torch.arange(2), "[2]", 0),
        (torch.tensor([1, torch.nan, 2]), "[3]", 1),
    ):
        with pytest.raises(GraphError) as caught:
            check_times(time, 3, DOCUMENT, torch.arange(2), 2)
        assert str(caught.value) == (
            f"The time of 'document' must be one number for each of its 3 nodes, found {shape}, of "
            f"which {number} are NaN; give every node a time."
        )
    for limit, found in (
        (torch.arange(3), "torch.int64 [3], of which 0"),
        (torch.rand(2), "torch.float32 [2], of which 0"),
        (torch.tensor([0.5, torch.nan]), "torch.float32 [2], of which 1"),
    ):
        with pytest.raises(GraphError) as caught:
            check_times(torch.arange(3), 3, DOCUMENT, limit, 2)
        assert str(caught.value) == (
            f"The times up to which to sample must be 2 numbers of the kind of the graph's, "
            f"torch.int64, found {found} are NaN; give every seed a time."
        )
