"""Predicted neighbours of documents, and the mean of their vectors as features (PINA)."""

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor
from torch.nn.functional import normalize

from match_graph.datasets import CorpusDataset
from match_graph.graph.csr import row_index
from match_graph.typing import CITES, DOCUMENT

#: A scipy matrix in compressed rows.
Rows: TypeAlias = Any

#: Documents that can be neighbours, drawn evenly from those of training.
MAX_CANDIDATES = 100_000
#: Ridge penalty beside documents of unit length; .1 and 10 differ by less than .003 on cacm.
_PENALTY = 1.0
#: Scores that count as positive; those of candidates that no other document leads to are rounding.
_LEAST_SCORE = 1e-5
#: Scores, and rows of the regression, in memory at once.
_BLOCK_SCORES, _BLOCK_ROWS = 2**24, 2**14


class FittedDocuments(NamedTuple):
    """Links and leverages of training documents, for features by leave-one-out."""

    #: Neighbours of the documents, [B, C], ones.
    links: Rows
    #: Leverage of the documents, [B], float32.
    leverage: Tensor
    #: The candidate that each document is itself, [B], int64, -1 for none.
    itself: Tensor
    #: Lengths of the sums that are the labels' vectors, [L], float32.
    length: Tensor

    def rows(self, place: slice | NDArray[np.int64]) -> "FittedDocuments":
        """Those of some documents."""
        links, leverage, itself = (one[place] for one in self[:3])
        return FittedDocuments(links, leverage, itself, self.length)


