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
        share: Of the attention of the document's first tokens, averaged over these and over heads;
            1 per document, [N].
        num_queries: How many first tokens there are.
    """

    share: Tensor
    num_queries: int


@contextmanager
def record_attention(model: nn.Module) -> Iterator[list[ReceivedAttention]]:
    """Within the block, every forward pass adds what documents' states attend to, layer by layer.

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
