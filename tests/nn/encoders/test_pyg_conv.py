"""PyG's convolutions by name: those that fit work, the others are refused with a reason."""

from typing import Any

import pytest
import torch
from torch_geometric import nn as pyg

from match_graph.config import parse_settings
from match_graph.errors import ConfigError
from match_graph.graph import BuiltGraph, EgoGraphs, EgoLoader, EgoSampler, TokenSpace
from match_graph.nn import HeteroSageEncoder, PygConvEncoder, TokenEmbedding
from match_graph.nn.encoders.pyg_conv import KNOWN_CONVS, ConvLayer, check_conv, make_conv
from match_graph.nn.neighbors import Neighbors
from match_graph.testing import assert_encoder
from match_graph.typing import has_edge, reverse_edge

#: Further arguments under which convolutions keep the contract.
MORE: list[tuple[str, dict[str, Any]]] = [
    ("GATConv", {"heads": 2, "residual": True}),
    ("GATv2Conv", {"heads": 3, "concat": False, "share_weights": True}),
    ("GENConv", {"aggr": "powermean", "num_layers": 1}),
    ("GENConv", {"learn_t": True, "aggr": "softmax"}),
    ("GINConv", {"train_eps": True}),
    ("GeneralConv", {"attention": True, "heads": 2, "l2_normalize": True}),
    ("SAGEConv", {"aggr": ["mean", "max"], "normalize": True, "project": True}),
    ("TransformerConv", {"heads": 2, "beta": True}),
]
#: Convolutions that take other arguments, or one type of nodes.
REFUSED = sorted(
    name
    for name in pyg.conv.__all__
    if name not in (*KNOWN_CONVS, "MFConv")  # runs, but has weights by degree that may be unused
)


def config(name: str, **settings: Any) -> PygConvEncoder.Config:
    given = {"conv": name, "channels": 6, "num_layers": 1, **settings}
    return parse_settings(PygConvEncoder.Config, given, "wrong")


# Convolutions --------------------------------------------------------------------------------


def test_KNOWN_CONVS_stand_in_the_docstring() -> None:
    """Whoever reads the documentation finds all of them."""
    words = (PygConvEncoder.__doc__ or "").replace(",", " ").replace(".", " ").split()
    assert set(KNOWN_CONVS) <= set(words)


@pytest.mark.parametrize("name", KNOWN_CONVS)
def test_PygConvEncoder_known_convolutions_keep_the_contract(name: str) -> None:
    """A name is enough."""
    assert_encoder(PygConvEncoder, config(name))


@pytest.mark.parametrize(("name", "conv_config"), MORE)
def test_PygConvEncoder_further_arguments_keep_the_contract(
    name: str, conv_config: dict[str, Any]
) -> None:
    """Heads joined and averaged, other aggregations, learned constants."""
    assert_encoder(PygConvEncoder, config(name, conv_config=conv_config, aggr="sum"))


@pytest.fixture(scope="module")
def toy_batch(toy_graph: BuiltGraph):
    """All documents of the toy corpus with their neighbourhoods, and the token space."""
    data, space = toy_graph.data, TokenSpace.from_data(toy_graph.data)
    graphs = EgoGraphs(data, config("SAGEConv").neighborhood, space)
    (batch,) = EgoLoader(
        data, EgoSampler(data), space, torch.arange(12), graphs=graphs, batch_size=12
    )
    return batch, space


@pytest.mark.parametrize("name", KNOWN_CONVS)
def test_PygConvEncoder_known_convolutions_train_in_bfloat16(name: str, toy_batch) -> None:
    """Under autocast, forward and backward."""
    batch, space = toy_batch
    encoder = PygConvEncoder(TokenEmbedding(space, 8), config(name))
    with torch.autocast("cpu", torch.bfloat16):
        states = encoder(batch).document
    states.float().pow(2).sum().backward()
    assert states.isfinite().all()
    assert all(one.grad is None or one.grad.isfinite().all() for one in encoder.parameters())


@torch.no_grad()
@pytest.mark.parametrize("name", KNOWN_CONVS)
def test_PygConvEncoder_known_convolutions_normalize_no_batch(name: str, toy_batch) -> None:
    """Without dropout, states in training are those in evaluation."""
    batch, space = toy_batch
    encoder = PygConvEncoder(TokenEmbedding(space, 8), config(name, dropout=0.0)).eval()
    expected = encoder(batch).document
    assert torch.allclose(encoder.train()(batch).document, expected, atol=1e-5)


