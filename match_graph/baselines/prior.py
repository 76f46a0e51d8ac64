"""The label prior: training frequencies as every document's logits."""

from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor

from match_graph.baselines.base import Advance, Baseline
from match_graph.baselines.tensors import read_table, write_table
from match_graph.graph import EgoBatch
from match_graph.nn.heads.base import prior_log_odds


class LabelPrior(Baseline):
    """The share of training documents that carry each label, whatever the document.

    What a model must beat to have learned anything from documents.
    """

    needs: ClassVar[frozenset[str]] = frozenset()
    logit: Tensor

    def fit(self, batches: Iterable[EgoBatch], advance: Advance = lambda _done: None) -> None:
        """Counts labels."""
        count = torch.zeros(self.num_labels, dtype=torch.int64)
        num_documents = 0
        for batch in batches:
            count += torch.bincount(batch.gold[1].cpu(), minlength=self.num_labels)
            num_documents += batch.num_documents
        self.logit = prior_log_odds(count, num_documents).float()
        advance(self.num_labels)

    def predict(self, batch: EgoBatch) -> Tensor:
        return self.logit.expand(batch.num_documents, -1).contiguous()

    def save(self, folder: Path) -> None:
        write_table(folder, {"logit": self.logit})

    def load(self, folder: Path) -> None:
        self.logit = read_table(folder, {"logit": [self.num_labels]})["logit"]
