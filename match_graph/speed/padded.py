"""Baseline of training and prediction: `torch.nn.TransformerEncoder` over padded documents."""

from typing import Any

import torch
from torch import Tensor, nn

from match_graph.config import Config
from match_graph.graph import EgoBatch
from match_graph.graph.csr import row_index
from match_graph.nn import LinearHead, MatchEncoder, MatchModel
from match_graph.nn.layers import sinusoids
from match_graph.nn.model import find_head
from match_graph.training.models import find_model

#: Number of tokens that the authors' release pads to, metadata and words together.
RELEASE_LENGTH = 500


def is_match(config: Config) -> bool:
    """Whether a model has MATCH's encoder and a linear head, as `PaddedModel` has."""
    model = find_model(config)
    return model.cls is MatchEncoder and find_head(config.model) is LinearHead


class PaddedModel(nn.Module):
    """MATCH as it is usually written: dense batches into `torch.nn.TransformerEncoder`.

    With the weights of a `MatchModel` it gives the same scores for documents of at most ``length``
    tokens; longer ones are truncated. Dropout is torch's, at the same rates and places as in MATCH:
    not on attention weights and the hidden layer, where torch's layer would apply it too. [CLS]
    tokens, which are dropped out in MATCH, are not.

    Args:
        model: Model with the encoder and head of MATCH, whose weights are copied.
        length: Number of tokens of every document without [CLS]; None pads to the batch's longest.
    """

    def __init__(self, model: MatchModel, length: int | None = None) -> None:
        super().__init__()
        encoder, head = model.encoder, model.head
        assert isinstance(encoder, MatchEncoder)
        assert isinstance(head, LinearHead)
        self.length, self.num_cls = length, encoder.num_cls
        self.word_field, self.position_channels = encoder.word_field, encoder.position_channels
        self.scale = model.embedding.scale
        self.embedding = nn.Embedding.from_pretrained(
            model.embedding.weight.detach().clone(), freeze=False, padding_idx=0
        )
        self.cls = nn.Parameter(encoder.cls.detach().clone())
        self.field = None
        if encoder.field is not None:
            self.field = nn.Parameter(encoder.field.detach().clone())
        self.dropout = nn.Dropout(model.embedding.dropout.p)
        self.encoder = _make_transformer(encoder)
        self.head = nn.Linear(head.in_channels, head.num_labels)
        self.head.load_state_dict(head.state_dict())

    def forward(self, batch: EgoBatch) -> Tensor:
        """Label scores before the sigmoid, [B, L]."""
        row, column, kept, length = self._place(batch)
        shape = (batch.num_documents, length)
        token_id, field, position = (
            batch.token_id.new_zeros(shape).index_put((row, column), values[kept])
            for values in (batch.token_id, batch.field, batch.position)
        )
        padding = torch.ones(shape, dtype=torch.bool, device=row.device)
        padding[row, column] = False
        code = sinusoids(position.view(-1), self.position_channels)
        code = code.view(*shape, self.position_channels)
        code = code * (field == self.word_field).unsqueeze(-1)
        content = torch.cat([self.dropout(self.embedding(token_id) * self.scale), code], dim=-1)
        if self.field is not None:
            content = content + self.field[field]  # [B, T, C]
        cls = self.cls.expand(batch.num_documents, -1, -1)
        tokens = torch.cat([cls, content], dim=1)
        mask = torch.cat([padding.new_zeros(len(padding), self.num_cls), padding], dim=1)
        states = self.encoder(tokens, src_key_padding_mask=mask)
        logits: Tensor = self.head(states[:, : self.num_cls].flatten(1))
        return logits

    def _place(self, batch: EgoBatch) -> tuple[Tensor, Tensor, Tensor, int]:
        """Row and column of the kept tokens, their mask, and the length of all rows."""
        row = row_index(batch.ptr)
        column = torch.arange(len(row), device=row.device) - batch.ptr[row]
        length = self.length
        if length is None:
            length = int(batch.ptr.diff().max())
        kept = column < length
        return row[kept], column[kept], kept, length


def _make_transformer(encoder: MatchEncoder) -> nn.TransformerEncoder:
    layers: Any = list(encoder.layers)
    layer = nn.TransformerEncoderLayer(
        encoder.channels,
        layers[0].attention.num_heads,
        layers[0].linear1.out_features,
        encoder.dropout.p,
        batch_first=True,
    )
    padded = nn.TransformerEncoder(layer, len(layers), enable_nested_tensor=False)
    for theirs, ours in zip(padded.layers, layers, strict=True):
        weights = {
            "self_attn.in_proj_weight": ours.attention.project.weight,
            "self_attn.in_proj_bias": ours.attention.project.bias,
            "self_attn.out_proj.weight": ours.attention.out.weight,
            "self_attn.out_proj.bias": ours.attention.out.bias,
        }
        for name in ("linear1", "linear2", "norm1", "norm2"):
            module = getattr(ours, name)
            weights |= {f"{name}.weight": module.weight, f"{name}.bias": module.bias}
        theirs.load_state_dict(weights)
        theirs.self_attn.dropout = theirs.dropout.p = 0.0
    return padded
