"""Spherical trainer: updated rows, reproducibility, any heterogeneous graph."""

import copy
from collections import Counter
from pathlib import Path

import pytest
import torch
from torch_geometric import seed_everything
from torch_geometric.data import HeteroData
from torch_geometric.datasets import FakeHeteroDataset

from match_graph.config import PretrainConfig
from match_graph.datasets import Synthetic
from match_graph.errors import CheckpointError, GraphError
from match_graph.graph import BuiltGraph
from match_graph.pretrain import (
    CONTEXT,
    Chunk,
    PretrainCheckpoint,
    Relation,
    SphericalTrainer,
    checkpoint,
    margin_gradients,
    riemannian_gradient,
    riemannian_step_,
)

SMALL = PretrainConfig(channels=16, negatives=8, chunk_size=64)


def next_chunk(trainer: SphericalTrainer, relation: Relation) -> Chunk:
    return trainer.feeds[relation.name].next_chunk(64, trainer.generator)


@pytest.mark.parametrize("shared", [True, False])
def test_SphericalTrainer_loss_falls_and_norms_stay_one(synthetic: Synthetic, shared: bool) -> None:
    config = SMALL.model_copy(update={"shared_negatives": shared})
    trainer, losses = SphericalTrainer(synthetic[0], config), []
    trainer.fit(60_000, lambda done, loss: losses.append((done, loss)))
    assert losses[-1][0] == trainer.num_seen == 60_000
    assert losses[-1][1] < 0.8 * losses[0][1]
    for table in trainer.tables.values():
        assert (table.double().norm(dim=1) - 1).abs().max() < 1e-6


def test_SphericalTrainer_one_table_per_type_and_one_of_contexts(synthetic: Synthetic) -> None:
    data = synthetic[0]
    trainer = SphericalTrainer(data, SMALL, num_rows={"word": 40})
    shapes = {name: tuple(table.shape) for name, table in trainer.tables.items()}
    expected = {name: (int(data[name].num_nodes), 16) for name in data.node_types}
    assert shapes == {**expected, "word": (40, 16), CONTEXT: (40, 16)}


def test_SphericalTrainer_documents_outside_training_never_move(synthetic: Synthetic) -> None:
    data = synthetic[0]
    trainer = SphericalTrainer(data, SMALL)
    before = trainer.tables["document"].clone()
    trainer.fit(20_000)
    outside = ~data["document"].train_mask
    after = trainer.tables["document"]
    assert torch.equal(after[outside], before[outside])
    assert not torch.equal(after, before)


def test_SphericalTrainer_context_vector_anchor_word_and_context(synthetic: Synthetic) -> None:
    """Positive and negatives move among the centre vectors, the neighbour as a context vector."""
    trainer = SphericalTrainer(synthetic[0], SMALL)
    relation = next(kind[0] for kind in trainer.kinds if kind[0].anchor == CONTEXT)
    before = {name: table.clone() for name, table in trainer.tables.items()}
    trainer.step(relation, next_chunk(trainer, relation), 0.1)
    moved = {name for name, table in trainer.tables.items() if not table.equal(before[name])}
    assert moved == {"word", CONTEXT}


@pytest.mark.parametrize("shared", [True, False])
def test_SphericalTrainer_step_is_the_objective_on_drawn_rows(
    synthetic: Synthetic, shared: bool
) -> None:
    """The same draws again, gradients and steps by the reference functions."""
    config = SMALL.model_copy(update={"shared_negatives": shared})
    trainer = SphericalTrainer(synthetic[0], config)
    relation = trainer.kinds[0][0]
    expected = {name: table.clone() for name, table in trainer.tables.items()}
    chunk = next_chunk(trainer, relation)
    anchor, positive, negative = chunk
    assert negative.shape == ((8,) if shared else (64, 8))
    loss = trainer.step(relation, chunk, 0.1)
    allowed = negative != positive.unsqueeze(1)
    anchors, targets = expected[relation.anchor], expected[relation.target]
    expected_loss, *gradients = margin_gradients(
        anchors[anchor], targets[positive], targets[negative], 0.3, allowed
    )
    moved = torch.cat([positive, negative.view(-1)])
    gradient = torch.cat([gradients[1], gradients[2].view(-1, 16)])
    tangents = [
        riemannian_gradient(anchors[anchor], gradients[0]),
        riemannian_gradient(targets[moved], gradient),
    ]
    riemannian_step_([(anchors, [anchor], tangents[:1]), (targets, [moved], tangents[1:])], 0.1)
    assert torch.allclose(loss, expected_loss.sum(), atol=1e-4)
    for name, table in expected.items():
        assert torch.allclose(trainer.tables[name], table, atol=1e-6)


