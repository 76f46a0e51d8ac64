"""Rows of linear models: TF-IDF of words and metadata, and documents' own features."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from pydantic import Field
from scipy import sparse
from torch import Tensor, nn

from match_graph.baselines.metadata_weight import (
    choose_metadata_weight,
    draw_documents,
    weigh_metadata,
)
from match_graph.baselines.tensors import check_table
from match_graph.config import MetadataWeight, StrictModel
from match_graph.errors import ConfigError, GraphError
from match_graph.graph import EgoBatch, TokenSpace
from match_graph.graph.csr import make_ptr
from match_graph.typing import WORD

#: A scipy matrix in compressed rows.
Rows: TypeAlias = Any


class TfidfConfig(StrictModel):
    """Settings of the features of linear models."""

    sublinear: bool = Field(True, description="1 + ln of a token's count instead of the count")
    tokens: bool = Field(True, description="read words and metadata; false: documents' x alone")
    metadata: bool = Field(True, description="read metadata as tokens beside the words")
    metadata_weight: MetadataWeight = Field(
        "auto",
        description="length of a document's metadata beside 1 of its words; auto: chosen on "
        "training documents; none: what TF-IDF makes of each token",
    )
    feature_weight: float = Field(
        0.5, gt=0, le=10**6, description="length of documents' features, data.features, beside 1"
    )


class TfidfFeatures:
    r"""TF-IDF over a token space, with the documents' own features beside it.

    .. math:: x_{dt} \propto tf_{dt} \cdot \left(1 + \ln \frac{1 + D}{1 + df_t}\right)

    with rows of unit length, tf being the count of a token in a document or 1 + ln of it. A
    metadata instance is one more token of the document. [PAD] and [UNK]s are no features. Where
    ``metadata_weight`` says so, metadata are weighed beside words as by `weigh_metadata`. Behind
    the tokens stand the features of the document, scaled to the length ``feature_weight``. With
    MiniLM's vectors 0.5 is best on the validation documents of bio.tools and costs least on those
    of debtags, where they do not help; on cacm 0.75 is a little better.

    Source: Salton and Buckley 1988, https://doi.org/10.1016/0306-4573(88)90021-0, in the smoothed
    form of scikit-learn.

    Args:
        space: The token space.
        config: Settings.
        width: Number of features of a document F; 0 without.

    Raises:
        ConfigError: Without tokens and without features nothing is left.
    """

    def __init__(self, space: TokenSpace, config: TfidfConfig, width: int = 0) -> None:
        from sklearn.feature_extraction.text import TfidfTransformer

        if not config.tokens and not width:
            raise ConfigError(
                "A linear model reads tokens or features, but model.encoder_config.tokens is false "
                "and documents have no features; set data.features.document."
            )
        self.space, self.config, self.width = space, config, width
        #: Weight of metadata; None before it is chosen, and where none is: tokens count alike.
        self.metadata_weight: float | None = (
            None if config.metadata_weight == "auto" else config.metadata_weight
        )
        self.transformer = TfidfTransformer(sublinear_tf=config.sublinear)

    @property
    def num_features(self) -> int:
        """Number of columns: one per token id, those of [PAD] and [UNK]s empty, then F."""
        return self.space.num_tokens + self.width

    @property
    def tensors(self) -> dict[str, Tensor]:
        """Fitted tensors by name, float32: inverse document frequencies, [num_tokens], and the
        weight of metadata, [1], or [0] where it was not chosen."""
        weight = [self.metadata_weight] if self._fits_weight else []
        return {
            "idf": torch.from_numpy(self.transformer.idf_.astype(np.float32)),
            "metadata_weight": torch.tensor(weight, dtype=torch.float32),
        }

    @property
    def shapes(self) -> dict[str, list[int | None]]:
        """Shapes of ``tensors``."""
        return {"idf": [self.space.num_tokens], "metadata_weight": [int(self._fits_weight)]}

    def take(self, folder: Path, tensors: Mapping[str, Tensor]) -> None:
        """Restores the fitted state from tensors that were read.

        Args:
            folder: Folder of the file that they were read from.
            tensors: Tensors of ``shapes``, others beside them.

        Raises:
            CheckpointError: A number is negative, or a weight is 0.
        """
        idf, weight = tensors["idf"], tensors["metadata_weight"]
        check_table(folder, bool((idf >= 0).all()), "an idf is negative")
        check_table(folder, bool((weight > 0).all()), "the weight of metadata is not positive")
        self.transformer.idf_ = idf.numpy()
        if self._fits_weight:
            self.metadata_weight = weight.item()

    @cached_property
    def _is_word(self) -> np.ndarray:
        """Mask of the word tokens, [num_tokens], bool."""
        is_word = np.zeros(self.space.num_tokens, dtype=bool)
        if WORD in self.space.types:
            is_word[self.space.span(WORD)] = True
        return is_word

    @property
    def _fits_weight(self) -> bool:
        """True if `fit` tunes the weight of metadata features on held-out training documents."""
        config, has_metadata = self.config, len(self.space.types) > 1
        return config.metadata_weight == "auto" and config.metadata and has_metadata

    def fit(self, batches: Sequence[EgoBatch], gold: Rows, seed: int = 0) -> Rows:
        """Fits the inverse document frequencies and returns the documents' rows, as `transform`.

        Args:
            batches: Batches of training documents.
            gold: Their gold labels, see `stack_labels`; the weight of metadata is chosen by them.
            seed: Random seed of the documents by which the weight is chosen.
        """
        counts = self._count(batches)
        rows = self.transformer.fit(counts).transform(counts)
        if self._fits_weight:
            drawn = draw_documents(rows.shape[0], seed)
            self.metadata_weight = choose_metadata_weight(rows[drawn], self._is_word, gold[drawn])
        return self._finish_rows(rows, batches)

    def transform(self, batches: Sequence[EgoBatch]) -> Rows:
        """Rows of documents, [D, num_features], float32.

        Raises:
            GraphError: The documents have no features, or others than were fitted.
        """
        return self._finish_rows(self.transformer.transform(self._count(batches)), batches)

    def _finish_rows(self, rows: Rows, batches: Sequence[EgoBatch]) -> Rows:
        """Weighs metadata in TF-IDF rows, [D, num_tokens], and appends documents' features."""
        if self.metadata_weight is not None:
            rows = weigh_metadata(rows, self._is_word, self.metadata_weight)
        rows = rows.astype(np.float32)
        if not self.width:
            return rows
        x = torch.cat([self._take_features(batch) for batch in batches])  # [D, F]
        x = self.config.feature_weight * nn.functional.normalize(x, dim=1)
        return sparse.hstack([rows, sparse.csr_matrix(x.numpy())], format="csr")

    def _take_features(self, batch: EgoBatch) -> Tensor:
        found = 0 if batch.x is None else batch.x.size(1)
        if batch.x is None or found != self.width:
            raise GraphError(
                f"Documents must have the {self.width} features that the model was made for, found "
                f"{found or 'none'}; give x with the batch."
            )
        return batch.x.cpu().float()

    def _count(self, batches: Iterable[EgoBatch]) -> Rows:
        """Token counts of each document, [D, num_tokens]."""
        return sparse.vstack([self._count_batch(batch) for batch in batches], format="csr")

    def _count_batch(self, batch: EgoBatch) -> Rows:
        token_id, ptr = batch.token_id.cpu().numpy(), batch.ptr.cpu().numpy()
        known = token_id > len(self.space.types)  # beyond [PAD] and the [UNK]s
        if not self.config.metadata:
            known &= batch.field.cpu().numpy() == self.space.field_index(WORD)
        values = (known & self.config.tokens).astype(np.float32)
        shape = (batch.num_documents, self.space.num_tokens)
        counts = sparse.csr_matrix((values, token_id, ptr), shape=shape)
        counts.sum_duplicates()
        counts.eliminate_zeros()
        return counts


def stack_labels(batches: Iterable[EgoBatch], num_labels: int) -> Rows:
    """The gold labels of documents, [D, L], ones."""
    lengths, labels = [torch.zeros(0, dtype=torch.int64)], [torch.zeros(0, dtype=torch.int64)]
    for batch in batches:
        label_ptr, label_index = batch.gold
        lengths.append(label_ptr.cpu().diff())
        labels.append(label_index.cpu())
    ptr, index = make_ptr(torch.cat(lengths)).numpy(), torch.cat(labels).numpy()
    ones = np.ones(len(index), dtype=np.float32)
    return sparse.csr_matrix((ones, index, ptr), shape=(len(ptr) - 1, num_labels))
