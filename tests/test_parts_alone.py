"""Every part serves alone, by public names only: on graphs, logits and rankings of any origin."""

import pytest
import torch
from torch_geometric import seed_everything
from torch_geometric.data import HeteroData
from torch_geometric.datasets import FakeHeteroDataset
from torch_geometric.loader import NodeLoader

import match_graph as mg
from match_graph import metrics


@pytest.fixture(scope="module")
def data() -> HeteroData:
    """A graph that match-graph knows nothing of: node types v0, v1, v2."""
    seed_everything(0)  # PyG draws the edge types from Python's generator; here v0 has two
    return FakeHeteroDataset(num_graphs=1, avg_num_nodes=60, avg_degree=4)[0]


def test_EgoSampler_serves_any_hetero_data(data: HeteroData) -> None:
    """Batches around one node type, within the budget, every edge one of the graph."""
    sampler = mg.EgoSampler(data, max_metadata=3, seed_type="v0")
    loader = NodeLoader(data, node_sampler=sampler, input_nodes="v0", batch_size=16)
    seen = []
    for batch in loader:
        seen += batch["v0"].n_id[: batch["v0"].batch_size].tolist()
        for edge_type in sampler.edge_types:
            row, col = batch[edge_type].edge_index
            seeds, nodes = batch["v0"].n_id[row], batch[edge_type[2]].n_id[col]
            ours = {*zip(seeds.tolist(), nodes.tolist(), strict=True)}
            assert ours <= {*zip(*data[edge_type].edge_index.tolist(), strict=True)}
        degree = torch.cat([batch[edge_type].edge_index[0] for edge_type in sampler.edge_types])
        assert torch.bincount(degree).max() <= 3
    assert seen == list(range(data["v0"].num_nodes))


def test_EgoLoader_gives_token_sets_of_any_hetero_data(data: HeteroData) -> None:
    """A token space over some types; the others are left out of the sets."""
    types = ["v1", "v2"]
    space = mg.TokenSpace.from_data(data, types=types)
    sampler = mg.EgoSampler(data, max_metadata=8, seed_type="v0")
    seeds = torch.arange(10)
    (batch,) = mg.EgoLoader(data, sampler, space, seeds, batch_size=10)
    assert batch.num_documents == 10
    assert batch.token_id.min() > len(types)  # every node is kept: neither [PAD] nor [UNK]
    assert set(batch.field.tolist()) == {0, 1}
    embedding = mg.TokenEmbedding(space, channels=8)
    assert embedding(batch).shape == (batch.token_id.numel(), 8)


def test_SphericalTrainer_serves_any_hetero_data(data: HeteroData) -> None:
    """Unit vectors for every node type, and a falling loss."""
    trainer = mg.SphericalTrainer(data, mg.PretrainConfig(channels=16), seed=1)
    losses: list[float] = []
    trainer.fit(300_000, lambda _done, loss: losses.append(loss))
    assert losses[-1] < losses[0]
    for name in data.node_types:
        norms = trainer.tables[name].norm(dim=1)
        assert len(norms) == data[name].num_nodes
        assert torch.allclose(norms, torch.ones_like(norms), atol=1e-4)


def test_match_loss_serves_any_logits_and_edges() -> None:
    """A child above its parent costs, and the gradient moves both."""
    logits = torch.tensor([[0.0, 2.0, -1.0]], requires_grad=True)  # labels: parent, child, other
    hierarchy = mg.Hierarchy(torch.tensor([[1], [0]]), num_labels=3)
    penalty = mg.hypernymy_output_penalty(logits, hierarchy)
    assert float(penalty.detach()) == pytest.approx(torch.sigmoid(torch.tensor(2.0)).item() - 0.5)
    penalty.backward()
    assert logits.grad is not None
    assert logits.grad[0, 1] > 0 > logits.grad[0, 0]
    weight = torch.eye(3)
    assert float(mg.hypernymy_parameter_penalty(weight, hierarchy)) == pytest.approx(1.0)