@pytest.mark.parametrize("shared", [True, False])
def test_SphericalTrainer_step_without_a_pair_moves_nothing(
    synthetic: Synthetic, shared: bool
) -> None:
    """The last step of several processes may leave one of them without pairs."""
    trainer = SphericalTrainer(synthetic[0], SMALL.model_copy(update={"shared_negatives": shared}))
    relation = trainer.kinds[0][0]
    before = copy.deepcopy(trainer.tables)
    chunk = trainer.feeds[relation.name].next_chunk(0, trainer.generator)
    assert float(trainer.step(relation, chunk, 0.1)) == 0
    for name, table in trainer.tables.items():
        torch.testing.assert_close(table, before[name])


def test_SphericalTrainer_positive_itself_is_never_a_negative() -> None:
    """With two targets half of the draws are the positive: none of them may cost anything."""
    data = HeteroData()
    data["a"].num_nodes = data["b"].num_nodes = 2
    data["a", "to", "b"].edge_index = torch.tensor([[0, 1], [0, 1]], dtype=torch.int32)
    trainer = SphericalTrainer(data, SMALL)
    trainer.tables["a"] = torch.eye(2, 16)
    trainer.tables["b"] = torch.eye(2, 16)  # the margin holds unless a positive is its own rival
    for _ in range(20):
        relation = trainer.kinds[0][0]
        assert float(trainer.step(relation, next_chunk(trainer, relation), 0.1)) == 0


def test_SphericalTrainer_filter_positives_spares_anchors() -> None:
    """With filter_positives no target of an anchor is a negative of it."""
    data = HeteroData()
    data["a"].num_nodes, data["b"].num_nodes = 1, 3
    data["a", "to", "b"].edge_index = torch.tensor([[0, 0, 0], [0, 1, 2]], dtype=torch.int32)
    for filtered in (False, True):
        config = SMALL.model_copy(update={"filter_positives": filtered})
        trainer = SphericalTrainer(data, config)
        relation = trainer.kinds[0][0]
        loss = trainer.step(relation, next_chunk(trainer, relation), 0.1)
        assert bool(loss) != filtered


def test_SphericalTrainer_filter_spares_positives_of_contexts(synthetic: Synthetic) -> None:
    """Contexts have no edges to filter by; a pair's own positive is still never a negative."""
    config = SMALL.model_copy(update={"filter_positives": True})
    trainer = SphericalTrainer(synthetic[0], config)
    relation = next(kind[0] for kind in trainer.kinds if kind[0].anchor == CONTEXT)
    word = torch.tensor([0, 1])
    allowed = trainer._allow(relation, Chunk(word, word, word))
    assert allowed.tolist() == [[False, True], [True, False]]


