"""Label-wise attention over token states."""

from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from match_graph.config import MAX_CHANNELS, StrictModel
from match_graph.graph import LabelGraph
from match_graph.graph.label_clusters import tree_sizes
from match_graph.nn.attention import RaggedLayout, reset_layers, unreached
from match_graph.nn.encoders.base import EncoderOutput
from match_graph.nn.heads.base import Head


class LabelAttentionHead(Head):
    r"""A vector per label attends to the tokens; one network, shared by the labels, scores.

    .. math:: m_l = \sum_i softmax_i(h_i \cdot w_l) \, h_i, \quad
              z_l = v \cdot relu(A \, m_l + a) + b_l

    Source: equations 2 and 3 of AttentionXML (You et al., NeurIPS 2019),
    https://arxiv.org/abs/1811.01727. As the weights of a label sum to 1, A and a are applied to
    the tokens before the sum, which gives the same scores for a fraction of the work. Differs from
    the paper by the bias b_l of each label, which starts at its log-odds in training: the paper's
    labels share one and first have to learn how rare they are. A document without any token has
    m_l = 0. Label vectors start at a standard deviation of 4 / sqrt(C): all that tells labels apart
    is where they look, and from the small uniform start of the authors' release all of them look
    everywhere, a plateau that 250 steps on the planted corpus did not leave (NDCG@5 .58, that of
    the label prior, against .75).

    Nothing of size [B, L, C] or [B, L, tokens] exists: labels are processed in chunks, of which
    only the scores are kept; the backward pass recomputes the rest chunk by chunk. Outside
    of training the last layer is computed in float32 under autocast too: rounded to bfloat16, the
    best labels of a document tie.
    """

    class Config(StrictModel):
        """Settings; the defaults are the paper's for EUR-Lex, those of the tree for Wiki-500K."""

        hidden_channels: list[Annotated[int, Field(ge=1, le=MAX_CHANNELS)]] = Field(
            [256],
            min_length=1,
            max_length=256,
            description="widths of the layers that the labels share",
        )
        chunk_values: int = Field(
            2**24,
            ge=1,
            le=2**34,
            description="number of values [documents, labels, channels] that exist at once",
        )

        flat_labels: int = Field(
            10_000,
            ge=1,
            le=10**9,
            description="number of labels above which a label tree is trained, by level",
        )
        cluster_size: int = Field(
            64, ge=2, le=10**6, description="number of nodes below one node of the tree; its K"
        )
        beam: int = Field(
            15,
            ge=1,
            le=10**6,
            description="number of nodes of a level whose children are scored; its C",
        )

    takes: ClassVar[Literal["document", "tokens"]] = "tokens"

    def __init__(
        self,
        in_channels: int,
        num_labels: int,
        config: Config,
        label_graph: LabelGraph | None = None,
    ) -> None:
        super().__init__(in_channels, num_labels, config, label_graph)
        self.chunk_values = config.chunk_values
        first, *others = config.hidden_channels
        self.attention = nn.Parameter(torch.empty(num_labels, in_channels))
        self.project = nn.Linear(in_channels, first)
        self.hidden = nn.ModuleList(
            nn.Linear(narrow, wide)
            for narrow, wide in zip(config.hidden_channels, others, strict=False)
        )
        self.out = nn.Linear(config.hidden_channels[-1], 1, bias=False)
        self.bias = nn.Parameter(torch.empty(num_labels))
        self.reset_parameters()

    @property
    def label_weight(self) -> Tensor:
        """The labels' attention vectors w_l, [L, C]."""
        return self.attention

    def reset_parameters(self) -> None:
        """Reinitializes the weights: Xavier uniform, label vectors normal, biases zero."""
        nn.init.normal_(self.attention, std=4 / self.in_channels**0.5)
        nn.init.zeros_(self.bias)
        reset_layers(self.project, *self.hidden, self.out)

    def start_from(self, other: Head) -> None:
        """Copies the layers that the labels share."""
        assert isinstance(other, LabelAttentionHead)
        for name in ("project", "hidden", "out"):
            getattr(self, name).load_state_dict(getattr(other, name).state_dict())

    @classmethod
    def level_sizes(cls, num_labels: int, config: StrictModel) -> tuple[int, ...]:
        """Nodes on each level of the label tree; above ``flat_labels`` labels there are several."""
        assert isinstance(config, LabelAttentionHead.Config)
        return tree_sizes(num_labels, config.flat_labels, config.cluster_size)

    def forward(self, output: EncoderOutput, candidates: Tensor | None = None) -> Tensor:
        """Label scores before the sigmoid.

        Args:
            output: Packed token states of B documents.
            candidates: Labels to score for each document, [B, M], int64; None for all.

        Returns:
            [B, L], the transpose of a contiguous [L, B]; with candidates [B, M] in their order.
        """
        assert output.states is not None
        lengths = output.ptr.diff()
        rows = (lengths > 0).nonzero().view(-1)  # the documents with tokens
        if rows.numel() == lengths.numel() > 0:
            return self._attend(output.states, output.ptr, candidates)
        empty = self._score_empty(candidates, lengths.numel())  # [B, L] or [B, M]
        if not rows.numel():
            return empty + unreached(output.states, *self.parameters())
        ptr = torch.cat([output.ptr[:1], lengths[rows].cumsum(0)])
        logits = self._attend(
            output.states, ptr, None if candidates is None else candidates.index_select(0, rows)
        )
        return empty.to(logits.dtype).t().index_copy(1, rows, logits.t()).t()

    def _attend(self, states: Tensor, ptr: Tensor, candidates: Tensor | None) -> Tensor:
        """The scores of documents that all have tokens."""
        layout = RaggedLayout.from_ptr(ptr)
        keys, values = layout.pad(states), layout.pad(self.project(states))
        chosen: list[Tensor | None] = [None] * len(keys)
        if candidates is not None:
            sizes = [rows for rows, _ in layout.shapes]
            chosen = list(candidates.index_select(0, layout.order).split(sizes))
        shared = self._shared()
        blocks = [
            _LabelAttention.apply(
                key,
                value,
                valid,
                self.attention,
                self.bias,
                labels,
                self.chunk_values,
                not self.training,
                *shared,
            )
            for (key, valid), (value, _), labels in zip(keys, values, chosen, strict=True)
        ]
        back = torch.argsort(layout.order)
        return torch.cat(blocks, dim=1).index_select(1, back).t()

    def _shared(self) -> list[Tensor]:
        """The weights and biases behind the projection, then the last weights."""
        tensors: list[Tensor] = []
        for linear in self.hidden:
            assert isinstance(linear, nn.Linear)
            tensors += [linear.weight, linear.bias]
        return [*tensors, self.out.weight]

    def _score_empty(self, candidates: Tensor | None, num_documents: int) -> Tensor:
        score = score_hidden(self.project.bias, self._shared(), exact=not self.training)
        if candidates is not None:
            return score + self.bias[candidates]
        return (score + self.bias).unsqueeze(1).repeat(1, num_documents).t()


