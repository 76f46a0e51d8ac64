"""Graph encoder of any convolution of PyG that takes two types of nodes."""

import inspect
import warnings
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any, ClassVar, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch_geometric import nn as pyg
from torch_geometric.nn import HeteroConv, MessagePassing

from match_graph.errors import shorten
from match_graph.nn.encoders.graph import GraphEncoder, key_of_edge
from match_graph.nn.neighbors import Neighbors
from match_graph.typing import EdgeType

#: Convolutions tested against the contract of encoders.
KNOWN_CONVS = (
    "CGConv", "EdgeConv", "FiLMConv", "GATConv", "GATv2Conv", "GENConv", "GINConv",
    "GeneralConv", "GraphConv", "LEConv", "ResGatedGraphConv", "SAGEConv", "SimpleConv",
    "TransformerConv", "WLConvContinuous",
)  # fmt: skip

#: Arguments that differ from PyG's: batch normalization would make a document's state depend on its
#: batch in training.
_DEFAULTS: dict[str, dict[str, Any]] = {"GENConv": {"norm": "layer"}}
#: Convolutions with a network ``nn``: the width of its input, in multiples of the channels.
_INPUTS_OF_NN = {"GINConv": 1, "EdgeConv": 2}
#: Arguments that the encoder gives itself.
_GIVEN = frozenset({"in_channels", "out_channels", "channels", "nn", "add_self_loops"})
#: Arguments for edge attributes, which convolutions do not get.
_OF_EDGES = frozenset({"edge_dim", "in_edge_channels", "dim", "fill_value"})
#: What ``aggr`` may be, or a list of these.
_AGGREGATIONS = (
    "add", "max", "mean", "median", "min", "mul", "powermean", "softmax", "std", "sum", "var",
)  # fmt: skip
_MOST = 1024


class PygConvEncoder(GraphEncoder):
    """A convolution of PyG for each edge type, by name.

    Source: Fey and Lenssen 2019, https://arxiv.org/abs/1903.02428; each convolution cites its own.
    A layer is PyG's `HeteroConv`: a convolution of its own for each edge type and its reverse,
    whose results at a node are averaged or summed. Convolutions get the states of two types of
    nodes, so that those that know one alone (`GCNConv`, `ChebConv`, ...) are refused. Known to
    work, and tested: CGConv, EdgeConv, FiLMConv, GATConv, GATv2Conv, GENConv, GINConv, GeneralConv,
    GraphConv, LEConv, ResGatedGraphConv, SAGEConv, SimpleConv, TransformerConv, WLConvContinuous.

    ``conv_config`` has further arguments of the convolution. Heads that are joined share the
    channels. Self-loops are off, as a node's own state is added to each layer. GINConv and EdgeConv
    have a network of one hidden layer. Edge attributes are left out.
    """

    paper: ClassVar[str] = "Fey and Lenssen, ICLR workshop 2019, https://arxiv.org/abs/1903.02428"
    takes_lists: ClassVar[bool] = True

    class Config(GraphEncoder.Config):
        """Settings."""

        conv: str = Field("GATv2Conv", description="convolution of torch_geometric.nn")
        conv_config: dict[str, Any] = Field({}, description="further arguments of the convolution")
        aggr: Literal["mean", "sum"] = Field(
            "mean", description="how the results of several edge types are joined"
        )

        @model_validator(mode="after")
        def _check_conv(self) -> Self:
            """Refuses what is no convolution, or cannot be used, and arguments that it lacks."""
            check_conv(self.conv, self.conv_config, self.channels)
            return self

    def make_layer(self, config: Any, edge_types: list[EdgeType]) -> nn.Module:
        return ConvLayer(config, edge_types)