def test_SphericalTrainer_kinds_alternate(
    synthetic: Synthetic, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer, names = SphericalTrainer(synthetic[0], SMALL), []
    step = trainer.step

    def record(relation, chunk, learning_rate):
        names.append(relation.name)
        return step(relation, chunk, learning_rate)

    monkeypatch.setattr(trainer, "step", record)
    trainer.fit(64 * 12)
    kinds = [{relation.name for relation in kind} for kind in trainer.kinds]
    assert len(kinds) == 4
    assert all(name in kinds[place % 4] for place, name in enumerate(names))


def test_SphericalTrainer_learning_rate_falls_linearly(
    synthetic: Synthetic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rate falls linearly over the pairs, here in four chunks of 100."""
    config = SMALL.model_copy(update={"chunk_size": 100, "learning_rate": 0.1})
    trainer, rates = SphericalTrainer(synthetic[0], config), []

    def record(relation, chunk, learning_rate):
        rates.append(learning_rate)
        return torch.zeros(())

    monkeypatch.setattr(trainer, "step", record)
    trainer.fit(400)
    assert rates == pytest.approx([0.1, 0.075, 0.05, 0.025])


def test_SphericalTrainer_relations_of_a_kind_by_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A relation with two pairs has a third of the chunks beside one with four."""
    data = HeteroData()
    data["document"].num_nodes = data["a"].num_nodes = data["b"].num_nodes = 2
    data["document"].train_mask = torch.ones(2, dtype=torch.bool)
    data["document", "has", "a"].edge_index = torch.tensor([[0, 1], [0, 1]])
    data["document", "has", "b"].edge_index = torch.tensor([[0, 0, 1, 1], [0, 1, 0, 1]])
    config = SMALL.model_copy(update={"chunk_size": 1})
    trainer, count = SphericalTrainer(data, config), Counter[str]()

    def record(relation, chunk, learning_rate):
        count[relation.target] += 1
        return torch.zeros(())

    monkeypatch.setattr(trainer, "step", record)
    trainer.fit(600)
    assert count["a"] == pytest.approx(200, abs=40)


def test_SphericalTrainer_one_seed_gives_one_result(synthetic: Synthetic) -> None:
    tables = []
    for seed in (3, 3, 4):
        trainer = SphericalTrainer(synthetic[0], SMALL, seed=seed)
        trainer.fit(5_000)
        tables.append(trainer.tables)
    assert all(torch.equal(tables[0][name], tables[1][name]) for name in tables[0])
    assert not torch.equal(tables[0]["word"], tables[2]["word"])


def test_SphericalTrainer_threads_do_not_change_the_vectors(synthetic: Synthetic) -> None:
    """Small chunks are for one thread whatever the setting, which stays; large ones take more."""
    before, tables = torch.get_num_threads(), []
    seen: list[int] = []
    try:
        for number in (1, 3):
            torch.set_num_threads(number)
            trainer = SphericalTrainer(synthetic[0], SMALL, seed=4)
            trainer.fit(3_000, lambda *_: seen.append(torch.get_num_threads()))
            assert torch.get_num_threads() == number
            tables.append(trainer.tables)
        large = SMALL.model_copy(update={"chunk_size": 2**15, "shared_negatives": False})
        trainer = SphericalTrainer(synthetic[0], large)
        trainer.fit(2**15, lambda *_: seen.append(torch.get_num_threads()))
    finally:
        torch.set_num_threads(before)
    assert set(seen[:-1]) == {1}
    assert seen[-1] == 3
    for name, table in tables[0].items():
        assert torch.equal(table, tables[1][name])


def test_SphericalTrainer_any_heterogeneous_graph_works() -> None:
    """Edge types within one node type, too: anchors and targets share a table then."""
    seed_everything(3)  # with edges from v0 to v0
    data = FakeHeteroDataset(num_graphs=1, avg_num_nodes=60)[0]
    assert any(source == target for source, _, target in data.edge_types)
    trainer = SphericalTrainer(data, SMALL)
    assert {len(kind) for kind in trainer.kinds} == {1}
    assert len(trainer.kinds) == len(data.edge_types)
    assert len(trainer.feeds) == len(data.edge_types)
    losses: list[float] = []
    trainer.fit(50_000, lambda _done, loss: losses.append(loss))
    assert losses[-1] < losses[0]
    assert set(trainer.tables) == set(data.node_types)


@pytest.mark.parametrize(
    ("setting", "name"),
    [("label_parent", "(label, label)"), ("cited_documents", "(document, document)")],
)
def test_SphericalTrainer_pairs_beyond_paper_are_off_by_default(
    toy_graph: BuiltGraph, setting: str, name: str
) -> None:
    data = toy_graph.data
    assert name not in SphericalTrainer(data, SMALL).feeds
    trainer = SphericalTrainer(data, SMALL.model_copy(update={setting: True}))
    relation = trainer.feeds[name].relation
    assert relation.anchor == relation.target
    trainer.fit(2_000)
    if relation.anchor == "document":  # cited documents of other splits are never drawn
        for drawn in relation.sample(1000, torch.Generator().manual_seed(0)):
            assert bool(data["document"].train_mask[drawn].all())


def test_SphericalTrainer_saved_state_goes_on_to_same_vectors(
    synthetic: Synthetic, tmp_path: Path
) -> None:
    whole = SphericalTrainer(synthetic[0], SMALL, seed=1)
    whole.fit(9_000, stop=4_000)
    saved: list[PretrainCheckpoint] = []

    def save() -> None:
        saved.append(PretrainCheckpoint(tmp_path / f"{len(saved)}.pt", "origin"))
        saved[-1].write(whole)

    whole.fit(9_000, save=save, save_seconds=0)
    resumed = SphericalTrainer(synthetic[0], SMALL, seed=7)
    saved[0].read(resumed)
    assert resumed.num_seen == 4_032 + 64  # 63 whole chunks, then one more
    resumed.fit(9_000)
    for name, table in whole.tables.items():
        assert torch.equal(resumed.tables[name], table)


def test_SphericalTrainer_without_feeds_other_pairs_are_sampled(synthetic: Synthetic) -> None:
    """A state of another number of processes goes on with pairs that are not those of the start."""
    first, resumed = (SphericalTrainer(synthetic[0], SMALL) for _ in range(2))
    first.fit(10_000, stop=640)
    state = first.state_dict()
    resumed.load_progress({name: state[name] for name in ("chooser", "num_seen", "num_chunks")})
    started = SphericalTrainer(synthetic[0], SMALL).generator.initial_seed()
    assert resumed.generator.initial_seed() != started
    assert resumed.num_seen == 640


def test_PretrainCheckpoint_tables_are_read_in_blocks(
    synthetic: Synthetic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of all blocks come back to their places; one value that is not finite is refused."""
    monkeypatch.setattr(checkpoint, "_BLOCK_ROWS", 7)
    saved = PretrainCheckpoint(tmp_path / "state.pt", "origin")
    first, resumed = (SphericalTrainer(synthetic[0], SMALL, seed) for seed in (0, 1))
    saved.write(first)
    saved.read(resumed)
    for name, table in first.tables.items():
        assert torch.equal(resumed.tables[name], table), name
    first.tables["label"][9, 3] = torch.nan
    saved.remove()
    saved.write(first)
    with pytest.raises(CheckpointError, match="a vector is not finite"):
        saved.read(resumed)


def test_SphericalTrainer_state_of_another_width_is_refused(
    synthetic: Synthetic, tmp_path: Path
) -> None:
    saved = PretrainCheckpoint(tmp_path / "state.pt", "origin")
    saved.write(SphericalTrainer(synthetic[0], SMALL))
    other = SphericalTrainer(synthetic[0], SMALL.model_copy(update={"channels": 8}))
    with pytest.raises(CheckpointError, match=r"is \(\d+, 16\) in shard 0\); delete the folder"):
        saved.read(other)


@pytest.mark.parametrize(
    ("part", "spoil", "reason"),
    [
        ("num_seen", lambda _: -1, "-1 pairs in 1 chunks were not sampled"),
        ("num_chunks", lambda _: "1", "64 pairs in '1' chunks were not sampled"),
        ("num_chunks", lambda _: 2**70, "were not sampled"),
        ("tables", lambda t: {k: v * torch.nan for k, v in t.items()}, "a vector is not finite"),
        ("feeds", lambda feeds: spoil_feeds(feeds, "anchor", 2**40), "a row in store is not in"),
        ("feeds", lambda feeds: spoil_feeds(feeds, "positive", -1), "a row in store is not in"),
        ("feeds", lambda feeds: spoil_feeds(feeds, "negative", 2**40), "a row in store is not in"),
    ],
)
def test_SphericalTrainer_state_beyond_its_end_is_refused(
    synthetic: Synthetic, tmp_path: Path, monkeypatch, part: str, spoil, reason: str
) -> None:
    """Counts, rows and vectors of a crafted checkpoint."""
    trainer = SphericalTrainer(synthetic[0], SMALL)
    trainer.fit(9_000, stop=64)
    state = copy.deepcopy(trainer.state_dict())
    state[part] = spoil(state[part])
    monkeypatch.setattr(trainer, "state_dict", lambda: state)
    saved = PretrainCheckpoint(tmp_path / "state.pt", "origin")
    saved.write(trainer)
    with pytest.raises(CheckpointError, match=reason):
        saved.read(SphericalTrainer(synthetic[0], SMALL))


def spoil_feeds(feeds: dict, name: str, row: int) -> dict:
    """Every feed with another first row in store, where there is one."""
    for feed in feeds.values():
        feed[name].view(-1)[:1] = row
    return feeds


def test_SphericalTrainer_one_edge_type_can_be_chosen(synthetic: Synthetic) -> None:
    edge_type = ("document", "tagged", "label")
    trainer = SphericalTrainer(synthetic[0], SMALL, edge_types=[edge_type])
    assert set(trainer.tables) == {"document", "label"}


def test_SphericalTrainer_no_pair_at_all_is_an_error(toy_graph: BuiltGraph) -> None:
    data = toy_graph.data.clone()
    data["document"].train_mask[:] = False
    with pytest.raises(GraphError) as caught:
        SphericalTrainer(data, SMALL)
    assert str(caught.value) == (
        "Pre-training needs pairs of at least two different targets among the training documents, "
        "found none; start from random vectors instead (model.init=random)."
    )


def test_SphericalTrainer_corpus_with_one_author_trains_on_rest(toy_graph: BuiltGraph) -> None:
    data = toy_graph.data.clone()
    data["document", "has", "author"].edge_index[1] = 0
    trainer = SphericalTrainer(data, SMALL)
    trainer.fit(500)
    assert "author" not in trainer.tables
    assert "venue" in trainer.tables


@pytest.mark.gpu
def test_SphericalTrainer_same_code_runs_on_cuda(synthetic: Synthetic) -> None:
    trainer = SphericalTrainer(synthetic[0], SMALL, device="cuda")
    trainer.fit(20_000)
    for table in trainer.tables.values():
        assert table.is_cuda
        assert (table.double().norm(dim=1) - 1).abs().max() < 1e-6