def score_hidden(hidden: Tensor, shared: list[Tensor], *, exact: bool = False) -> Tensor:
    """relu, then the layers that the labels share, [..., F] -> [...].

    Args:
        hidden: Output of the first layer, [..., F].
        shared: Weight and bias of each further layer, then the weights of the last, [1, F].
        exact: Whether the last layer keeps the weights' precision under autocast.
    """
    hidden = torch.relu(hidden)
    *layers, last = shared
    for weight, bias in zip(layers[::2], layers[1::2], strict=True):
        hidden = torch.relu(nn.functional.linear(hidden, weight, bias))
    if not exact:
        return nn.functional.linear(hidden, last).squeeze(-1)
    with torch.autocast(last.device.type, enabled=False):
        return nn.functional.linear(hidden.to(last.dtype), last).squeeze(-1)


def score_labels(
    keys: Tensor,
    values: Tensor,
    valid: Tensor | None,
    query: Tensor,
    shared: list[Tensor],
    *,
    exact: bool = False,
) -> Tensor:
    """The scores of some labels without their biases, [B, K].

    Args:
        keys: Token states, [B, T, C].
        values: Token states after the first shared layer, [B, T, F].
        valid: Mask of tokens that are not padding, [B, T], bool; None for all.
        query: Attention vectors, [K, C], or per document [B, K, C].
        shared: Weights and biases of the shared layers, see `score_hidden`.
        exact: Whether the last layer keeps the weights' precision under autocast.
    """
    scores = keys @ query.transpose(-1, -2)  # [B, T, K]
    if valid is not None:
        scores = scores.masked_fill(~valid.unsqueeze(2), -torch.inf)
    weights = torch.softmax(scores, dim=1).transpose(1, 2)
    return score_hidden(
        weights.to(values.dtype) @ values, shared, exact=exact
    )  # [B, K, F] -> [B, K]