class ConvLayer(nn.Module):
    """PyG's HeteroConv, called with the neighbours of the nodes that are to be computed.

    Args:
        config: Settings of the encoder.
        edge_types: Edge types that messages follow.
    """

    def __init__(self, config: PygConvEncoder.Config, edge_types: list[EdgeType]) -> None:
        super().__init__()
        self.edge_types, self.aggr = edge_types, config.aggr
        convs = {
            key_of_edge(edge_type): make_conv(config.conv, config.conv_config, config.channels)
            for edge_type in edge_types
        }
        self.conv = HeteroConv(convs, aggr=config.aggr)

    def reset_parameters(self) -> None:
        """Reinitializes the weights."""
        self.conv.reset_parameters()

    def forward(
        self, states: dict[str, Tensor], lists: dict[EdgeType, Neighbors]
    ) -> dict[str, Tensor]:
        """New states [n, channels] of the targets of ``lists``, by type."""
        found: dict[str, list[Tensor]] = {}
        for edge_type in self.edge_types:
            source, _, target = edge_type
            neighbors, conv = lists[edge_type], self.conv.convs[key_of_edge(edge_type)]
            pair = states[source], states[target][: neighbors.num_targets]
            found.setdefault(target, []).append(conv(pair, neighbors.edge_index))
        joined = {name: torch.stack(parts).sum(0) for name, parts in found.items()}
        if self.aggr == "sum":
            return joined
        return {name: total / len(found[name]) for name, total in joined.items()}


def make_conv(name: str, conv_config: Mapping[str, Any], channels: int) -> MessagePassing:
    """A convolution between two types of nodes of the same width.

    Args:
        name: Class in ``torch_geometric.nn``.
        conv_config: Further arguments.
        channels: Width of the states, before and after.
    """
    cls = getattr(pyg, name)
    arguments = _list_arguments(cls)
    given = {**_DEFAULTS.get(name, {}), **conv_config}
    if name in _INPUTS_OF_NN:
        given["nn"] = nn.Sequential(
            nn.Linear(_INPUTS_OF_NN[name] * channels, channels),
            nn.ReLU(),
            nn.Linear(channels, channels),
        )
    ours: dict[str, Any] = {
        "in_channels": channels,
        "channels": channels,
        "out_channels": channels // _count_joined(name, conv_config),
        "add_self_loops": False,
    }
    if "in_channels" in arguments and "tuple" in str(arguments["in_channels"].annotation).lower():
        ours["in_channels"] = (channels, channels)  # a map for either end
    conv: MessagePassing = cls(
        **given, **{key: value for key, value in ours.items() if key in arguments}
    )
    return conv


def check_conv(name: str, conv_config: Mapping[str, Any], channels: int) -> None:
    """Checks that a convolution is there, takes two types of nodes, and has the given arguments.

    It is tried with a few nodes, as its signature does not say what it takes.

    Args:
        name: Class in ``torch_geometric.nn``.
        conv_config: Further arguments.
        channels: Width of the states.

    Raises:
        ValueError: With every fault, a sentence a line.
    """
    cls = getattr(pyg, name, None)
    if not (isinstance(cls, type) and issubclass(cls, MessagePassing)):
        near = get_close_matches(name, KNOWN_CONVS) or [*KNOWN_CONVS]
        raise ValueError(
            f"'conv' must be a convolution of torch_geometric.nn, found {shorten(name)}; choose "
            f"from {near}."
        )
    if faults := [*_find_faults(name, conv_config, channels)]:
        raise ValueError("\n".join(faults))
    if (reason := _try_conv(name, conv_config)) is None:
        return
    if conv_config and _try_conv(name, {}) is None:
        raise ValueError(
            f"'conv_config' must fit {name}, found {shorten(conv_config)} ({reason}); see the "
            f"arguments of torch_geometric.nn.{name}."
        )
    raise ValueError(
        f"'conv' must be a convolution that takes the states of two types of nodes, found "
        f"'{name}', which does not ({reason}); choose from {[*KNOWN_CONVS]}."
    )


def _list_arguments(cls: type[Any]) -> dict[str, inspect.Parameter]:
    """The named arguments of a convolution; ``aggr`` where it passes others on to its base."""
    _, *found = inspect.signature(cls.__init__).parameters.values()
    named = {one.name: one for one in found if one.kind is one.POSITIONAL_OR_KEYWORD}
    if any(one.kind is one.VAR_KEYWORD for one in found):
        named.setdefault("aggr", inspect.Parameter("aggr", inspect.Parameter.KEYWORD_ONLY))
    return named