class NeighborPredictor:
    r"""Predicted neighbours of documents in the graph of training, and the mean of their vectors.

    Neighbours are labels and training documents. A document's own are its gold labels, itself, and
    the documents that it cites or that cite it. A linear model predicts them from its vector x, and
    those with the largest positive scores s give

    .. math:: \frac{\sum_j s_j x_j}{\lVert \sum_j s_j x_j \rVert}

    where the vector of a label is the mean of those of its training documents.

    Source: Chien et al. 2023 (PINA), https://arxiv.org/abs/2305.12349, with Prabhu et al. 2018,
    https://doi.org/10.1145/3178876.3185998, for labels' vectors. It differs from PINA in five ways:

    - A ridge regression stands in the place of XR-Transformer. It is solved at once, without draws.
    - Neighbours of a training document are predicted without what it taught the model itself,
      exactly (leave-one-out), it is not its own neighbour, and its vector is not in those of its
      labels, so that training documents get features as new ones do. There they are predicted by
      the fitted model, which knows each document's labels.
    - Vectors are dense ones of texts, so that every encoder can read them, not bags of words.
    - Labels' texts are no further training documents, and not their vectors.
    - At most 100,000 training documents can be neighbours.

    Args:
        weight: Coefficients and, in the last row, constants, [F + 1, C], float32.
        vectors: Vectors of the candidates of unit length, labels first, [C, F], float32.
        number: Number of neighbours b.
        time: Times of the candidates, [C], int64, labels the earliest there is; None without.
    """

    def __init__(
        self, weight: Tensor, vectors: Tensor, number: int, time: Tensor | None = None
    ) -> None:
        self.weight, self.vectors, self.number, self.time = weight, vectors, number, time

    @classmethod
    def fit(
        cls, x: Tensor, links: Rows, vectors: Tensor, number: int, time: Tensor | None = None
    ) -> tuple["NeighborPredictor", Tensor]:
        r"""Fits the regression by the normal equations in float64.

        .. math:: W = (X^T X + \lambda I)^{-1} X^T A, \quad h_i = x_i^T (X^T X + \lambda I)^{-1} x_i

        Args:
            x: Vectors of training documents of unit length, [n, F], float32.
            links: Neighbours A of the training documents, [n, C], ones.
            vectors: As in the class.
            number: As in the class.
            time: As in the class.

        Returns:
            The predictor, and the leverage h of each training document, [n], float32.
        """
        size = x.size(1) + 1
        gram, moment = _PENALTY * torch.eye(size).double(), torch.zeros(size, links.shape[1])
        starts = range(0, len(x), _BLOCK_ROWS)
        for start in starts:
            rows = _add_constant(x[start : start + _BLOCK_ROWS]).double()
            gram += rows.T @ rows
            near = links[start : start + _BLOCK_ROWS]
            moment += torch.from_numpy((near.T @ rows.numpy()).T).float()
        inverse = torch.linalg.inv(gram)
        leverage = [torch.zeros(0)]
        for start in starts:
            rows = _add_constant(x[start : start + _BLOCK_ROWS]).double()
            leverage.append(((rows @ inverse) * rows).sum(dim=1).float())
        weight = (inverse @ moment.double()).float()
        return cls(weight, vectors, number, time), torch.cat(leverage)

    @property
    def width(self) -> int:
        """Number of features F."""
        return self.vectors.size(1)

    def aggregate(
        self,
        x: Tensor,
        time: Tensor | None = None,
        fitted: FittedDocuments | None = None,
    ) -> Tensor:
        """Mean vectors of predicted neighbours, [B, F], float32, of unit length or 0.

        Args:
            x: Vectors of documents of unit length, [B, F], float32.
            time: Times of the documents, [B], int64, whose neighbours are no later ones; None for
                new documents without one, which are the latest.
            fitted: What training documents taught; None for documents that were not fitted.
        """
        found = [torch.zeros(0, self.width)]
        step = max(1, _BLOCK_SCORES // self.vectors.size(0))
        for start in range(0, len(x), step):
            place = slice(start, start + step)
            scores = _add_constant(x[place]) @ self.weight  # [b, C]
            own = None if fitted is None else fitted.rows(place)
            if own is not None:
                scores = leave_out(scores, own.links, own.leverage)
                scores[torch.arange(len(scores)), own.itself] *= (own.itself < 0).float()
            if self.time is not None and time is not None:
                scores.masked_fill_(self.time > time[place].unsqueeze(1), 0.0)
            value, node = scores.topk(min(self.number, scores.size(1)), dim=1)
            weight = value.where(value > _LEAST_SCORE, 0.0).unsqueeze(1)  # [b, 1, k]
            near = self.vectors[node]  # [b, k, F]
            if own is not None:
                near = _without(near, node, x[place], own)
            found.append(normalize((weight @ near).squeeze(1), dim=1))
        return torch.cat(found)

    def to_tensors(self) -> dict[str, Tensor]:
        """What `from_tensors` reads."""
        time = {} if self.time is None else {"time": self.time}
        number = torch.tensor(self.number)
        return {"weight": self.weight, "vectors": self.vectors, "number": number, **time}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> "NeighborPredictor":
        """Reads what `to_tensors` gave.

        Raises:
            KeyError, ValueError: The tensors are others.
        """
        weight, vectors, number = (tensors[name] for name in ("weight", "vectors", "number"))
        if weight.shape != (vectors.size(1) + 1, len(vectors)) or number.dim():
            raise ValueError("its coefficients are not of its candidates")
        return cls(weight, vectors, int(number), tensors.get("time"))


def leave_out(scores: Tensor, links: Rows, leverage: Tensor) -> Tensor:
    r"""Scores that each document would have had, had it not been among those fitted.

    .. math:: \hat a_i^{(-i)} = \frac{\hat a_i - h_i a_i}{1 - h_i}

    Source: Hastie, Tibshirani and Friedman 2009, The Elements of Statistical Learning, section
    7.10, equations 7.52 and 7.64.

    Args:
        scores: Fitted scores, [B, C], float32; changed in place.
        links: Neighbours a of the documents, [B, C], ones.
        leverage: Leverage h, [B], float32, below 1.
    """
    row = row_index(torch.from_numpy(links.indptr).long())
    scores[row, torch.from_numpy(links.indices).long()] -= leverage[row]
    return scores.div_((1 - leverage).unsqueeze(1))


def _without(near: Tensor, node: Tensor, x: Tensor, own: FittedDocuments) -> Tensor:
    """Vectors [b, k, F] of the nodes [b, k], those of a document's labels without its own."""
    is_gold = torch.zeros(own.links.shape, dtype=torch.bool)
    entry = row_index(torch.from_numpy(own.links.indptr).long())
    is_gold[entry, torch.from_numpy(own.links.indices).long()] = True
    is_gold[:, len(own.length) :] = False  # documents
    row, place = is_gold.gather(1, node).nonzero(as_tuple=True)
    length = own.length[node[row, place]].unsqueeze(1)
    near[row, place] = normalize(near[row, place] * length - x[row], dim=1)  # alone: its score is 0
    return near


def _add_constant(x: Tensor) -> Tensor:
    """Documents with the constant of the regression, small so that the penalty is on it too."""
    return torch.cat([x.float(), x.new_full((len(x), 1), 0.1, dtype=torch.float32)], dim=1)


def link_documents(dataset: CorpusDataset, documents: Tensor) -> tuple[Rows, Tensor]:
    """Neighbours of training documents in the graph, and the documents among the candidates.

    Args:
        dataset: Built data set.
        documents: Training documents, ascending, [n].

    Returns:
        Labels and candidates of each document, [n, C], ones; and candidates, [C - L], ascending.
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
