"""Linear classifiers of labels over TF-IDF and documents' features, one-vs-rest or in a tree."""

import warnings
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from scipy import sparse
from torch import Tensor

from match_graph.baselines.base import Advance, Baseline
from match_graph.baselines.tensors import check_table, read_table, write_table
from match_graph.baselines.tfidf import Rows, TfidfConfig, TfidfFeatures, stack_labels
from match_graph.graph import EgoBatch, TokenSpace
from match_graph.graph.label_clusters import cluster_labels, count_clusters
from match_graph.nn.label_tree import join_log_odds

#: Passes over the documents before another solver takes over.
_MAX_PASSES = 1000
#: Labels of a cluster at most. Smaller ones cost less and tell labels apart worse: with 3,000
#: documents and 736 labels of bio.tools validation NDCG@5 is .468 flat, and .464, .458, .452 and
#: .444 with 4, 8, 16 and 32 clusters.
_CLUSTER_SIZE = 128


class TfidfLinear(Baseline):
    r"""One linear classifier per label over TF-IDF of words and metadata, and documents' features.

    In a ``tree`` the labels are clustered first, and a classifier tells a label from the others of
    its cluster alone, on the documents that have one of these:

    .. math:: P(l \mid d) = P(cluster(l) \mid d) \; P(l \mid d, cluster(l))

    `count_passes` says what that saves. All labels are scored.

    Source: one-vs-rest as in DiSMEC (Babbar and Schoelkopf 2017, https://arxiv.org/abs/1609.02521),
    which also drops small weights; the solver is LIBLINEAR's, by scikit-learn: coordinate descent
    in the dual, 30 times as fast on 3,000 texts as Newton's method in the primal, which takes over
    where it does not converge. It shuffles documents by a generator that all threads share, so that
    labels are fitted one after another. The clusters are those of Parabel, in one level as in PECOS
    (Yu et al. 2022, https://arxiv.org/abs/2010.05878), which follows the best clusters alone.

    A squared hinge gives margins and no probabilities: ``slope`` and ``offset`` turn them into
    log-odds. They are two numbers for all labels, near those that fit the validation documents of
    three corpora best, and leave the ranking as it is.
    """

    class Config(TfidfConfig):
        """Settings."""

        loss: Literal["squared_hinge", "log"] = Field(
            "squared_hinge", description="loss of the classifiers, LIBLINEAR's"
        )
        cost: float = Field(0.5, gt=0, le=10**9, description="LIBLINEAR's C: larger fits closer")
        prune: float = Field(
            0.01, ge=0, le=10**9, description="threshold: weights closer to 0 are dropped"
        )
        tree: bool = Field(
            False, description="cluster the labels first: faster for many, a little worse"
        )
        slope: float = Field(
            6.0, gt=0, le=10**6, description="log-odds per unit of margin; hinge only"
        )
        offset: float = Field(
            1.0, ge=-(10**6), le=10**6, description="log-odds at margin 0; hinge only"
        )

    paper: ClassVar[str] = "Babbar and Schoelkopf, WSDM 2017, https://arxiv.org/abs/1609.02521"
    config: Config

    def __init__(
        self, space: TokenSpace, num_labels: int, config: Config, seed: int = 0, width: int = 0
    ) -> None:
        super().__init__(space, num_labels, config, seed, width)
        self.features = TfidfFeatures(space, config, width)
        self.cluster = torch.zeros(0, dtype=torch.int64)  # of each label, in a tree
        self.weight: Rows = None
        self.bias = np.zeros(num_labels, dtype=np.float32)  # of the clusters, and of the labels

    @property
    def metadata_weight(self) -> float | None:
        return self.features.metadata_weight

    def fit(self, batches: Iterable[EgoBatch], advance: Advance = lambda _done: None) -> None:
        """Fits a classifier for each label that some training documents carry and some do not."""
        batches = list(batches)
        gold = stack_labels(batches, self.num_labels)
        rows = self.features.fit(batches, gold, self.seed)
        rows = rows.astype(np.float64)  # what LIBLINEAR computes in: otherwise each label copies
        gold = gold.tocsc()
        clusters = self._cluster(rows, gold)
        size = clusters.shape[1] + self.num_labels
        weights: list[Rows] = [None] * size
        biases = np.empty(size, dtype=np.float32)
        done = 0
        for column, part, is_gold in self._list_problems(rows, gold, clusters):
            weights[column], biases[column] = self._fit_one(part, is_gold)
            done += column >= clusters.shape[1]
            advance(done)
        self.weight = sparse.vstack(weights, format="csr").T.tocsr()  # [num_features, C + L]
        self.bias = biases

    def _cluster(self, rows: Rows, gold: Rows) -> Rows:
        """Clusters the labels of a tree; gold clusters of the documents, [D, C], none if flat."""
        if not self.config.tree:
            return sparse.csc_matrix((rows.shape[0], 0))
        from sklearn.preprocessing import normalize

        number = count_clusters(self.num_labels, _CLUSTER_SIZE)
        means: Any = sparse.csr_array(normalize((gold.T @ rows).tocsr()))  # [L, num_features]
        self.cluster = cluster_labels(means, number, self.seed)
        ones, labels = np.ones(self.num_labels), np.arange(self.num_labels)
        shape = self.num_labels, number
        belongs = sparse.csr_matrix((ones, (labels, self.cluster.numpy())), shape=shape)
        return (gold.tocsr() @ belongs).tocsc()

    def _list_problems(
        self, rows: Rows, gold: Rows, clusters: Rows
    ) -> Iterator[tuple[int, Rows, np.ndarray]]:
        """Column of each classifier, rows of its documents, and which of these are gold."""
        size = rows.shape[0]
        if not self.config.tree:
            for label in range(self.num_labels):
                yield label, rows, _mark(size, _column(gold, label))
            return
        for number in range(clusters.shape[1]):
            members = np.sort(_column(clusters, number))
            yield number, rows, _mark(size, members)
            part = rows[members]
            for label in (self.cluster == number).nonzero().flatten().tolist():
                places = np.searchsorted(members, _column(gold, label))
                yield clusters.shape[1] + label, part, _mark(len(members), places)

    def _fit_one(self, rows: Rows, is_gold: np.ndarray) -> tuple[Rows, float]:
        """Weights [1, num_features] and bias of one classifier."""
        count = int(is_gold.sum())
        if count in (0, len(is_gold)):  # nothing to tell apart: the prior's log-odds
            share = (count + 0.5) / (len(is_gold) + 1.0)
            slope, offset = self._scale
            bias = (float(np.log(share / (1 - share))) - offset) / slope
            return sparse.csr_matrix(np.zeros((1, rows.shape[1]), dtype=np.float32)), bias
        model = self._fit_classifier(rows, is_gold)
        weight = model.coef_.astype(np.float32)
        weight[np.abs(weight) < self.config.prune] = 0
        return sparse.csr_matrix(weight), float(model.intercept_[0])

    def _fit_classifier(self, rows: Rows, is_gold: np.ndarray) -> Any:
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.linear_model import LogisticRegression
        from sklearn.svm import LinearSVC

        classes = {
            "log": partial(LogisticRegression, solver="liblinear"),
            "squared_hinge": LinearSVC,
        }
        make = partial(classes[self.config.loss], C=self.config.cost, max_iter=_MAX_PASSES)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model = make(dual=True, random_state=0).fit(rows, is_gold)
            if np.max(model.n_iter_) >= _MAX_PASSES:
                model = make(dual=False).fit(rows, is_gold)
        return model

    @property
    def _scale(self) -> tuple[float, float]:
        """Slope and offset from decision values to log-odds."""
        hinge = self.config.loss == "squared_hinge"
        return (self.config.slope, self.config.offset) if hinge else (1.0, 0.0)

    def predict(self, batch: EgoBatch) -> Tensor:
        logits = self._score(self.features.transform([batch]))
        if not self.config.tree:
            return logits
        cluster, label = self._split(logits)
        return join_log_odds(cluster, label)

    def _score(self, rows: Rows) -> Tensor:
        """Log-odds of clusters and labels, [B, C + L], float32."""
        slope, offset = self._scale
        value = (rows @ self.weight).toarray() + self.bias
        return torch.from_numpy((slope * value + offset).astype(np.float32))

    def _split(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """Columns of each label's cluster and of each label, both [B, L], out of [B, C + L]."""
        return scores[:, self.cluster], scores[:, -self.num_labels :]

    def contributions(self, batch: EgoBatch, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Contribution of each distinct token of a document to some labels' logits.

        With the offset, the slope times the label's bias, and what features add, `predict` is their
        sum. In a tree they are the contributions to cluster and label, each times the derivative of
        the logit by it, so that the sum is of first order.

        Args:
            batch: Batch of one document.
            labels: Labels to attribute, [K], int64.

        Returns:
            Tokens, ascending, [M], int64; what each adds, [M, K], float32.
        """
        row = self.features.transform([batch])
        token = np.sort(row.indices[row.indices < self.space.num_tokens])
        weight, value = self.weight[token], row[0, token].toarray().reshape(-1, 1)

        def add(columns: Tensor) -> Tensor:
            found = self._scale[0] * weight[:, columns.numpy()].toarray() * value
            return torch.from_numpy(found.astype(np.float32))

        added = add(len(self.bias) - self.num_labels + labels)
        if self.config.tree:
            scores = [one[:, labels] for one in self._split(self._score(row))]
            rest = torch.nn.functional.logsigmoid(-join_log_odds(*scores))
            of_cluster, of_label = (
                torch.exp(torch.nn.functional.logsigmoid(-one) - rest) for one in scores
            )
            added = of_cluster * add(self.cluster[labels]) + of_label * added
        return torch.from_numpy(token).long(), added

    def save(self, folder: Path) -> None:
        tensors = {
            **self.features.tensors,
            "bias": torch.from_numpy(self.bias),
            "weight_ptr": torch.from_numpy(self.weight.indptr),
            "weight_index": torch.from_numpy(self.weight.indices),
            "weight_value": torch.from_numpy(self.weight.data),
            "cluster": self.cluster,
        }
        write_table(folder, tensors)

    def load(self, folder: Path) -> None:
        size = self.features.num_features
        shapes: dict[str, list[int | None]] = {
            **self.features.shapes,
            "bias": [None],
            "cluster": [self.num_labels if self.config.tree else 0],
            "weight_ptr": [size + 1],
            "weight_index": [None],
            "weight_value": [None],
        }
        kinds = {"weight_ptr": torch.int32, "weight_index": torch.int32, "cluster": torch.int64}
        tensors = read_table(folder, shapes, kinds)
        value, index, ptr = (tensors[f"weight_{name}"] for name in ("value", "index", "ptr"))
        # SciPy reads where these point, without a look
        counts = [0, len(index), len(value)]
        is_whole = [int(ptr[0]), int(ptr[-1]), int(ptr[-1])] == counts
        check_table(folder, is_whole, "its offsets are not of its values")
        check_table(folder, bool((ptr.diff() >= 0).all()), "its offsets do not ascend")
        cluster, columns = tensors["cluster"], len(tensors["bias"])
        num_clusters = columns - self.num_labels
        is_cluster = (cluster >= 0) & (cluster < num_clusters)
        is_right = bool(is_cluster.all()) if self.config.tree else num_clusters == 0
        check_table(folder, is_right, "its clusters are not of its labels")
        is_column = (index >= 0) & (index < columns)
        check_table(folder, bool(is_column.all()), f"a label is not in 0..{columns - 1}")
        self.features.take(folder, tensors)
        self.bias, self.cluster = tensors["bias"].numpy(), cluster
        parts = value.numpy(), index.numpy(), ptr.numpy()
        self.weight = sparse.csr_matrix(parts, shape=(size, columns))


def _column(matrix: Rows, number: int) -> np.ndarray:
    """Rows with a value in a column of compressed columns."""
    found: np.ndarray = matrix.indices[matrix.indptr[number] : matrix.indptr[number + 1]]
    return found


def _mark(size: int, places: np.ndarray) -> np.ndarray:
    """Mask of some places, [size], bool."""
    mask = np.zeros(size, dtype=bool)
    mask[places] = True
    return mask


def count_passes(num_labels: int, per_document: float) -> float:
    """Passes of a tree's classifiers over all documents; flat ones make ``num_labels``.

    Args:
        num_labels: Number of labels.
        per_document: Mean number of labels of a document, each in a cluster of its own at worst.
    """
    number = count_clusters(num_labels, _CLUSTER_SIZE)
    return number + min(per_document, number) * num_labels / number
