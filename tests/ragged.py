"""Lists of different lengths as packed tensors."""

import torch
from torch import Tensor

from match_graph.graph.csr import make_ptr


def pack(lists: list[list[int]]) -> tuple[Tensor, Tensor]:
    """Offsets [B + 1] and values, both int64."""
    lengths = torch.tensor([len(values) for values in lists], dtype=torch.int64)
    packed = [value for values in lists for value in values]
    return make_ptr(lengths), torch.tensor(packed, dtype=torch.int64)
