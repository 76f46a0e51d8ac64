"""The head contract, and the linear head: one weight vector per label."""

from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from match_graph.config import StrictModel
from match_graph.errors import ConfigError, GraphError
from match_graph.graph import LabelGraph
from match_graph.nn.encoders.base import EncoderOutput
from match_graph.pretrain.vectors import spread_label_vectors


class Head(nn.Module):
    """Logits [B, L] from an encoder's states.

    A subclass states what it ``takes`` of an encoder: "document" or "tokens"; and whether it
    ``needs_label_graph``, without which it cannot be made.

    Args:
        in_channels: Width of the encoder's states.
        num_labels: Number of labels L.
        config: The head's settings.
        label_graph: Hierarchy and features of the labels; None for the nodes of a level above the
            labels in a label tree.

    Raises:
        ConfigError: The head needs a label graph, and there is none.
        GraphError: The label graph is of another number of labels.
    """

    class Config(StrictModel):
        """Settings of the head."""

    takes: ClassVar[Literal["document", "tokens"]] = "document"
    needs_label_graph: ClassVar[bool] = False

    def __init__(
        self,
        in_channels: int,
        num_labels: int,
        config: StrictModel,
        label_graph: LabelGraph | None = None,
    ) -> None:
        super().__init__()
        if label_graph is not None:
            label_graph.hierarchy.check_labels(num_labels)
        elif self.needs_label_graph:
            raise ConfigError(
                f"A {type(self).__name__} needs the label graph, but there is none above the "
                f"labels of a label tree, or where a model is made without a hierarchy; choose "
                f"another head."
            )
        self.in_channels, self.num_labels, self.config = in_channels, num_labels, config

    @property
    def label_weight(self) -> Tensor:
        """The parameters of each label, [L, C], for hypernymy in the parameter space."""
        raise NotImplementedError

    def reset_parameters(self) -> None:
        """Reinitializes every parameter."""
        raise NotImplementedError

    def set_prior(self, count: Tensor, num_documents: int | Tensor) -> None:
        """Initializes ``bias`` [L], if a head has it, with the labels' log-odds in training.

        Args:
            count: Number of training documents of each label, [L].
            num_documents: Number of training documents; one number, or one for each label, [L].
        """
        bias = getattr(self, "bias", None)
        if isinstance(bias, nn.Parameter) and bias.shape == (self.num_labels,):
            with torch.no_grad():
                bias.copy_(prior_log_odds(count, num_documents))

    def load_label_vectors(self, vectors: Tensor, width: int, slot_channels: int) -> None:
        """Initializes label parameters from pre-trained vectors, for ``model.head_from_labels``.

        Args:
            vectors: Unit vectors of the labels, [L, C].
            width: Width of the encoder's states, the first channels of a document's state.
            slot_channels: Width of the slots that an encoder's state consists of.

        Raises:
            ConfigError: The head has no such parameters.
            GraphError: The vectors do not fit.
        """
        raise ConfigError(
            f"model.head_from_labels needs a head whose labels start from vectors of their own, "
            f"found a {type(self).__name__} without; set it to false."
        )

    def start_from(self, other: "Head") -> None:
        """Copies the parameters that labels share from a head of other labels."""

    @classmethod
    def level_sizes(cls, num_labels: int, config: StrictModel) -> tuple[int, ...]:
        """Nodes on each level of the label tree, the labels last; one level if the head is flat."""
        return (num_labels,)

    def forward(self, output: EncoderOutput) -> Tensor:
        """Label scores before the sigmoid, [B, L].

        They are ranked in float32: in bfloat16, as under autocast, labels would tie.
        """
        raise NotImplementedError


def prior_log_odds(count: Tensor, num_documents: int | Tensor) -> Tensor:
    """The log-odds of the labels' training frequencies, half a document added, [L], float64.

    Biases start here: otherwise the first steps of training, with a loss summed over many rare
    labels, only push all scores down.

    Raises:
        GraphError: A label has more documents than there are.
    """
    if bool((count > num_documents).any()):
        raise GraphError(
            f"A label must be on at most all training documents, found a count of "
            f"{int(count.max())}; count labels and documents on the same split."
        )
    return torch.logit((count.double() + 0.5) / (num_documents + 1.0))


class LinearHead(Head):
    """One linear score per label from the document's state.

    Source: equation 16 of MATCH, https://arxiv.org/abs/2102.07349.

    The scores are computed as [L, B] and returned as their transpose, a view: so the hypernymy term
    reads contiguous rows of labels. Outside of training they are computed in float32 under
    autocast too: rounded to bfloat16, the best labels of a document tie.
    """

    def __init__(
        self,
        in_channels: int,
        num_labels: int,
        config: StrictModel,
        label_graph: LabelGraph | None = None,
    ) -> None:
        super().__init__(in_channels, num_labels, config, label_graph)
        self.weight = nn.Parameter(torch.empty(num_labels, in_channels))
        self.bias = nn.Parameter(torch.empty(num_labels))
        self.reset_parameters()

    @property
    def label_weight(self) -> Tensor:
        return self.weight

    def reset_parameters(self) -> None:
        nn.init.xavier_uniform_(self.weight)
        nn.init.zeros_(self.bias)

    @torch.no_grad()
    def load_label_vectors(self, vectors: Tensor, width: int, slot_channels: int) -> None:
        weight = self.weight[:, :width]
        weight.copy_(spread_label_vectors(weight, vectors, slot_channels))

    def forward(self, output: EncoderOutput) -> Tensor:
        state = output.document
        assert state is not None
        if self.training:
            return torch.addmm(self.bias.unsqueeze(1), self.weight, state.t()).t()
        with torch.autocast(state.device.type, enabled=False):
            state = state.to(self.weight.dtype)
            return torch.addmm(self.bias.unsqueeze(1), self.weight, state.t()).t()
