"""A label tree's levels against a loop over documents and nodes; what is trained."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from match_graph.config import ModelConfig
from match_graph.datasets import Synthetic
from match_graph.errors import ConfigError
from match_graph.graph import EgoBatch, EgoLoader, EgoSampler
from match_graph.nn import LabelAttentionHead, MatchModel
from match_graph.nn.label_tree import OUTSIDE, TreeModel, join_log_odds, level_sizes, make_levels

SIZES = (2, 8, 25)
PARENTS = (torch.arange(8) // 4, (torch.arange(25) * 7) % 8)


@pytest.fixture(scope="module")
def batch(synthetic: Synthetic) -> EgoBatch:
    data = synthetic[0]
    loader = EgoLoader(
        data, EgoSampler(data, 4, 10), synthetic.token_space(), torch.arange(30),
        synthetic.targets, batch_size=30,
    )  # fmt: skip
    return next(iter(loader))


def make_tree(synthetic: Synthetic, beam: int = 2, **settings: object) -> TreeModel:
    """Three levels over the 25 labels, in evaluation mode."""
    torch.manual_seed(0)
    head = {"hidden_channels": [6, 5], "flat_labels": 4, "cluster_size": 4, "beam": beam}
    config = ModelConfig(
        encoder="attention_xml", encoder_config={"hidden_channels": 4}, channels=8,
        head_config=head, **settings,
    )  # fmt: skip
    model = make_levels(
        synthetic.token_space(), level_sizes(25, config), config, synthetic.hierarchy
    )
    assert isinstance(model, TreeModel)
    assert isinstance(model.above, TreeModel)
    model.set_parents(PARENTS[1])
    model.above.set_parents(PARENTS[0])
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("head.bias"):
                parameter.normal_()
    return model.eval()


def flat_scores(level: MatchModel, batch: EgoBatch) -> Tensor:
    """The level's own scores of all of its nodes."""
    return level.head(level.encoder(batch))


def naive_scores(
    level: MatchModel, parents: list[Tensor], beam: int, batch: EgoBatch
) -> list[list[float]]:
    """The log-odds of the product along the path, document by document and node by node."""
    own = flat_scores(level, batch).tolist()
    if not parents:
        return own
    above = naive_scores(level.above, parents[:-1], beam, batch)
    rows = []
    for scores, upper in zip(own, above, strict=True):
        best = sorted(range(len(upper)), key=lambda node: -upper[node])[:beam]
        row = []
        for node, score in enumerate(scores):
            parent = int(parents[-1][node])
            p = 1 / (1 + math.exp(-score)) / (1 + math.exp(-upper[parent]))
            row.append(math.log(p / (1 - p)) if parent in best else OUTSIDE)
        rows.append(row)
    return rows


@pytest.mark.parametrize("beam", [1, 2, 8])
@torch.no_grad()
def test_TreeModel_scores_equal_the_naive_product(
    synthetic: Synthetic, batch: EgoBatch, beam: int
) -> None:
    """Three levels; the children of the best nodes of each, the others as good as impossible."""
    model = make_tree(synthetic, beam)
    logits = model(batch)
    assert logits.shape == (30, 25)
    assert logits.t().is_contiguous()
    expected = torch.tensor(naive_scores(model, list(PARENTS), beam, batch))
    assert torch.allclose(logits, expected, rtol=1e-4, atol=1e-5)
    assert bool((logits == OUTSIDE).any()) == (beam < 8)


@torch.no_grad()
def test_TreeModel_scores_nothing_below_what_is_outside(
    synthetic: Synthetic, batch: EgoBatch
) -> None:
    """Also where a label and its parent are both unlikely."""
    model = make_tree(synthetic)
    for level in (model, model.above):
        level.head.bias.fill_(-25.0)
    assert bool((flat_scores(model, batch) > OUTSIDE).all())
    assert float(model(batch).min()) == OUTSIDE


