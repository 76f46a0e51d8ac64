"""Tables sharded over two processes: rows, scores and gradients are those of whole ones."""

from pathlib import Path

import pytest
import torch
from together import run_together
from torch import Tensor

from match_graph.config import ModelConfig, TrainConfig
from match_graph.errors import GraphError
from match_graph.graph import EgoBatch, Hierarchy, TokenSpace
from match_graph.nn import MatchModel, match_loss
from match_graph.nn.tables import TokenTable, blocks_of
from match_graph.training.device import make_fabric
from match_graph.training.models import count_parameters

SPACE = TokenSpace(("venue", "word"), (60, 200))
NUM_LABELS = 7
NONE = torch.empty(0, dtype=torch.int64)


def make_batch(rank: int) -> EgoBatch:
    """Two documents of some tokens, and two without tokens and without gold labels."""
    if rank:
        ptr = torch.zeros(3, dtype=torch.int64)
        return EgoBatch(torch.tensor([2, 3]), NONE, NONE, NONE, ptr, ptr, NONE)
    token_id = torch.tensor([3, 9, 130, 130, 262, 1, 70, 9])
    field = (token_id >= 63).long()
    ptr = torch.tensor([0, 5, 8])
    labels = torch.tensor([0, 2, 3]), torch.tensor([1, 4, 6])
    return EgoBatch(torch.tensor([0, 1]), token_id, field, field * 3, ptr, *labels)


def make_model(sharded: bool) -> MatchModel:
    """A model with vectors for most of a type."""
    config = ModelConfig(
        channels=8, embedding_dropout=0, token_dropout=0,
        encoder_config={"num_cls": 1, "num_layers": 1, "position_channels": 4, "dropout": 0},
    )  # fmt: skip
    torch.manual_seed(3)
    model = MatchModel(SPACE, NUM_LABELS, config, sharded=sharded)
    vectors = torch.nn.functional.normalize(torch.randn(80, 8))
    assert model.embedding.load_vectors({"venue": vectors}) == {"venue": 60}
    return model


def backward(model: MatchModel, batch: EgoBatch) -> Tensor:
    """Scores of a batch, after its gradient."""
    scores: Tensor = model(batch)
    hierarchy = Hierarchy(torch.tensor([[1], [0]]), NUM_LABELS)
    match_loss(scores, batch.gold, model.head, hierarchy).total.backward()
    return scores.detach()


def own_rows(table: TokenTable, whole: Tensor) -> Tensor:
    """Rows of a whole table that this process holds, in their order."""
    assert table.shard is not None
    row, local = table.shard.find_own(0, len(whole))
    return whole[row[local.argsort()]]


def compare_with_whole() -> None:
    """Rows as drawn and loaded, scores, gradients; another batch's token is refused."""
    rank = make_fabric(TrainConfig(accelerator="cpu")).global_rank
    whole, model = make_model(sharded=False), make_model(sharded=True)
    tables = model.sharded_tables
    assert list(tables) == ["embedding"]
    assert len(tables["embedding"].weight) in (131, 132)
    for name, table in tables.items():
        weight = whole.get_parameter(f"{name}.weight")
        assert torch.equal(table.weight, own_rows(table, weight)), name
    assert count_parameters(model) == count_parameters(whole)
    scores = backward(model, make_batch(rank))
    expected = [backward(whole, make_batch(each)) for each in (0, 1)][rank]  # gradients add up
    torch.testing.assert_close(scores, expected)
    for name, table in tables.items():
        table.reduce_gradient()
        gradient, summed = table.weight.grad, whole.get_parameter(f"{name}.weight").grad
        assert gradient is not None
        assert summed is not None
        torch.testing.assert_close(gradient, own_rows(table, summed) / 2)
    with torch.no_grad():
        for table in tables.values():
            table.weight.zero_()
    model.load_state_dict(whole.state_dict())
    for name, table in tables.items():
        weight = whole.get_parameter(f"{name}.weight")
        assert torch.equal(table.weight, own_rows(table, weight)), name
    with torch.no_grad():
        torch.testing.assert_close(model(make_batch(rank)), expected)
        with pytest.raises(GraphError, match=r"tokens of a batch and its graph .* found token 200"):
            model.embedding(make_batch(0).select_tokens(torch.arange(8) < 0).as_new())
            model.embedding.mean(torch.tensor([200]), torch.tensor([1]), torch.tensor([0, 1]))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_TokenTable_two_processes_have_rows_of_one(tmp_path: Path) -> None:
    """The second process has documents without tokens and gold labels alone."""
    assert run_together(compare_with_whole) == [0, 0]


def test_TokenTable_one_process_has_all_rows() -> None:
    """Also where shards are asked for."""
    model = make_model(sharded=True)
    assert model.sharded_tables == {}
    assert torch.equal(model.embedding.weight, make_model(sharded=False).embedding.weight)


def test_blocks_of_draw_what_one_block_draws() -> None:
    """The numbers of the whole table, and the generator where that would leave it."""
    num_rows = 2 * 65_536 + 5
    torch.manual_seed(0)
    blocks = [torch.empty(last - first, 3).normal_() for first, last in blocks_of(num_rows)]
    after = torch.rand(1)
    torch.manual_seed(0)
    whole = torch.empty(num_rows, 3).normal_()
    assert len(blocks) == 2
    assert torch.equal(torch.cat(blocks), whole)
    assert torch.equal(after, torch.rand(1))
