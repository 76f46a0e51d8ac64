"""P@k and NDCG@k of every document of a run, for paired comparisons."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import pandas as pd
import torch
from torch import Tensor

from match_graph.graph import EgoBatch
from match_graph.io.files import write_beside
from match_graph.io.run_folder import PER_DOCUMENT
from match_graph.metrics import find_hits, ndcg_at_k, precision_at_k
from match_graph.training.evaluate import WatchedBatches
from match_graph.typing import Split

#: The cuts.
_KS = (1, 3, 5)
#: The columns besides ``document`` and ``split``.
SCORE_NAMES = tuple(f"{name}@{k}" for name in ("P", "NDCG") for k in _KS)


class DocumentScores:
    """Ranking measures of each document of a split; 0 without gold labels.

    Args:
        documents: Document indices of the split, ascending, [D], int64.
    """

    def __init__(self, documents: Tensor) -> None:
        self.documents = documents
        self.table = torch.zeros(len(documents), len(SCORE_NAMES))
        self._watched: WatchedBatches | None = None

    def watch(self, batches: Iterable[EgoBatch]) -> WatchedBatches:
        """Yields the batches, exposing the current one's documents to `update`."""
        self._watched = WatchedBatches(batches)
        return self._watched

    def update(self, ranked: Tensor, label_ptr: Tensor, label_index: Tensor) -> None:
        """Adds the current batch; arguments as for `find_hits`, K at least 5 or L."""
        assert self._watched is not None
        hits, num_gold = find_hits(ranked, label_ptr, label_index), label_ptr.diff()
        columns = [precision_at_k(hits, k) for k in _KS]
        columns += [ndcg_at_k(hits, num_gold, k) for k in _KS]
        row = torch.searchsorted(self.documents, self._watched.document)
        self.table[row] = torch.stack(columns, dim=1).float()  # [B, 6]

    def reduce(self, total: Callable[[Tensor], Tensor]) -> None:
        """Joins the shares of all processes; ``total`` sums a tensor over them."""
        self.table = total(self.table)


def write_scores(folder: Path, scores: Mapping[Split, DocumentScores]) -> None:
    """Writes a row per document: ``document`` (node index), ``split``, and `SCORE_NAMES`.

    Args:
        folder: Run folder.
        scores: Scores of the documents, by split.
    """
    tables = []
    for split, of_split in scores.items():
        table = pd.DataFrame(of_split.table.numpy(), columns=list(SCORE_NAMES))
        table.insert(0, "document", of_split.documents.numpy().astype("int32"))
        table.insert(1, "split", split)
        tables.append(table)
    whole = pd.concat(tables, ignore_index=True)
    write_beside(folder / PER_DOCUMENT, lambda beside: whole.to_parquet(beside, index=False))
