"""One-vs-rest linear classifiers over TF-IDF and documents' features."""

import warnings
from collections.abc import Iterable
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

#: Passes over the documents before another solver takes over.
_MAX_PASSES = 1000


class TfidfLinear(Baseline):
    """One linear classifier per label over TF-IDF of words and metadata, and documents' features.

    Source: one-vs-rest as in DiSMEC (Babbar and Schoelkopf 2017, https://arxiv.org/abs/1609.02521),
    which also drops small weights; the solver is LIBLINEAR's, by scikit-learn: coordinate descent
    in the dual, 30 times as fast on 3,000 texts as Newton's method in the primal, which takes over
    where it does not converge. It shuffles documents by a generator that all threads share, so that
    labels are fitted one after another.

    A squared hinge gives margins and no probabilities: ``slope`` and ``offset`` turn them into
    log-odds. They are two numbers for all labels, near those that fit the validation documents of
    three corpora best, and leave the ranking as it is.

    Args:
        space: The token space.
        num_labels: Number of labels L.
        config: Settings of the baseline.
        seed: Random seed, not used.
        width: Number of features of a document F; 0 without.
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
        self.weight: Rows = None
        self.bias = np.zeros(num_labels, dtype=np.float32)

    def fit(self, batches: Iterable[EgoBatch], advance: Advance = lambda _done: None) -> None:
        """Fits a classifier for each label that some training documents carry and some do not."""
        batches = list(batches)
        rows = self.features.fit(batches)
        rows = rows.astype(np.float64)  # what LIBLINEAR computes in: otherwise each label copies
        gold = stack_labels(batches, self.num_labels).tocsc()
        weights, biases = [], np.empty(self.num_labels, dtype=np.float32)
        for label in range(self.num_labels):
            weight, biases[label] = self._fit_label(rows, gold, label)
            weights.append(weight)
            advance(label + 1)
        self.weight = sparse.vstack(weights, format="csr").T.tocsr()  # [num_features, L]
        self.bias = biases

    def _fit_label(self, rows: Rows, gold: Rows, label: int) -> tuple[Rows, float]:
        """Weights [1, num_features] and bias of one label."""
        is_gold = np.zeros(rows.shape[0], dtype=bool)
        is_gold[gold.indices[gold.indptr[label] : gold.indptr[label + 1]]] = True
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
        rows = self.features.transform([batch])
        value = (rows @ self.weight).toarray() + self.bias  # [B, L]
        slope, offset = self._scale
        return torch.from_numpy((slope * value + offset).astype(np.float32))

    def contributions(self, batch: EgoBatch, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Contribution of each distinct token of a document to some labels' logits.

        With the offset and what features add, `predict` is their sum.

        Args:
            batch: Batch of one document.
            labels: Labels to attribute, [K], int64.

        Returns:
            Tokens, ascending, [M], int64; what each adds, [M, K], float32.
        """
        row = self.features.transform([batch])
        token = np.sort(row.indices[row.indices < self.space.num_tokens])
        weight = self.weight[token][:, labels.numpy()].toarray()
        added = self._scale[0] * weight * row[0, token].toarray().reshape(-1, 1)
        return torch.from_numpy(token).long(), torch.from_numpy(added.astype(np.float32))

    def save(self, folder: Path) -> None:
        tensors = {
            "idf": self.features.idf,
            "bias": torch.from_numpy(self.bias),
            "weight_ptr": torch.from_numpy(self.weight.indptr),
            "weight_index": torch.from_numpy(self.weight.indices),
            "weight_value": torch.from_numpy(self.weight.data),
        }
        write_table(folder, tensors)

    def load(self, folder: Path) -> None:
        size = self.features.num_features
        shapes: dict[str, list[int | None]] = {
            "idf": [self.space.num_tokens],
            "bias": [self.num_labels],
            "weight_ptr": [size + 1],
            "weight_index": [None],
            "weight_value": [None],
        }
        kinds = {"weight_ptr": torch.int32, "weight_index": torch.int32}
        tensors = read_table(folder, shapes, kinds)
        value, index, ptr = (tensors[f"weight_{name}"] for name in ("value", "index", "ptr"))
        # SciPy reads where these point, without a look
        counts = [0, len(index), len(value)]
        is_whole = [int(ptr[0]), int(ptr[-1]), int(ptr[-1])] == counts
        check_table(folder, is_whole, "its offsets are not of its values")
        check_table(folder, bool((ptr.diff() >= 0).all()), "its offsets do not ascend")
        is_label = (index >= 0) & (index < self.num_labels)
        check_table(folder, bool(is_label.all()), f"a label is not in 0..{self.num_labels - 1}")
        check_table(folder, bool((tensors["idf"] >= 0).all()), "an idf is negative")
        self.features.idf, self.bias = tensors["idf"], tensors["bias"].numpy()
        parts = value.numpy(), index.numpy(), ptr.numpy()
        self.weight = sparse.csr_matrix(parts, shape=(size, self.num_labels))
