"""Neighbourhoods of several hops against breadth-first search; probabilities, costs, no leak."""

from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch_geometric import seed_everything
from torch_geometric.data import HeteroData
from torch_geometric.datasets import FakeHeteroDataset
from torch_geometric.loader import NodeLoader

from match_graph.datasets import Synthetic
from match_graph.errors import GraphError
from match_graph.graph import BuiltGraph, EgoSampler, Neighborhood, NeighborhoodSampler
from match_graph.typing import CITES, CONTAINS, DOCUMENT, EdgeType, has_edge, reverse_edge

AUTHOR = has_edge("author")


def fan(data: HeteroData, *hops: int, but: str = "label") -> dict[EdgeType, list[int]]:
    """The same fan-outs for every edge type in both directions."""
    edge_types = [edge_type for edge_type in data.edge_types if but not in edge_type]
    return {
        name: list(hops)
        for edge_type in edge_types
        for name in (edge_type, reverse_edge(edge_type))
    }


def search(
    data: HeteroData,
    seed: int,
    fanouts: dict[EdgeType, list[int]],
    reachable: list[bool] | None = None,
    seed_type: str = DOCUMENT,
) -> tuple[set[tuple[str, int]], set[tuple[EdgeType, int]]]:
    """Breadth-first search over lists of edges: all nodes and edges within the hops."""
    edges = [
        (edge_type, data[edge_type].edge_index.t().tolist())
        for edge_type in data.edge_types
        if "label" not in edge_type
    ]
    nodes, found = {(seed_type, seed)}, set()
    frontier = set(nodes)
    for hop in range(max(map(len, fanouts.values()))):
        nxt = set()
        for edge_type, pairs in edges:
            for number, (row, col) in enumerate(pairs):
                for way, start, end in (
                    (edge_type, (edge_type[0], row), (edge_type[2], col)),
                    (reverse_edge(edge_type), (edge_type[2], col), (edge_type[0], row)),
                ):
                    follows = way in fanouts and fanouts[way][hop : hop + 1] == [-1]
                    seen = reachable is None or end[0] != seed_type or reachable[end[1]]
                    if follows and start in frontier and seen:
                        found.add((edge_type, number))
                        nxt.add(end)
        frontier = nxt - nodes
        nodes |= nxt
    return nodes, found


def component(draw: Neighborhood, number: int) -> tuple[list, list]:
    """Nodes and edges of one seed's component, as the search names them."""
    nodes, edges = [], []
    for name, node in draw.node.items():
        nodes += [(name, value) for value in node[draw.root[name] == number].tolist()]
    for edge_type, edge in draw.edge.items():
        inside = draw.root[edge_type[0]][draw.row[edge_type]] == number
        assert torch.equal(inside, draw.root[edge_type[2]][draw.col[edge_type]] == number)
        edges += [(edge_type, value) for value in edge[inside].tolist()]
    return nodes, edges


# Breadth-first search ------------------------------------------------------------------------


@pytest.mark.parametrize("hops", [1, 2, 3])
@pytest.mark.parametrize("transductive", [False, True])
def test_NeighborhoodSampler_all_edges_are_those_of_a_search(
    toy_graph: BuiltGraph, hops: int, transductive: bool
) -> None:
    """Unlimited fan-outs: nodes and edges of every document's component, each once."""
    data = toy_graph.data
    mask = torch.ones(12, dtype=torch.bool) if transductive else data[DOCUMENT].train_mask
    fanouts = fan(data, *[-1] * hops)
    draw = NeighborhoodSampler(data, fanouts, mask).sample(torch.arange(12))
    for document in range(12):
        nodes, edges = component(draw, document)
        expected = search(data, document, fanouts, mask.tolist())
        assert len(nodes) == len(set(nodes))
        assert len(edges) == len(set(edges))
        assert (set(nodes), set(edges)) == expected


