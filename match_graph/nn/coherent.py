"""Coherent output: no label scores below one of its descendants."""

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor, nn

from match_graph.graph import Hierarchy
from match_graph.graph.csr import row_index

#: Scores of descendants that exist at once, [descendants, B].
_CHUNK_VALUES = 2**24


class CoherentOutput(nn.Module):
    r"""The score of a label becomes the largest of its own and its descendants'.

    .. math:: \pi_p \leftarrow \max_{c \in \{p\} \cup descendants(p)} \pi_c

    Afterwards no child is above its parent, exactly. As the sigmoid is monotone the maximum is
    taken of logits.

    Source: the max constraint module of C-HMCNN (Giunchiglia & Lukasiewicz, NeurIPS 2020),
    https://arxiv.org/abs/2010.10151. Differs from it by its place: networks are not trained
    through it, so that it stands behind blends, calibration and baselines alike. Trained through
    it, MATCH was worse, better and equal on three sizes of corpus (experiments/hierarchy).

    The closure is stored as pairs of label and descendant, never as [L, L]; labels are processed
    in chunks.

    Args:
        hierarchy: Label hierarchy.
        chunk_values: Number of descendants' scores that exist at once.
    """

    inner: Tensor
    descendant: Tensor

    def __init__(self, hierarchy: Hierarchy, chunk_values: int = _CHUNK_VALUES) -> None:
        super().__init__()
        self.chunk_values = chunk_values
        own = sp.eye_array(hierarchy.num_labels, dtype=bool, format="csr")
        below = (hierarchy.closure.T + own).tocsr()  # row: label, columns: itself and descendants
        inner = np.flatnonzero(np.diff(below.indptr) > 1)  # labels that have descendants
        rows = below[inner]
        self.ptr: list[int] = rows.indptr.tolist()
        self.register_buffer("inner", torch.from_numpy(inner).long(), persistent=False)
        self.register_buffer("descendant", torch.from_numpy(rows.indices).long(), persistent=False)

    def forward(self, logits: Tensor) -> Tensor:
        """Coherent label scores [B, L] of label scores before the sigmoid [B, L]."""
        if not self.inner.numel() or not logits.numel():
            return logits
        scores = logits.t()  # [L, B]
        largest = []
        for start, stop in self._chunks(max(1, self.chunk_values // scores.size(1))):
            first, last = self.ptr[start], self.ptr[stop]
            ptr = torch.tensor(self.ptr[start : stop + 1], device=scores.device) - first
            largest.append(_max_of_rows(scores, self.descendant[first:last], ptr))
        return scores.index_copy(0, self.inner, torch.cat(largest)).t()

    def _chunks(self, most: int) -> list[tuple[int, int]]:
        """Ranges of inner labels with at most so many descendants together, or of one label."""
        ptr = np.asarray(self.ptr)
        chunks, start = [], 0
        while start < len(ptr) - 1:
            stop = int(np.searchsorted(ptr, ptr[start] + most, side="right")) - 1
            stop = max(stop, start + 1)
            chunks.append((start, stop))
            start = stop
        return chunks


def _max_of_rows(scores: Tensor, index: Tensor, ptr: Tensor) -> Tensor:
    """The largest of some rows of scores [L, B] for each list of rows, [lists, B].

    Args:
        scores: Label scores, [L, B].
        index: Rows of ``scores``, packed, [N].
        ptr: Offsets of the lists, none of which is empty, [lists + 1].
    """
    found = scores.index_select(0, index)
    lowest = scores.new_full((ptr.numel() - 1, scores.size(1)), -torch.inf)
    places = row_index(ptr, index.numel()).unsqueeze(1).expand_as(found)
    return lowest.scatter_reduce(0, places, found, "amax")