def test_TreeModel_training_scores_children_of_gold_nodes_too(
    synthetic: Synthetic, batch: EgoBatch
) -> None:
    """Every gold label has a score of its own, given its parent; predicting never sees gold."""
    model = make_tree(synthetic, beam=1)
    bare = EgoBatch(batch.document, batch.token_id, batch.field, batch.position, batch.ptr)
    with torch.no_grad():
        assert torch.equal(model(batch), model(bare))
    model.train()
    model.embedding.eval()
    model.encoder.eval()
    assert not model.above.training
    logits = model(batch)
    rows = torch.repeat_interleave(torch.arange(30), batch.label_ptr.diff())
    own = flat_scores(model, batch)
    gold = rows, batch.label_index
    assert torch.allclose(logits[gold], own[gold], atol=1e-5)
    scored = logits != OUTSIDE
    assert torch.allclose(logits[scored], own[scored], atol=1e-5)
    parents = PARENTS[1][batch.label_index]
    for row in range(30):
        chosen = set(PARENTS[1][scored[row]].tolist())
        assert set(parents[rows == row].tolist()) <= chosen
        assert len(chosen) <= 1 + len(set(parents[rows == row].tolist()))


def test_TreeModel_only_the_last_level_is_trained(synthetic: Synthetic, batch: EgoBatch) -> None:
    """All of it has a gradient, nothing above has or wants one."""
    model = make_tree(synthetic).train()
    model(batch).sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.requires_grad != name.startswith("above."), name
        assert (parameter.grad is not None) == parameter.requires_grad, name


def test_TreeModel_level_starts_from_that_above(synthetic: Synthetic) -> None:
    """Embedding, encoder and shared layers; not what belongs to single nodes."""
    model = make_tree(synthetic)
    drawn = model.head.attention.detach().clone()
    model.start_from_above()
    above = dict(model.above.named_parameters())
    for name, parameter in model.named_parameters():
        if name.startswith("above."):
            continue
        if name not in ("head.attention", "head.bias"):
            assert torch.equal(parameter, above[name]), name
    assert torch.equal(model.head.attention, drawn)


def test_TreeModel_state_dict_carries_all_levels_and_the_tree(
    synthetic: Synthetic, batch: EgoBatch
) -> None:
    """Another tree gives the same scores after loading, and others after a reset."""
    model = make_tree(synthetic)
    other = make_levels(
        synthetic.token_space(), level_sizes(25, model.config), model.config, synthetic.hierarchy
    ).eval()
    with torch.no_grad():
        other.load_state_dict(model.state_dict())
        assert torch.equal(other(batch), model(batch))
        other.reset_parameters()
        assert not torch.equal(other.above(batch), model.above(batch))


@given(st.floats(-40, 40), st.floats(-40, 40))
def test_join_log_odds_joint_log_odds_equal_the_product(one: float, other: float) -> None:
    """Also where a probability is next to 0 or 1."""
    found = float(join_log_odds(torch.tensor(one), torch.tensor(other)))
    exact = join_log_odds(torch.tensor(one).double(), torch.tensor(other).double())
    p, q = (1 / (1 + math.exp(-value)) for value in (one, other))
    assert found == pytest.approx(float(exact), abs=1e-4)
    if 1e-9 < p * q < 1 - 1e-9:
        assert float(exact) == pytest.approx(math.log(p * q / (1 - p * q)), abs=1e-5)


def test_level_sizes_follow_the_head(synthetic: Synthetic) -> None:
    """A tree above flat_labels of a head that knows one; any other model is flat."""
    tree = make_tree(synthetic).config
    assert level_sizes(25, tree) == SIZES
    assert level_sizes(4, tree) == (4,)
    assert level_sizes(10**6, ModelConfig()) == (10**6,)
    config = ModelConfig(channels=8)
    model = make_levels(synthetic.token_space(), level_sizes(25, config), config)
    assert type(model) is MatchModel


class NeedyHead(LabelAttentionHead):
    """Needs the label graph."""

    needs_label_graph = True


def test_TreeModel_head_that_needs_the_label_graph_is_refused(synthetic: Synthetic) -> None:
    """The levels above the labels have none; without a tree it gets it."""
    own = f"{__name__}:NeedyHead"
    with pytest.raises(ConfigError, match="A NeedyHead needs the label graph"):
        make_tree(synthetic, head=own)
    config = ModelConfig(encoder="attention_xml", channels=8, head=own)
    model = make_levels(
        synthetic.token_space(), level_sizes(25, config), config, synthetic.hierarchy
    )
    assert type(model.head) is NeedyHead