def test_NeighborhoodSampler_each_hop_has_its_own_edge_types(toy_graph: BuiltGraph) -> None:
    """Only the edge types and directions that a hop names are followed then, none past the last."""
    data = toy_graph.data
    fanouts = {
        AUTHOR: [-1], reverse_edge(AUTHOR): [0, -1, 0], CITES: [0, 0, -1], CONTAINS: [0],
        reverse_edge(CITES): [-1, 0, -1],
    }  # fmt: skip
    draw = NeighborhoodSampler(data, fanouts).sample(torch.arange(12))
    assert set(draw.node) == {DOCUMENT, "author"}  # words are never drawn
    for document in range(12):
        nodes, edges = component(draw, document)
        assert (set(nodes), set(edges)) == search(data, document, fanouts)


@pytest.mark.parametrize("seed_type", ["v0", "v1"])
def test_NeighborhoodSampler_it_works_on_any_heterogeneous_graph(seed_type: str) -> None:
    """Unsorted edges, loops and several edge types between two types of nodes."""
    seed_everything(0)
    data = FakeHeteroDataset(num_graphs=1, avg_num_nodes=12, avg_degree=2)[0]
    for edge_type in data.edge_types:
        shuffled = torch.randperm(data[edge_type].edge_index.size(1))
        data[edge_type].edge_index = data[edge_type].edge_index[:, shuffled]
    fanouts = fan(data, -1, -1)
    num_seeds = int(data[seed_type].num_nodes)
    reachable = torch.arange(num_seeds) % 3 > 0
    sampler = NeighborhoodSampler(data, fanouts, reachable, seed_type=seed_type)
    draw = sampler.sample(torch.arange(num_seeds))
    for number in range(num_seeds):
        nodes, edges = component(draw, number)
        expected = search(data, number, fanouts, reachable.tolist(), seed_type)
        assert (set(nodes), set(edges)) == expected


# Draws ---------------------------------------------------------------------------------------


def check_edges(draw: Neighborhood, data: HeteroData) -> None:
    """Every edge joins the nodes that the graph says."""
    for edge_type, edge in draw.edge.items():
        row, col = data[edge_type].edge_index[:, edge].long()
        assert torch.equal(draw.node[edge_type[0]][draw.row[edge_type]], row)
        assert torch.equal(draw.node[edge_type[2]][draw.col[edge_type]], col)


@pytest.mark.parametrize("random", [False, True])
def test_NeighborhoodSampler_fanouts_are_respected(synthetic: Synthetic, random: bool) -> None:
    """Of every node exactly min(fan-out, what it has), true edges, none twice."""
    data = synthetic[0]
    fanouts = {CONTAINS: [5, 0], AUTHOR: [2, 0], reverse_edge(AUTHOR): [0, 3]}
    sampler = NeighborhoodSampler(data, fanouts, random=random)
    seed = torch.randperm(400)[:60]
    draw = sampler.sample(seed)
    check_edges(draw, data)
    assert torch.equal(draw.node[DOCUMENT][:60], seed)
    num_words = torch.bincount(data[CONTAINS].edge_index[0], minlength=400)[seed]
    drawn = torch.bincount(draw.row[CONTAINS], minlength=60)
    assert drawn[:60].tolist() == num_words.clamp(max=5).tolist()
    assert drawn[60:].sum() == 0
    num_documents = torch.bincount(data[AUTHOR].edge_index[1], minlength=data["author"].num_nodes)
    author = draw.node["author"]
    pairs = Counter(zip(draw.col[AUTHOR].tolist(), draw.row[AUTHOR].tolist(), strict=True))
    by_author = Counter(place for place, _ in pairs)
    for place, name in enumerate(author.tolist()):
        least = min(3, int(num_documents[name]))  # and perhaps the seed's own edge
        assert least <= by_author[place] <= least + 1


def test_NeighborhoodSampler_draws_each_edge_type_by_itself() -> None:
    """Places among ten authors are not those among ten venues."""
    data = HeteroData({DOCUMENT: {"num_nodes": 50}})
    for name in ("author", "venue"):
        data[name].num_nodes = 10
        pairs = torch.cartesian_prod(torch.arange(50), torch.arange(10))
        data[has_edge(name)].edge_index = pairs.T
    fanouts = {has_edge(name): [1] for name in ("author", "venue")}
    draw = NeighborhoodSampler(data, fanouts, random=True).sample(torch.arange(50))
    assert not torch.equal(*(draw.edge[edge_type] for edge_type in fanouts))