@torch.no_grad()
def test_PygConvEncoder_of_SAGEConv_is_hetero_sage(toy_batch) -> None:
    """The same weights, the same states."""
    batch, space = toy_batch
    embedding = TokenEmbedding(space, 8).eval()
    encoder = PygConvEncoder(embedding, config("SAGEConv", num_layers=2)).eval()
    settings = {"channels": 6, "num_layers": 2}
    other = HeteroSageEncoder(embedding, HeteroSageEncoder.Config(**settings)).eval()
    other.load_state_dict(encoder.state_dict())
    assert torch.allclose(encoder(batch).document, other(batch).document, atol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("aggr", ["mean", "sum"])
def test_ConvLayer_is_HeteroConv(aggr: str) -> None:
    """What PyG's own layer gives where every node is computed; loops off, heads share channels."""
    torch.manual_seed(0)
    author = has_edge("author")
    edge_types = [author, has_edge("venue"), reverse_edge(author), reverse_edge(has_edge("venue"))]
    layer = ConvLayer(config("GATConv", conv_config={"heads": 2}, aggr=aggr), edge_types)
    states = {name: torch.randn(n, 6) for name, n in (("document", 4), ("author", 3), ("venue", 2))}
    edges = {
        edge_type: torch.stack([torch.randint(len(states[edge_type[end]]), (7,)) for end in (0, 2)])
        for edge_type in edge_types
    }
    lists = {
        edge_type: Neighbors.from_edges(edges[edge_type], len(states[edge_type[2]]))
        for edge_type in edge_types
    }
    found = layer(states, lists)
    expected = layer.conv(
        {f"{name}-": values for name, values in states.items()},
        {(f"{one[0]}-", one[1], f"{one[2]}-"): edges[one] for one in edge_types},
    )
    for name, values in found.items():
        assert torch.allclose(values, expected[f"{name}-"], atol=1e-6), name
    conv = next(iter(layer.conv.convs.values()))
    assert (conv.heads, conv.out_channels, conv.add_self_loops) == (2, 3, False)


def test_make_conv_leaves_the_generator_of_the_caller() -> None:
    """Checking settings draws nothing: a run's weights do not depend on how often it is done."""
    torch.manual_seed(3)
    state = torch.get_rng_state()
    check_conv("GATv2Conv", {"heads": 2}, 8)
    assert torch.equal(torch.get_rng_state(), state)
    assert make_conv("GATv2Conv", {"heads": 2}, 8).out_channels == 4


# Faults --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", REFUSED)
def test_check_conv_refuses_what_cannot_take_two_node_types(name: str) -> None:
    """Or what needs arguments that no setting can give; the sentence says what can be taken."""
    with pytest.raises(
        ValueError, match=r"^'conv' must be a convolution .*; choose from \[.*\]\.$"
    ):
        check_conv(name, {}, 8)


def test_check_conv_sentence_names_reason_and_choices() -> None:
    """GCNConv, the first that is tried."""
    with pytest.raises(ConfigError) as caught:
        config("GCNConv")
    assert str(caught.value) == (
        f"wrong: 'conv' must be a convolution that takes the states of two types of nodes, found "
        f"'GCNConv', which does not (ValueError: 'GCNConv' received a tuple of node features as "
        f"input while this layer does not support bipartite message passing. Please try other "
        f"layers such as 'SAGEConv' or 'GraphConv' instead); choose from {[*KNOWN_CONVS]}."
    )


@pytest.mark.parametrize(
    ("name", "conv_config", "sentence"),
    [
        (
            "GATv3Conv",
            {},
            "'conv' must be a convolution of torch_geometric.nn, found 'GATv3Conv'; choose from "
            "['GATv2Conv', 'GATConv', 'CGConv'].",
        ),
        (
            "__class__",
            {},
            f"'conv' must be a convolution of torch_geometric.nn, found '__class__'; choose from "
            f"{[*KNOWN_CONVS]}.",
        ),
        (
            "GATConv",
            {"hedas": 2},
            "'conv_config' must have arguments of torch_geometric.nn.GATConv, found 'hedas'; "
            "choose from ['heads'].",
        ),
        (
            "GATConv",
            {"out_channels": 2},
            "'conv_config.out_channels' is given by the encoder itself; leave it out.",
        ),
        (
            "GATConv",
            {"edge_dim": 2},
            "'conv_config.edge_dim' is about edge attributes, which the encoder does not read; "
            "leave it out.",
        ),
        ("GATConv", {"concat": "no"}, "'conv_config.concat' must be true or false, found 'no'."),
        (
            "GATConv",
            {"heads": 0},
            "'conv_config.heads' must be a whole number from 1 to 1024, found 0.",
        ),
        (
            "GATConv",
            {"dropout": 1e9},
            "'conv_config.dropout' must be a number from -1024 to 1024, found 1000000000.0.",
        ),
        (
            "GATConv",
            {"heads": 4},
            "'channels' must be a multiple of 'conv_config.heads', which are joined, found 6 and "
            "4; change one, or set conv_config.concat to false.",
        ),
        (
            "SAGEConv",
            {"aggr": "meen"},
            "'conv_config.aggr' must be one or several of ['mean', 'median'], found 'meen'.",
        ),
        (
            "SimpleConv",
            {"combine_root": "cat"},
            "'conv_config' must fit SimpleConv, found {'combine_root': 'cat'} (it gives [2, 8] "
            "where [2, 4] is needed); see the arguments of torch_geometric.nn.SimpleConv.",
        ),
    ],
)
def test_check_conv_faults_are_one_sentence(
    name: str, conv_config: dict[str, Any], sentence: str
) -> None:
    """With the nearest right name or value."""
    with pytest.raises(ConfigError) as caught:
        config(name, conv_config=conv_config)
    assert str(caught.value) == f"wrong: {sentence}"


def test_check_conv_lists_all_wrong_arguments() -> None:
    """At once, each a fault."""
    with pytest.raises(ConfigError, match="wrong, but 3 faults were found:"):
        config("GATConv", conv_config={"hedas": 2, "concat": 1, "fill_value": 0})
