"""Linear head: one weight vector per label."""

import torch
from torch import Tensor, nn

from match_graph.config import StrictModel
from match_graph.nn.encoders.base import EncoderOutput
from match_graph.nn.heads.base import Head


class LinearHead(Head):
    """One linear score per label from the document's state.

    Source: equation 22 of MATCH, https://arxiv.org/abs/2102.07349.

    The scores are computed as [L, B] and handed out as their transpose, a view: the hypernymy
    term reads whole rows of labels then. Outside of training they are computed in float32 under
    autocast too: rounded to bfloat16, the best labels of a document tie.

    Args:
        in_channels: Width of a document's state.
        num_labels: Number of labels L.
        config: Settings of the head.
    """

    def __init__(self, in_channels: int, num_labels: int, config: StrictModel) -> None:
        super().__init__(in_channels, num_labels, config)
        self.weight = nn.Parameter(torch.empty(num_labels, in_channels))
        self.bias = nn.Parameter(torch.empty(num_labels))
        self.reset_parameters()

    @property
    def label_weight(self) -> Tensor:
        return self.weight

    def reset_parameters(self) -> None:
        nn.init.xavier_uniform_(self.weight)
        nn.init.zeros_(self.bias)

    def forward(self, output: EncoderOutput) -> Tensor:
        state = output.document
        assert state is not None
        if self.training:
            return torch.addmm(self.bias.unsqueeze(1), self.weight, state.t()).t()
        with torch.autocast(state.device.type, enabled=False):
            state = state.to(self.weight.dtype)
            return torch.addmm(self.bias.unsqueeze(1), self.weight, state.t()).t()