def star(degree: int) -> HeteroData:
    """One hub, hit by ``degree`` documents; document 0 is the seed."""
    data = HeteroData()
    data[DOCUMENT].num_nodes = degree
    data["word"].num_nodes = 1
    data[CONTAINS].edge_index = torch.stack(
        [torch.arange(degree), torch.zeros(degree, dtype=torch.int64)]
    ).int()
    return data


HUB = {CONTAINS: [1], reverse_edge(CONTAINS): [0, 4]}


@pytest.mark.parametrize("by", ["epoch", "seed", "document"])
def test_NeighborhoodSampler_every_neighbour_has_the_same_chance(by: str) -> None:
    """A chi-square test over 800 to 3,000 draws of four of twenty documents at a word."""
    data = star(20)
    counts = torch.zeros(20)
    sampler = NeighborhoodSampler(data, HUB, random=True, seed=3)
    if by == "document":  # each of the twenty documents, 150 epochs
        for epoch in range(150):
            sampler.set_epoch(epoch)
            draw = sampler.sample(torch.arange(20))
            others = draw.col[CONTAINS].numel()
            assert 4 * 20 <= others <= 5 * 20
            for number in range(20):
                row = draw.node[DOCUMENT][draw.row[CONTAINS]]
                mine = row[draw.root[DOCUMENT][draw.row[CONTAINS]] == number]
                counts[mine[mine != number]] += 1
        expected = counts.sum() / 20
    else:
        for number in range(800):
            if by == "seed":
                sampler = NeighborhoodSampler(data, HUB, random=True, seed=number)
            else:
                sampler.set_epoch(number)
            counts[sampler.sample(torch.tensor([0])).node[DOCUMENT]] += 1
        counts = counts[1:]  # the seed itself is always there
        assert abs(float(counts.sum()) / 800 - (4 - 4 / 20)) < 0.1
        expected = counts.sum() / 19
    assert float(((counts - expected) ** 2 / expected).sum()) < 50


class CountCost(TorchDispatchMode):
    """Counts the values that all torch operations return."""

    cost = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        out = func(*args, **(kwargs or {}))
        parts = out if isinstance(out, tuple | list) else [out]
        is_view = func._schema.returns and func._schema.returns[0].alias_info is not None
        if not is_view:
            self.cost += sum(part.numel() for part in parts if isinstance(part, Tensor))
        return out


def test_NeighborhoodSampler_draw_costs_fan_out_and_not_degree() -> None:
    """At a word with 700,000 documents no more values are touched than at one with 50."""
    costs = []
    for degree in (50, 700_000):
        sampler = NeighborhoodSampler(star(degree), HUB)
        with CountCost() as counter:
            sampler.sample(torch.zeros(8, dtype=torch.int64))
        costs.append(counter.cost)
    assert costs[1] < 1.2 * costs[0] < 20_000


def as_sets(draw: Neighborhood, number: int) -> tuple[frozenset, frozenset]:
    nodes, edges = component(draw, number)
    return frozenset(nodes), frozenset(edges)


@pytest.mark.parametrize("random", [False, True])
def test_NeighborhoodSampler_component_does_not_depend_on_batch(
    synthetic: Synthetic, random: bool
) -> None:
    """Alone, in another order, after other draws, beside itself: the same."""
    data = synthetic[0]
    sampler = NeighborhoodSampler(data, fan(data, 3, 2), random=random, seed=2)
    together = sampler.sample(torch.arange(50))
    mixed = sampler.sample(torch.tensor([7, 49, 7, 3]))
    alone = sampler.sample(torch.tensor([7]))
    assert as_sets(alone, 0) == as_sets(mixed, 0) == as_sets(mixed, 2) == as_sets(together, 7)
    assert as_sets(mixed, 1) == as_sets(together, 49)


