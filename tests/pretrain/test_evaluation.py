"""Held-out pairs and their ranks, against naive loops."""

import pytest
import torch
from torch_geometric.data import HeteroData

from match_graph.config import PretrainConfig
from match_graph.datasets import Synthetic
from match_graph.pretrain import (
    SphericalTrainer,
    evaluate_vectors,
    find_neighbours,
    hold_out,
    random_unit_rows,
    rank_pairs,
)
from match_graph.pretrain import evaluation as module

TAGGED = ("document", "tagged", "label")


def make_unit(rows: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return random_unit_rows(rows, 6, generator, torch.device("cpu"))


@pytest.mark.parametrize("mapped", [False, True])
def test_hold_out_takes_pairs_of_training_documents_out_of_copy(
    synthetic: Synthetic, mapped: bool
) -> None:
    data = synthetic[0]
    before = {edge_type: data[edge_type].edge_index.clone() for edge_type in data.edge_types}
    held = hold_out(synthetic.graph if mapped else data, {"label": 20}, share=0.2, seed=1)
    assert all(
        torch.equal(data[edge_type].edge_index, before[edge_type]) for edge_type in data.edge_types
    )
    assert "word" not in held.pairs
    in_train = data["document"].train_mask
    for target, pairs in held.pairs.items():
        edge_type = next(
            edge_type
            for edge_type in data.edge_types
            if edge_type[2] == target and edge_type[1] != "is_a"
        )
        assert bool(in_train[pairs[0]].all())
        rest, whole = held.data.edge_index(edge_type), data[edge_type].edge_index
        assert held.data.num_edges(edge_type) == rest.size(1)
        assert rest.size(1) + pairs.size(1) == whole.size(1)
        joined = torch.cat([rest, pairs.to(rest.dtype)], dim=1)
        assert sorted(joined.t().tolist()) == sorted(whole.t().tolist())
    assert int(held.pairs["label"][1].max()) < 20
    share = held.pairs["label"].size(1) / held.known["label"].size(1)
    assert share == pytest.approx(0.2, abs=0.06)


def test_hold_out_is_the_same_for_a_seed(synthetic: Synthetic) -> None:
    first, same, other = (
        hold_out(synthetic[0], {}, seed=seed).pairs["label"] for seed in (1, 1, 2)
    )
    assert torch.equal(first, same)
    assert not torch.equal(first, other)


@pytest.mark.parametrize("piece", [10, 1 << 24])
def test_rank_pairs_ranks_are_those_of_a_naive_loop(
    piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_SCORES", piece)
    anchor, target = make_unit(7, 0), make_unit(11, 1)
    known = torch.randint(77, (30,), generator=torch.Generator().manual_seed(2)).unique()
    known = torch.stack([known % 7, known // 7])  # not sorted by document
    pairs = known[:, ::3]
    found = rank_pairs(anchor, target, pairs, known, margin=0.3)
    truths = {tuple(pair) for pair in known.t().tolist()}
    for place, (document, instance) in enumerate(pairs.t().tolist()):
        scores = [float(anchor[document] @ target[rival]) for rival in range(11)]
        true = scores[instance]
        rivals = [rival for rival in range(11) if scores[rival] > true]
        unknown = [rival for rival in rivals if (document, rival) not in truths]
        satisfied = sum(score <= true - 0.3 for score in scores)
        expected = [1 + len(rivals), 1 + len(unknown), satisfied]
        assert [int(values[place]) for values in found] == expected


def test_rank_pairs_equal_scores_are_no_rivals() -> None:
    """Targets as near as the true one do not outrank it; a gap of the margin satisfies it."""
    anchor, target = torch.tensor([[1.0, 0]]), torch.tensor([[1.0, 0], [1, 0], [0, 1]])
    pair = torch.tensor([[0], [0]])
    found = rank_pairs(anchor, target, pair, pair, margin=1.0)
    assert [values.tolist() for values in found] == [[1], [1], [1]]


def test_hold_out_training_ranks_held_out_labels_better(synthetic: Synthetic) -> None:
    """Training ranks held out labels better than chance."""
    held = hold_out(synthetic[0], {}, share=0.05)
    config = PretrainConfig(channels=16, negatives=8, chunk_size=256)
    trainer = SphericalTrainer(held.data, config)
    before = evaluate_vectors(trainer.tables, held, 0.3)["label"]
    trainer.fit(150_000)
    after = evaluate_vectors(trainer.tables, held, 0.3)["label"]
    assert after["mrr"] > 1.5 * before["mrr"]
    assert after["mrr_filtered"] >= after["mrr"]
    assert after["satisfied"] > before["satisfied"]
    assert after["candidates"] == synthetic.num_labels
    assert after["pairs"] == held.pairs["label"].size(1)


def test_evaluate_vectors_by_hand() -> None:
    """A document at its venue, opposite the only other one: every margin holds."""
    data = HeteroData()
    data["document"].train_mask = torch.ones(1, dtype=torch.bool)
    data["venue"].num_nodes = 2
    data["document", "has", "venue"].edge_index = torch.tensor([[0], [0]])
    tables = {"document": torch.tensor([[1.0, 0.0]]), "venue": torch.tensor([[1.0, 0], [-1, 0]])}
    found = evaluate_vectors(tables, hold_out(data, {}, share=1.0), 0.3)
    measures = {"mrr": 1.0, "mrr_filtered": 1.0, "satisfied": 1.0}
    assert found == {"venue": {**measures, "pairs": 1, "candidates": 2}}


def test_hold_out_types_without_vectors_or_pairs_are_left_out(synthetic: Synthetic) -> None:
    held = hold_out(synthetic[0], {"label": 0})
    tables = {"document": make_unit(400, 0), "label": make_unit(24, 1)}
    assert evaluate_vectors(tables, held, 0.3) == {}


def test_hold_out_keeps_types_that_are_not_named(synthetic: Synthetic) -> None:
    """Pairs of every node of theirs, however few the pairs are."""
    counts = {name: synthetic.graph.num_nodes(name) for name in synthetic.graph.node_types}
    all_named, none_named = (hold_out(synthetic[0], given, 1.0) for given in (counts, {}))
    for name, pairs in all_named.pairs.items():
        assert torch.equal(none_named.pairs[name], pairs)
    data = HeteroData()
    data["document"].train_mask = torch.ones(2, dtype=torch.bool)
    data["venue"].num_nodes = 100
    data["document", "has", "venue"].edge_index = torch.tensor([[0, 1], [98, 99]])
    assert hold_out(data, {}, 1.0).pairs["venue"].tolist() == [[0, 1], [98, 99]]


def test_find_neighbours_are_the_nearest_others() -> None:
    table, rows = make_unit(9, 3), torch.tensor([4, 0])
    near = find_neighbours(table, rows, 3)
    for row, found in zip(rows.tolist(), near.tolist(), strict=True):
        order = (table @ table[row]).argsort(descending=True).tolist()
        order.remove(row)
        assert found == order[:3]
    assert find_neighbours(table[:2], torch.tensor([0]), 5).tolist() == [[1]]
