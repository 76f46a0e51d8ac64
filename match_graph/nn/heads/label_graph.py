"""Message passing over the label DAG: documents scored against label states."""

from collections.abc import Callable
from typing import ClassVar, Literal, TypeAlias

import torch
from pydantic import Field
from torch import Tensor, nn
from torch_geometric.nn import GATv2Conv, GCNConv, SAGEConv

from match_graph.config import StrictModel
from match_graph.errors import ConfigError
from match_graph.graph import LabelGraph
from match_graph.nn.encoders.base import EncoderOutput, NumLayers, Rate, Width
from match_graph.nn.heads.base import Head
from match_graph.nn.layers import ByteDropout
from match_graph.pretrain.vectors import spread_label_vectors

ConvName: TypeAlias = Literal["GCNConv", "SAGEConv", "GATv2Conv"]
_CONVS: dict[ConvName, Callable[..., nn.Module]] = {
    "GCNConv": GCNConv,
    "SAGEConv": SAGEConv,
    "GATv2Conv": GATv2Conv,
}


class LabelGraphHead(Head):
    r"""Documents scored against label states from message passing over the label DAG.

    .. math::
        h^0_l = e_l + P x_l, \quad
        h^{k+1}_l = h^k_l + relu(U_k(h^k)_l + D_k(h^k)_l), \quad
        z_{bl} = \langle W d_b, h^K_l \rangle + b_l

    with a learned vector e_l and the features x_l of a label, such as its name's vector, scaled to
    length 1; PyG convolutions U from children to parents and D from parents to children with
    weights of their own; and a document's state d. A label on no training document gets its state
    from its features and its neighbours.

    Sources: ZAGCNN (Rios & Kavuluru, EMNLP 2018), https://aclanthology.org/D18-1352, which scores
    documents against label states of a GCN over the hierarchy that starts from label descriptions;
    and the hierarchy-aware structure encoders of HiAGM (Zhou et al., ACL 2020),
    https://aclanthology.org/2020.acl-main.104, which pass messages in both directions. Differs from
    them by the documents' state, which the encoder gives and is the same for all labels (both
    attend to the text by label), by residual layers, by a bias for each label, and by edges of
    weight 1 where HiAGM has the frequencies of its training labels.

    All labels' states are computed once a step. In evaluation, without gradients, they are kept as
    long as the weights stay the same.

    Raises:
        ConfigError: There is no label graph, or nothing to start label states from.
        GraphError: The label graph is of another number of labels.
    """

    class Config(StrictModel):
        """Settings of the head."""

        conv: ConvName = Field("GCNConv", description="convolution of PyG, by name")
        num_layers: NumLayers = Field(1, description="number of layers, rounds of messages")
        channels: Width = Field(256, description="width of label states")
        dropout: Rate = Field(0.1, description="dropout rate after each layer")
        direction: Literal["both", "up", "down"] = Field(
            "both", description="direction of messages; up: to parents, down: to children"
        )
        learned: bool = Field(
            True, description="start each label from a learned vector too, not from features alone"
        )

    needs_label_graph: ClassVar[bool] = True
    edge_index: Tensor
    x: Tensor | None

    def __init__(
        self,
        in_channels: int,
        num_labels: int,
        config: Config,
        label_graph: LabelGraph | None = None,
    ) -> None:
        super().__init__(in_channels, num_labels, config, label_graph)
        assert label_graph is not None
        if label_graph.x is None and not config.learned:
            raise ConfigError(
                "Label states must start from learned vectors or from features of labels, found "
                "neither; set model.head_config.learned=true, or give labels features."
            )
        # a copy, since moving a module to a device may move its buffers in place
        edge_index = label_graph.hierarchy.edge_index.clone()
        self.register_buffer("edge_index", edge_index, persistent=False)
        x = None if label_graph.x is None else nn.functional.normalize(label_graph.x.float())
        self.register_buffer("x", x, persistent=False)
        channels = config.channels
        self.start = nn.Parameter(torch.empty(num_labels, channels)) if config.learned else None
        self.project_x = None if x is None else nn.Linear(x.size(1), channels, bias=False)
        self.up, self.down = (
            nn.ModuleList(
                _CONVS[config.conv](channels, channels)
                for _ in range(config.num_layers if config.direction in ("both", way) else 0)
            )
            for way in ("up", "down")
        )
        self.dropout = ByteDropout(config.dropout)
        self.project = nn.Linear(in_channels, channels, bias=False)
        self.bias = nn.Parameter(torch.empty(num_labels))
        self._states: Tensor | None = None  # of the last forward pass in training, with gradient
        self._kept: tuple[list[Tensor], Tensor] | None = None  # weights, and states by them
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Reinitializes the weights: learned vectors about as long as 1, biases zero."""
        if self.start is not None:
            nn.init.normal_(self.start, std=self.start.size(1) ** -0.5)
        for linear in (self.project, self.project_x):
            if linear is not None:
                nn.init.xavier_uniform_(linear.weight)
        for conv in (*self.up, *self.down):
            conv.reset_parameters()
        nn.init.zeros_(self.bias)

    @torch.no_grad()
    def load_label_vectors(self, vectors: Tensor, width: int, slot_channels: int) -> None:
        if self.start is None:
            super().load_label_vectors(vectors, width, slot_channels)
        else:
            self.start.copy_(spread_label_vectors(self.start, vectors, self.start.size(1)))

    @property
    def label_weight(self) -> Tensor:
        """The states of the labels, [L, channels]; in training those of the last forward pass."""
        if self.training and self._states is not None:
            return self._states
        return self._encode_labels()

    def forward(self, output: EncoderOutput) -> Tensor:
        state = output.document
        assert state is not None
        labels = self._encode_labels()
        if self.training:
            return torch.addmm(self.bias.unsqueeze(1), labels, self.project(state).t()).t()
        with torch.autocast(state.device.type, enabled=False):
            state = self.project(state.to(labels.dtype))
            return torch.addmm(self.bias.unsqueeze(1), labels, state.t()).t()

    def _encode_labels(self) -> Tensor:
        """States of the labels by the present weights, [L, channels]."""
        if self.training or torch.is_grad_enabled():
            self._kept = None
            states = self._pass_messages()
            self._states = states if self.training and states.requires_grad else None
            if self._states is not None:
                states.register_hook(self._forget)
            return states
        weights = [
            weight.detach()
            for name, weight in self.named_parameters()
            if name != "bias" and not name.startswith("project.")
        ]
        # the weights themselves: fused optimizers change them without a new version number
        if self._kept is None or not all(map(_is_same, weights, self._kept[0])):
            self._kept = [weight.clone() for weight in weights], self._pass_messages()
        return self._kept[1]

    def _forget(self, _: Tensor) -> None:
        """Drops the states whose gradient is being computed: their autograd graph is freed."""
        self._states = None

    def _pass_messages(self) -> Tensor:
        """States of the labels, [L, channels]; in full precision, also under autocast."""
        with torch.autocast(self.bias.device.type, enabled=False):
            states: Tensor | None = self.start
            if self.project_x is not None:
                projected = self.project_x(self.x)
                states = projected if states is None else states + projected
            assert states is not None
            directions = ((self.up, self.edge_index), (self.down, self.edge_index.flip(0)))
            for number in range(max(len(self.up), len(self.down))):
                received = [convs[number](states, edges) for convs, edges in directions if convs]
                states = states + self.dropout(torch.relu(torch.stack(received).sum(0)))
            return states


def _is_same(one: Tensor, other: Tensor) -> bool:
    return (one.device, one.dtype) == (other.device, other.dtype) and torch.equal(one, other)