def test_NeighborhoodSampler_draws_depend_seed_and_epoch_alone(synthetic: Synthetic) -> None:
    """Random ones change with both; the others with the seed only. No generator is touched."""
    data = synthetic[0]
    documents = torch.arange(40)
    state = torch.get_rng_state()

    def edges(seed: int, epoch: int, random: bool) -> list[int]:
        sampler = NeighborhoodSampler(data, {CONTAINS: [4]}, random=not random, seed=seed)
        sampler = sampler.with_random(random)
        sampler.set_epoch(epoch)
        return sampler.sample(documents).edge[CONTAINS].tolist()

    assert edges(0, 3, True) == edges(0, 3, True)
    assert edges(0, 3, True) != edges(0, 4, True)
    assert edges(0, 3, True) != edges(1, 3, True)
    assert edges(0, 3, False) == edges(0, 4, False) != edges(1, 3, False)
    assert torch.equal(torch.get_rng_state(), state)


# No leak -------------------------------------------------------------------------------------


def plant(data: HeteroData) -> HeteroData:
    """A copy with edges from labels to everything, one label for each document."""
    planted = data.clone()
    document = torch.arange(12, dtype=torch.int32)
    label = document % int(data["label"].num_nodes)
    planted["document", "tagged", "label"].edge_index = torch.stack([document, label])
    planted["label", "marks", "document"].edge_index = torch.stack([label, document])
    planted["word", "hints", "label"].edge_index = torch.stack([document, label])
    return planted


def test_NeighborhoodSampler_no_label_is_ever_drawn(toy_graph: BuiltGraph) -> None:
    """Whatever joins labels to other nodes: not drawn, and refused where it is asked for."""
    data = plant(toy_graph.data)
    draw = NeighborhoodSampler(data, fan(data, -1, -1, -1)).sample(torch.arange(12))
    assert "label" not in draw.node
    assert not any("label" in edge_type for edge_type in draw.edge)
    known = [edge_type for edge_type in data.edge_types if "label" not in edge_type]
    for edge_type in data.edge_types:
        if "label" not in edge_type:
            continue
        for way in (edge_type, reverse_edge(edge_type)):
            with pytest.raises(GraphError) as caught:
                NeighborhoodSampler(data, {way: [1]})
            assert str(caught.value) == (
                f"NeighborhoodSampler samples edges of the graph or their reverses that do not "
                f"touch labels, found {way}; choose from {[*known, *map(reverse_edge, known)]}."
            )


def test_NeighborhoodSampler_only_reachable_documents_reached(synthetic: Synthetic) -> None:
    """Through citations, metadata and words, in every hop; the seeds are of any split."""
    data = synthetic[0]
    train = data[DOCUMENT].train_mask
    fanouts = fan(data, 3, 3, 3)
    draw = NeighborhoodSampler(data, fanouts, train, random=True).sample(torch.arange(400))
    assert train[draw.node[DOCUMENT][400:]].all()
    assert draw.node[DOCUMENT].numel() > 1000
    everyone = NeighborhoodSampler(data, fanouts, random=True).sample(torch.arange(400))
    assert not train[everyone.node[DOCUMENT][400:]].all()


# Seeds outside the graph ---------------------------------------------------------------------


def cut_out(data: HeteroData, documents: Tensor) -> HeteroData:
    """Some documents with their edges, numbered anew; what is at the other ends as it was."""
    number = torch.full((int(data[DOCUMENT].num_nodes),), -1)
    number[documents] = torch.arange(len(documents))
    cut = HeteroData()
    cut[DOCUMENT].num_nodes = len(documents)
    for edge_type in [
        edge_type
        for edge_type in data.edge_types
        if "label" not in edge_type and edge_type[0] == DOCUMENT
    ]:
        row, col = data[edge_type].edge_index.long()
        kept = number[row] >= 0
        if edge_type[2] != DOCUMENT:
            cut[edge_type[2]].num_nodes = int(data[edge_type[2]].num_nodes)
        cut[edge_type].edge_index = torch.stack([number[row[kept]], col[kept]])
    row, col = data[CITES].edge_index.long()
    kept = number[col] >= 0
    cut[reverse_edge(CITES)].edge_index = torch.stack([number[col[kept]], row[kept]])
    return cut