def test_metrics_serve_any_ranking() -> None:
    """Rankings of any method against packed gold labels, by hand."""
    ranked = torch.tensor([[2, 0, 1], [1, 2, 0]])
    meter = mg.RankingMeter(ks=[1, 3])
    meter.update(ranked, torch.tensor([0, 2, 3]), torch.tensor([1, 2, 0]))
    measures = meter.compute()
    assert measures["P@1"] == 0.5
    assert measures["P@3"] == pytest.approx((2 / 3 + 1 / 3) / 2)


def test_Hierarchy_serves_alone() -> None:
    """Edges make a hierarchy; a cycle is refused by name."""
    dag = mg.Hierarchy(torch.tensor([[1, 2], [0, 1]]), num_labels=4)
    assert dag.depth.tolist() == [0, 1, 2, 0]
    with pytest.raises(mg.GraphError, match="must be acyclic"):
        mg.Hierarchy(torch.tensor([[0, 1], [1, 0]]), num_labels=2)


def test_hypernymy_parts_compose_where_training_lacks_a_child() -> None:
    """`parent_given_child` gives edge weights that `match_loss` takes as they are."""
    dag = mg.Hierarchy(torch.tensor([[1, 2], [0, 1]]), 3)
    targets = mg.Targets(torch.tensor([0, 2, 3]), torch.tensor([0, 1, 1], dtype=torch.int32), 3)
    weight = dag.parent_given_child(targets, torch.arange(2))
    assert weight.dtype == torch.float32
    assert weight.tolist() == [0.5, 1.0]  # nobody carries label 2
    gold = targets.select(torch.arange(2))
    head = mg.nn.LinearHead(4, 3, mg.nn.LinearHead.Config())
    losses = mg.match_loss(
        torch.zeros(2, 3), gold, head, dag.weighted(weight), lambda_parameter=1.0, lambda_output=1.0
    )
    losses.total.backward()
    assert bool(torch.isfinite(losses.total))
    assert bool(head.weight.grad.any(dim=1)[2])


NAN_SCORES = torch.tensor([[0.5, -torch.nan, 0.0, 1.0], [1.0, 2.0, 0.0, -torch.inf]])
GOLD = torch.tensor([0, 1, 1]), torch.tensor([1])
HIERARCHY = mg.Hierarchy(torch.tensor([[1], [0]]), num_labels=4)
BATCH = mg.EgoBatch(torch.arange(2), *torch.zeros(3, 0).long(), torch.zeros(3).long(), *GOLD)


class Diverged(torch.nn.Module):
    """A model whose scores are not numbers."""

    def forward(self, batch: mg.EgoBatch) -> torch.Tensor:
        return NAN_SCORES


@pytest.mark.parametrize(
    "use",
    [
        lambda: mg.rank_labels(NAN_SCORES, 2),
        lambda: mg.rank_labels(NAN_SCORES, 2, torch.arange(4)),
        lambda: mg.evaluate_model(Diverged(), [BATCH], HIERARCHY),
        lambda: mg.ViolationMeter(HIERARCHY).update(NAN_SCORES),
        lambda: mg.CalibrationMeter().update(NAN_SCORES, *GOLD),
        lambda: mg.ThresholdSearch(4).update(NAN_SCORES, *GOLD),
        lambda: metrics.PlattSearch(4, 2).update(NAN_SCORES, *GOLD, torch.arange(2)),
        lambda: metrics.pack_predictions(NAN_SCORES, torch.ones(4)),
    ],
)
def test_scores_that_are_nan_are_refused(use) -> None:
    """Also where the sign bit is set, as processors make it, and beside scores of -inf."""
    with pytest.raises(mg.GraphError, match=r"^Label scores must be numbers, found NaN in 1 of "):
        use()


def test_the_sentence_for_nan() -> None:
    """Whole."""
    with pytest.raises(mg.GraphError) as caught:
        mg.rank_labels(NAN_SCORES, 2, torch.arange(4))
    assert str(caught.value) == (
        "Label scores must be numbers, found NaN in 1 of 8 values; look for a training that "
        "diverged, or for damaged weights."
    )
    assert mg.rank_labels(torch.full((1, 3), -torch.inf), 2).shape == (1, 2)  # no NaN: ranked
    assert mg.rank_labels(torch.empty(0, 3), 2).shape == (0, 2)
