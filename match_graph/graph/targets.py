"""The gold labels of all splits, beside the graph: no encoder ever sees them."""

from dataclasses import dataclass

import torch
from torch import Tensor

from match_graph.graph.csr import row_index, select_rows, sorted_row_ptr


@dataclass(frozen=True)
class Targets:
    """Gold labels per document, packed.

    Args:
        ptr: Offsets per document, [D + 1], int64.
        index: Labels of each document, ascending, [sum of labels], int32.
        num_labels: Number of labels L.
    """

    ptr: Tensor
    index: Tensor
    num_labels: int

    def select(self, documents: Tensor) -> tuple[Tensor, Tensor]:
        """Offsets [B + 1] and labels, both int64, of some documents [B]."""
        ptr, index = select_rows(self.ptr, self.index, documents)
        return ptr, index.to(torch.int64)

    def count(self, documents: Tensor) -> Tensor:
        """Number of these documents that carry each label, [L], int64."""
        return torch.bincount(self.select(documents)[1], minlength=self.num_labels)

    def merge(self, group: Tensor, num_groups: int) -> "Targets":
        """The groups of each document's labels.

        Args:
            group: Group of each label, [L], int64.
            num_groups: Number of groups.
        """
        key = torch.unique(row_index(self.ptr) * num_groups + group[self.index.long()])
        ptr = sorted_row_ptr(key // num_groups, self.ptr.numel() - 1)
        return Targets(ptr, (key % num_groups).to(self.index.dtype), num_groups)

    def to_dict(self) -> dict[str, Tensor | int]:
        """Tensors that `Targets(**...)` takes."""
        return {"ptr": self.ptr, "index": self.index, "num_labels": self.num_labels}
