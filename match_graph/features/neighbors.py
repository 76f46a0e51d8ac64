"""Predicted neighbours of documents, and the mean of their vectors as features (PINA)."""

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import torch
from scipy import sparse
from torch import Tensor
from torch.nn.functional import normalize

from match_graph.datasets import CorpusDataset
from match_graph.typing import CITES, DOCUMENT

#: A SciPy CSR matrix.
Rows: TypeAlias = Any

#: Maximum number of documents that can be neighbours, spaced evenly over the training documents.
MAX_CANDIDATES = 100_000
#: Ridge penalty for documents of unit length; .1 and 10 differ by less than .003 on cacm.
_PENALTY = 1.0
#: Scores above this count as positive; smaller ones can be rounding errors of 0.
_LEAST_SCORE = 1e-5
#: Scores, and rows of the regression, in memory at once.
_BLOCK_SCORES, _BLOCK_ROWS = 2**24, 2**14


class NeighborPredictor:
    r"""Predicted neighbours of documents in the training graph, and the mean of their vectors.

    Neighbours are labels and training documents. The true neighbours of a document are its gold
    labels, itself, and the documents that it cites or that cite it. A linear model predicts them
    from its vector x, and those with the largest positive scores s give

    .. math:: \frac{\sum_j s_j x_j}{\lVert \sum_j s_j x_j \rVert}

    where the vector of a label is the mean of those of its training documents.

    Source: Chien et al. 2023 (PINA), https://arxiv.org/abs/2305.12349, with Prabhu et al. 2018,
    https://doi.org/10.1145/3178876.3185998, for labels' vectors. It differs from PINA in five ways:

    - Ridge regression replaces XR-Transformer; it is solved in closed form, without randomness.
    - Training documents get features much as new ones do: each of five folds, of consecutive
      documents, is predicted from the other four, whose documents also give the labels' vectors,
      and no document is its own neighbour. In PINA they are predicted by the model that was fitted
      on their own labels. Leave-one-out would leak them, as the features of a document lack just
      its own contribution: a linear model finds random labels in such features with an AUC of .64,
      in those by folds with .55.
    - Vectors are dense ones of texts, so that every encoder can read them, not bags of words.
    - Labels' texts are neither further training documents nor the labels' vectors.
    - At most 100,000 training documents can be neighbours.

    Args:
        weight: Coefficients and, in the last row, constants, [F + 1, C], float32.
        labels: Vectors of the labels, the first candidates, of unit length, [L, F], float32.
        documents: Vectors of the documents that are candidates, [C - L, F], float32.
        number: Number of neighbours b.
        time: Times of the candidates, [C], int64, labels have the earliest time; None without.
    """

    def __init__(
        self,
        weight: Tensor,
        labels: Tensor,
        documents: Tensor,
        number: int,
        time: Tensor | None = None,
    ) -> None:
        self.weight, self.labels, self.documents = weight, labels, documents
        self.number, self.time = number, time

    @classmethod
    def fit(
        cls,
        x: Tensor,
        links: Rows,
        documents: Tensor,
        number: int,
        time: Tensor | None = None,
        fold: Tensor | None = None,
    ) -> list["NeighborPredictor"]:
        r"""Fits regressions by the normal equations: one of all, one without each fold.

        .. math:: W = (X^T X + \lambda I)^{-1} X^T A

        Args:
            x: Vectors of training documents of unit length, [n, F], float32.
            links: Neighbours A of the training documents, [n, C], ones.
            documents: As in the class.
            number: As in the class.
            time: As in the class.
            fold: Fold of each training document, [n], int64, from 0 on; None for no folds.

        Returns:
            The predictor fitted on all documents, then one for each fold, fitted on the others.
        """
        size, num_labels = x.size(1) + 1, links.shape[1] - len(documents)
        fold = torch.zeros(len(x), dtype=torch.int64) if fold is None else fold
        num_folds = int(fold.max()) + 1 if len(fold) else 1
        grams = torch.zeros(num_folds, size, size, dtype=torch.float64)
        moments = torch.zeros(num_folds, size, links.shape[1])
        for place in range(num_folds):
            for part in (fold == place).nonzero().view(-1).split(_BLOCK_ROWS):
                rows = _add_constant(x[part]).double()
                grams[place] += rows.T @ rows
                near = links[part.numpy()]
                moments[place] += torch.from_numpy((near.T @ rows.numpy()).T).float()

        def solve(left_out: int | None) -> NeighborPredictor:
            gram, moment = _PENALTY * torch.eye(size).double(), torch.zeros_like(moments[0])
            for place in range(num_folds):  # a sum, not a difference: exact zeros stay 0
                if place != left_out:
                    gram += grams[place]
                    moment += moments[place]
            weight = torch.linalg.solve(gram, moment.double()).float()
            labels = normalize(moment[:-1, :num_labels].T, dim=1)  # sums of their documents
            return cls(weight, labels, documents, number, time)

        return [solve(None), *(solve(place) for place in range(num_folds) if num_folds > 1)]

    @property
    def width(self) -> int:
        """Number of features F."""
        return self.documents.size(1)

    def aggregate(
        self, x: Tensor, time: Tensor | None = None, itself: Tensor | None = None
    ) -> Tensor:
        """Mean vectors of predicted neighbours, [B, F], float32, of unit length or 0.

        Args:
            x: Vectors of documents of unit length, [B, F], float32.
            time: Times of the documents, [B], int64; no neighbour is later. None for new documents
                without one, which count as the latest.
            itself: Candidate index of each document itself, [B], int64, -1 for none; None for new
                documents.
        """
        found = [torch.zeros(0, self.width)]
        step = max(1, _BLOCK_SCORES // self.weight.size(1))
        for start in range(0, len(x), step):
            place = slice(start, start + step)
            scores = _add_constant(x[place]) @ self.weight  # [b, C]
            if itself is not None:
                own = itself[place]
                row = (own >= 0).nonzero().view(-1)
                scores[row, own[row]] = 0.0
            if self.time is not None and time is not None:
                scores.masked_fill_(self.time > time[place].unsqueeze(1), 0.0)
            value, node = scores.topk(min(self.number, scores.size(1)), dim=1)
            weight = value.where(value > _LEAST_SCORE, 0.0).unsqueeze(1)  # [b, 1, k]
            found.append(normalize((weight @ self._look_up(node)).squeeze(1), dim=1))
        return torch.cat(found)

    def _look_up(self, node: Tensor) -> Tensor:
        """Vectors of candidates [B, k], [B, k, F]."""
        near, is_label = self.labels.new_empty(*node.shape, self.width), node < len(self.labels)
        near[is_label] = self.labels[node[is_label]]
        near[~is_label] = self.documents[node[~is_label] - len(self.labels)]
        return near

    def to_tensors(self) -> dict[str, Tensor]:
        """Fitted state as tensors, for `from_tensors`."""
        tensors = {"weight": self.weight, "labels": self.labels, "documents": self.documents}
        time = {} if self.time is None else {"time": self.time}
        return {**tensors, "number": torch.tensor(self.number), **time}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> "NeighborPredictor":
        """Restores what `to_tensors` returned.

        Raises:
            KeyError, ValueError: The tensors are not such.
        """
        names = ("weight", "labels", "documents", "number")
        weight, labels, documents, number = (tensors[name] for name in names)
        shape = (documents.size(1) + 1, len(labels) + len(documents))
        if weight.shape != shape or number.dim() or labels.size(1) != documents.size(1):
            raise ValueError("its coefficients are not of its candidates")
        return cls(weight, labels, documents, int(number), tensors.get("time"))


def _add_constant(x: Tensor) -> Tensor:
    """Documents with the constant of the regression, small so that the penalty is on it too."""
    return torch.cat([x.float(), x.new_full((len(x), 1), 0.1, dtype=torch.float32)], dim=1)


def link_documents(dataset: CorpusDataset, documents: Tensor) -> tuple[Rows, Tensor]:
    """True neighbours of training documents, and the documents that can be neighbours.

    Args:
        dataset: Built data set.
        documents: Training documents, ascending, [n].

    Returns:
        Neighbours of each document, first labels, [n, C], ones; and the candidate documents,
        [C - L], ascending.
    """
    place = np.unique(np.linspace(0, len(documents) - 1, MAX_CANDIDATES).astype(int))
    candidates, graph = documents[torch.from_numpy(place)], dataset.graph
    gold = sparse.csr_matrix(dataset.targets.to_sparse(documents))
    pairs = [torch.stack([documents, documents])]
    if CITES in graph.edge_types:
        cites = graph.edge_index(CITES).long()
        pairs += [cites, cites.flip(0)]
    known = torch.full((2, graph.num_nodes(DOCUMENT)), -1)
    known[0, documents] = torch.arange(len(documents))
    known[1, candidates] = torch.arange(len(candidates))
    source, target = torch.cat(pairs, dim=1)
    edges = torch.stack([known[0, source], known[1, target]])
    row, column = edges[:, (edges >= 0).all(dim=0)].numpy()
    shape = (len(documents), len(candidates))
    near = sparse.csr_matrix((np.ones(len(row)), (row, column)), shape=shape)
    near.sum_duplicates()
    near.data[:] = 1.0  # cited both ways, or several times
    return sparse.hstack([gold, near], format="csr"), candidates