def test_NeighborhoodSampler_adopted_documents_draw_those_graph(synthetic: Synthetic) -> None:
    """Test documents taken out of the graph find the same neighbours by the same draws."""
    data = synthetic[0]
    documents = data[DOCUMENT].test_mask.nonzero().view(-1)
    sampler = NeighborhoodSampler(data, fan(data, 4, 3, 2), data[DOCUMENT].train_mask, seed=5)
    expected = sampler.sample(documents)
    found = sampler.adopt(cut_out(data, documents)).sample(torch.arange(len(documents)))
    assert found.node[DOCUMENT][: len(documents)].tolist() == [
        400 + number for number in range(len(documents))
    ]
    for name, node in expected.node.items():
        start = len(documents) if name == DOCUMENT else 0
        assert torch.equal(found.node[name][start:], node[start:]), name
        assert torch.equal(found.root[name], expected.root[name])
    for edge_type in expected.edge:
        pairs = [
            sorted(zip(draw.row[edge_type].tolist(), draw.col[edge_type].tolist(), strict=True))
            for draw in (found, expected)
        ]
        assert pairs[0] == pairs[1], edge_type
        of_seeds = found.row[edge_type] < len(documents)
        if edge_type == CITES:
            of_seeds |= found.col[edge_type] < len(documents)
        assert torch.equal(found.edge[edge_type] < 0, of_seeds)


def test_NeighborhoodSampler_adopted_with_unknown_neighbours(toy_graph: BuiltGraph) -> None:
    """Numbers past the graph are nodes without neighbours of their own."""
    data = toy_graph.data
    num_authors = int(data["author"].num_nodes)
    new = HeteroData()
    new[DOCUMENT].num_nodes = 2
    new["author"].num_nodes = num_authors + 2
    new[AUTHOR].edge_index = torch.tensor([[0, 0, 1], [0, num_authors, num_authors + 1]])
    fanouts = {AUTHOR: [-1], reverse_edge(AUTHOR): [0, -1]}
    draw = NeighborhoodSampler(data, fanouts).adopt(new).sample(torch.arange(2))
    of_second = draw.node[DOCUMENT][draw.root[DOCUMENT] == 1]
    assert of_second.tolist() == [13]
    assert draw.node["author"][draw.root["author"] == 1].tolist() == [num_authors + 1]
    writers = data[AUTHOR].edge_index[0][data[AUTHOR].edge_index[1] == 0].tolist()
    assert draw.node[DOCUMENT][draw.root[DOCUMENT] == 0].tolist() == [12, *writers]


def test_NeighborhoodSampler_adopted_edges_both_ways_stay(toy_graph: BuiltGraph) -> None:
    """A new document that cites one and is cited by another has both edges."""
    new = HeteroData()
    new[DOCUMENT].num_nodes = 1
    new[CITES].edge_index = torch.tensor([[0], [3]])
    new[reverse_edge(CITES)].edge_index = torch.tensor([[0], [5]])
    fanouts = {CITES: [-1], reverse_edge(CITES): [-1]}
    found = NeighborhoodSampler(toy_graph.data, fanouts).adopt(new).sample(torch.arange(1))
    node = found.node[DOCUMENT]
    pairs = zip(node[found.row[CITES]].tolist(), node[found.col[CITES]].tolist(), strict=True)
    assert sorted(pairs) == [(5, 12), (12, 3)]
    assert found.edge[CITES].unique().numel() == 2


def test_NeighborhoodSampler_adopted_from_a_smaller_graph(synthetic: Synthetic) -> None:
    """A graph of new documents may count fewer nodes of a type than are reached from them."""
    data = synthetic[0]
    documents = data[DOCUMENT].test_mask.nonzero().view(-1)
    sampler = NeighborhoodSampler(data, fan(data, 4, 3), data[DOCUMENT].train_mask)
    new = cut_out(data, documents)
    expected = sampler.adopt(new).sample(torch.arange(9))
    for name in set(new.node_types) - {DOCUMENT}:
        new[name].num_nodes = 1
    found = sampler.adopt(new).sample(torch.arange(9))
    for name, node in expected.node.items():
        assert torch.equal(found.node[name], node), name
        assert torch.equal(found.root[name], expected.root[name]), name


# PyG and faults ------------------------------------------------------------------------------