class _LabelAttention(torch.autograd.Function):
    """`score_labels` plus biases in chunks of labels, [L, B], recomputed for the gradient."""

    @staticmethod
    def forward(
        ctx: Any,
        keys: Tensor,
        values: Tensor,
        valid: Tensor | None,
        weight: Tensor,
        bias: Tensor,
        candidates: Tensor | None,
        chunk_values: int,
        exact: bool,
        *shared: Tensor,
    ) -> Tensor:
        ctx.save_for_backward(keys, values, valid, weight, candidates, *shared)
        widest = max(keys.size(1), *(layer.size(-1) for layer in (values, *shared)))
        if candidates is not None:
            widest = max(widest, keys.size(2))
        ctx.step = max(1, chunk_values // (keys.size(0) * widest))
        device = keys.device.type
        ctx.autocast = device, torch.get_autocast_dtype(device), torch.is_autocast_enabled(device)
        inputs = [layer.detach() for layer in shared]  # detached ones are not cached by autocast
        chunks = []
        for labels in _chunks(weight, candidates, ctx.step):
            scores = score_labels(keys, values, valid, weight[labels], inputs, exact=exact)
            chunks.append((scores + bias[labels]).t())
        return torch.cat(chunks)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, outgoing: Tensor) -> tuple[Tensor | None, ...]:
        keys, values, valid, weight, candidates, *shared = ctx.saved_tensors
        inputs = [tensor.detach().requires_grad_() for tensor in (keys, values, *shared)]
        # in float32 at least, as a sum of many chunks stops growing in bfloat16
        wide = [torch.promote_types(tensor.dtype, torch.float32) for tensor in inputs]
        sums = [torch.zeros_like(one, dtype=kind) for one, kind in zip(inputs, wide, strict=True)]
        d_weight, d_bias = torch.zeros_like(weight), weight.new_zeros(weight.size(0))
        device, dtype, enabled = ctx.autocast
        start = 0
        for labels in _chunks(weight, candidates, ctx.step):
            query = weight[labels].detach().requires_grad_()
            with torch.enable_grad(), torch.autocast(device, dtype, enabled, cache_enabled=False):
                scores = score_labels(inputs[0], inputs[1], valid, query, inputs[2:])
            part = outgoing[start : start + scores.size(1)].t()
            start += scores.size(1)
            found = torch.autograd.grad(scores, [query, *inputs], part.to(scores.dtype))
            sums = [one.add_(other) for one, other in zip(sums, found[1:], strict=True)]
            if candidates is None:
                d_weight[labels], d_bias[labels] = found[0], part.sum(dim=0).to(d_bias)
            else:
                d_weight.index_add_(0, labels.reshape(-1), found[0].flatten(0, 1))
                d_bias.index_add_(0, labels.reshape(-1), part.reshape(-1).to(d_bias))
        of_inputs = [one.to(other.dtype) for one, other in zip(sums, inputs, strict=True)]
        return (*of_inputs[:2], None, d_weight, d_bias, None, None, None, *of_inputs[2:])


def _chunks(weight: Tensor, candidates: Tensor | None, step: int) -> list[Any]:
    """Indices of labels: slices of all, or columns of the candidates."""
    if candidates is not None:
        return list(candidates.split(step, dim=1))
    num_labels = weight.size(0)
    return [slice(start, min(start + step, num_labels)) for start in range(0, num_labels, step)]