def _count_joined(name: str, conv_config: Mapping[str, Any]) -> int:
    """The number of heads whose outputs are joined and share the channels."""
    arguments = _list_arguments(getattr(pyg, name))
    if not {"heads", "concat"} <= arguments.keys():
        return 1
    heads, concat = (conv_config.get(key, arguments[key].default) for key in ("heads", "concat"))
    return int(heads) if concat else 1


def _find_faults(name: str, conv_config: Mapping[str, Any], channels: int) -> Iterator[str]:
    """Sentences on arguments that the convolution lacks, and on values of the wrong type."""
    arguments = _list_arguments(getattr(pyg, name))
    offered = sorted(arguments.keys() - _GIVEN - _OF_EDGES)
    known = True
    for key, value in conv_config.items():
        if key in offered:
            must = _wrong_type(key, value, arguments[key].default)
            if must is not None:
                known = False
                yield f"'conv_config.{key}' must be {must}, found {shorten(value)}."
            continue
        known = False
        if key in _GIVEN & arguments.keys():
            yield f"'conv_config.{key}' is given by the encoder itself; leave it out."
        elif key in _OF_EDGES & arguments.keys():
            yield (
                f"'conv_config.{key}' is about edge attributes, which the encoder does not read; "
                f"leave it out."
            )
        else:
            near = get_close_matches(key, offered) or offered
            yield (
                f"'conv_config' must have arguments of torch_geometric.nn.{name}, found "
                f"{shorten(key)}; choose from {near}."
            )
    if known and channels % (heads := _count_joined(name, conv_config)):
        yield (
            f"'channels' must be a multiple of 'conv_config.heads', which are joined, found "
            f"{channels} and {heads}; change one, or set conv_config.concat to false."
        )


def _wrong_type(key: str, value: object, default: object) -> str | None:
    """Type that an argument must have, by its default; None if its value has it."""
    if key == "aggr":
        given = [*map(str, value if isinstance(value, list) and value else [value])]
        if strangers := [one for one in given if one not in _AGGREGATIONS]:
            near = get_close_matches(strangers[0], _AGGREGATIONS) or [*_AGGREGATIONS]
            return f"one or several of {near}"
        return None
    if isinstance(default, bool):
        return None if isinstance(value, bool) else "true or false"
    if isinstance(default, int | float):
        types = (int,) if isinstance(default, int) else (int, float)
        least = 1 if key == "heads" else -_MOST
        if isinstance(value, types) and not isinstance(value, bool) and least <= value <= _MOST:
            return None
        kind = "a whole number" if isinstance(default, int) else "a number"
        return f"{kind} from {least} to {_MOST}"
    return None if not isinstance(default, str) or isinstance(value, str | list) else "a name"


@torch.no_grad()
def _try_conv(name: str, conv_config: Mapping[str, Any]) -> str | None:
    """Why a convolution cannot be used, None if it can; tried on some edges, and on none."""
    channels = 4 * _count_joined(name, conv_config)
    try:
        with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
            warnings.simplefilter("ignore")
            conv = make_conv(name, conv_config, channels).eval()
            for number in (4, 0):
                edge_index = torch.tensor([[0, 1, 2, 2], [0, 0, 0, 1]])[:, :number]
                found = conv((torch.ones(3, channels), torch.ones(2, channels)), edge_index)
                if not isinstance(found, Tensor) or list(found.shape) != [2, channels]:
                    shape = list(found.shape) if isinstance(found, Tensor) else type(found).__name__
                    return f"it gives {shape} where {[2, channels]} is needed"
    except Exception as error:  # whatever a convolution raises
        text = " ".join(str(error).split())
        return f"{type(error).__name__}: {text if len(text) <= 200 else text[:200] + '...'}"
    return None