def test_NeighborhoodSampler_node_loader_takes_it(synthetic: Synthetic) -> None:
    """Plain NodeLoader: features and edges follow, `batch` tells the components apart."""
    data = synthetic[0]
    sampler = NeighborhoodSampler(data, fan(data, 3, 2), random=True)
    for batch in NodeLoader(data, sampler, input_nodes=(DOCUMENT, torch.arange(30)), batch_size=8):
        assert isinstance(batch, HeteroData)
        assert torch.equal(
            batch[DOCUMENT].n_id[: batch[DOCUMENT].batch_size], batch[DOCUMENT].input_id
        )
        assert torch.equal(batch["word"].train_count, data["word"].train_count[batch["word"].n_id])
        for edge_type in sampler.edge_types:
            row, col = batch[edge_type].edge_index
            assert torch.equal(batch[edge_type[0]].batch[row], batch[edge_type[2]].batch[col])
            original = data[edge_type].edge_index[:, batch[edge_type].e_id].long()
            assert torch.equal(batch[edge_type[0]].n_id[row], original[0])
            assert torch.equal(batch[edge_type[2]].n_id[col], original[1])


@pytest.mark.parametrize("cls", [NeighborhoodSampler, EgoSampler])
def test_EpochSampler_seeds_are_nodes_of_its_type(cls: Any, synthetic: Synthetic) -> None:
    """Indices of other node types must not be taken for documents, nor negative ones."""
    data = synthetic[0]
    sampler = cls(data, fan(data, 3)) if cls is NeighborhoodSampler else cls(data)
    number = synthetic.num_documents
    loader = NodeLoader(data, sampler, input_nodes=("author", torch.arange(5)), batch_size=2)
    with pytest.raises(GraphError) as caught:
        next(iter(loader))
    assert str(caught.value) == (
        "The seeds must be of the sampler's seed_type 'document', found 'author'; make a sampler "
        "with seed_type='author'."
    )
    for wrong in (-1, number):
        with pytest.raises(GraphError) as caught:
            sampler.sample(torch.tensor([3, wrong]))
        low, high = sorted([3, wrong])
        assert str(caught.value) == (
            f"Nodes of 'document' must be in 0..{number - 1}, found {low}..{high}."
        )


def test_NeighborhoodSampler_nothing_drawn_empty_neighbourhood(toy_graph: BuiltGraph) -> None:
    """No fan-out, no seed: the seeds alone, and nothing."""
    draw = NeighborhoodSampler(toy_graph.data, {}).sample(torch.tensor([3, 3]))
    assert draw.node[DOCUMENT].tolist() == [3, 3]
    assert draw.edge == {}
    nothing = torch.empty(0, dtype=torch.int64)
    draw = NeighborhoodSampler(toy_graph.data, fan(toy_graph.data, 2)).sample(nothing)
    assert all(node.numel() == 0 for node in draw.node.values())


def test_NeighborhoodSampler_faults_are_one_sentence(toy_graph: BuiltGraph) -> None:
    """Fan-outs below -1, a mask of another size or type, edges as seeds."""
    data = toy_graph.data
    with pytest.raises(GraphError) as caught:
        NeighborhoodSampler(data, {CONTAINS: [3, -2]})
    assert str(caught.value) == (
        f"A fan-out must be at least 0, or -1 for all, found [3, -2] for {CONTAINS}."
    )
    for mask in (torch.ones(3, dtype=torch.bool), torch.ones(12)):
        with pytest.raises(GraphError) as caught:
            NeighborhoodSampler(data, {}, mask)
        assert str(caught.value) == (
            f"reachable must be a mask of the 12 nodes of 'document', found {mask.dtype} "
            f"{list(mask.shape)}."
        )
    with pytest.raises(GraphError) as caught:
        NeighborhoodSampler(data, {}).sample_from_edges(None)
    assert str(caught.value) == (
        "NeighborhoodSampler samples around nodes, found a call for edges; use NodeLoader."
    )


def test_NeighborhoodSampler_list_of_fanouts_is_refused(synthetic: Synthetic) -> None:
    """PyG's form for all edge types at once."""
    with pytest.raises(GraphError) as caught:
        NeighborhoodSampler(synthetic.graph, [5, 5])
    assert str(caught.value) == (
        f"fanouts must be a dict of fan-outs per hop by edge type, found [5, 5]; give each edge "
        f"type its own, as {{{next(iter(synthetic.graph.edge_types))}: [5, 5]}}."
    )
