"""Attention of a document's own states, recorded while a model computes."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from match_graph.nn.attention import RaggedAttention


@dataclass(frozen=True)
class ReceivedAttention:
    """Attention received by the tokens of packed documents in one layer.

    Args:
        share: Share of the attention of the document's first tokens, averaged over these and over
            heads, [N]; sums to 1 per document.
        num_queries: Number of first tokens of each document that attend.
    """

    share: Tensor
    num_queries: int


@contextmanager
def record_attention(model: nn.Module) -> Iterator[list[ReceivedAttention]]:
    """Records in every forward pass of the block what documents' states attend to, per layer.

    A document's states are the first tokens that an attention is asked for alone: the [CLS] tokens
    of MATCH and BertXML in their last layer, the relay of Star-Transformer in every cycle. Models
    without such a layer add nothing. The weights are computed a second time, since the fused
    kernels keep none.
    """
    found: list[ReceivedAttention] = []

    @torch.no_grad()
    def observe(module: nn.Module, arguments: tuple[Any, ...]) -> None:
        tokens, layout, queries = (*arguments, None)[:3]
        if queries is not None:
            assert isinstance(module, RaggedAttention)
            num_queries = len(queries) // len(layout.order)
            found.append(
                ReceivedAttention(module.received(tokens, layout, num_queries), num_queries)
            )

    hooks = [
        module.register_forward_pre_hook(observe)
        for module in model.modules()
        if isinstance(module, RaggedAttention)
    ]
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()
