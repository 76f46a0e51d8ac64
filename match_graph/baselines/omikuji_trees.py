"""Partitioned label trees by Omikuji (Parabel, Bonsai)."""

import os
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from match_graph.baselines.base import Advance, Baseline
from match_graph.baselines.tensors import read_table, write_table
from match_graph.baselines.tfidf import Rows, TfidfConfig, TfidfFeatures, stack_labels
from match_graph.errors import CheckpointError, ConfigError, import_extra
from match_graph.graph import EgoBatch, TokenSpace

TREES = "trees"
#: Probability of the labels that the beam does not reach.
_FLOOR = 1e-7


class OmikujiTrees(Baseline):
    """Parabel's balanced label trees over TF-IDF of words and metadata, and documents' features.

    Source: Prabhu et al. 2018, https://doi.org/10.1145/3178876.3185998, by
    https://github.com/tomtung/omikuji. A document's probability of a label is the mean over trees
    of the product along its path; labels off the beam get 1e-7.

    omikuji seeds its clustering itself: two fits differ a little, whatever the seed.

    Raises:
        ConfigError: The package omikuji is not installed.
    """

    class Config(TfidfConfig):
        """Settings; the defaults are omikuji's, which are Parabel's."""

        num_trees: int = Field(
            3, ge=1, le=1000, description="label trees whose scores are averaged"
        )
        min_branch_size: int = Field(
            100, ge=2, le=10**9, description="number of labels below which a node is a leaf"
        )
        cost: float = Field(1.0, gt=0, le=10**9, description="C of the nodes' linear classifiers")
        prune: float = Field(
            0.1, ge=0, le=10**9, description="threshold: weights closer to 0 are dropped"
        )
        beam_size: int = Field(
            10, ge=1, le=10**6, description="nodes followed on each level in prediction"
        )
        num_threads: int = Field(0, ge=0, le=4096, description="threads; 0: as many as torch uses")

    paper: ClassVar[str] = "Prabhu et al., WWW 2018, https://doi.org/10.1145/3178876.3185998"
    config: Config

    def __init__(
        self, space: TokenSpace, num_labels: int, config: Config, seed: int = 0, width: int = 0
    ) -> None:
        super().__init__(space, num_labels, config, seed, width)
        self._omikuji = import_extra("omikuji", "The baseline 'omikuji'", "peers")
        self.features = TfidfFeatures(space, config, width)
        self.trees: Any = None

    @property
    def metadata_weight(self) -> float | None:
        return self.features.metadata_weight

    def fit(self, batches: Iterable[EgoBatch], advance: Advance = lambda _done: None) -> None:
        """Fits the trees; omikuji reads a text file, which is written for it and removed.

        Documents without features are left out: omikuji takes none.

        Raises:
            ConfigError: No document has features.
        """
        batches = list(batches)
        gold = stack_labels(batches, self.num_labels)
        rows = self.features.fit(batches, gold, self.seed)
        read = rows.indptr[1:] > rows.indptr[:-1]
        if not read.any():
            raise ConfigError(
                f"Label trees must be fitted to documents with words or metadata that are kept, "
                f"but none of {len(read):,} training documents has one; lower data.min_count and "
                f"data.min_word_count."
            )
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "documents.txt"
            write_documents(path, rows[read], gold[read])
            number = self.config.num_threads or torch.get_num_threads()
            with _hush():
                self.trees = self._omikuji.Model.train_on_data(
                    str(path), self._hyper_parameters(), number
                )
        advance(self.num_labels)

    def _hyper_parameters(self) -> Any:
        chosen = self._omikuji.Model.default_hyper_param()
        chosen.n_trees = self.config.num_trees
        chosen.min_branch_size = self.config.min_branch_size
        chosen.linear_c = self.config.cost
        chosen.linear_weight_threshold = self.config.prune
        return chosen

    def predict(self, batch: EgoBatch) -> Tensor:
        rows = self.features.transform([batch])
        probability = np.full((batch.num_documents, self.num_labels), _FLOOR, dtype=np.float32)
        for document in range(batch.num_documents):  # omikuji takes one at a time
            place = slice(rows.indptr[document], rows.indptr[document + 1])
            pairs = zip(rows.indices[place].tolist(), rows.data[place].tolist(), strict=True)
            found = self.trees.predict(list(pairs), self.config.beam_size, self.num_labels)
            for label, value in found:
                if not (0 <= label < self.num_labels and 0 <= value <= 1):
                    raise CheckpointError(
                        f"Fitted trees must give probabilities of {self.num_labels} labels, but "
                        f"they give {value} for label {label}; fit the baseline again."
                    )
                probability[document, label] = value
        return torch.logit(torch.from_numpy(probability), eps=_FLOOR)

    def save(self, folder: Path) -> None:
        with _hush():
            self.trees.save(str(folder / TREES))
        write_table(folder, self.features.tensors)

    def load(self, folder: Path) -> None:
        size = self.features.num_features
        self.features.take(folder, read_table(folder, self.features.shapes))
        path = folder / TREES
        try:
            with _hush():
                self.trees = self._omikuji.Model.load(str(path))
        except RuntimeError as error:
            raise CheckpointError(
                f"Fitted trees must be a folder that omikuji wrote, but '{path}' cannot be read; "
                f"fit the baseline again."
            ) from error
        expected = {"trees": self.config.num_trees, "features": size}
        found = {"trees": self.trees.n_trees, "features": self.trees.n_features}
        if found != expected:
            raise CheckpointError(
                f"Fitted trees must be those of this run, with {expected}, but '{path}' holds "
                f"{found}; fit the baseline again."
            )


def write_documents(path: Path, rows: Rows, gold: Rows) -> None:
    """Writes the data file of the extreme classification repository: a header, then documents.

    Args:
        path: File to write.
        rows: Features, [D, num_features].
        gold: Labels, [D, L].
    """
    from sklearn.datasets import dump_svmlight_file

    with path.open("wb") as file:
        file.write(f"{rows.shape[0]} {rows.shape[1]} {gold.shape[1]}\n".encode())
        dump_svmlight_file(rows, gold, file, zero_based=True, multilabel=True)


@contextmanager
def _hush() -> Iterator[None]:
    """Discards what omikuji prints, which goes to the file descriptors 1 and 2 directly.

    Predictions go to standard output, so no log line may go there.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    kept = [(number, os.dup(number)) for number in (1, 2)]
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        for number, _ in kept:
            os.dup2(nowhere, number)
        yield
    finally:
        os.close(nowhere)
        for number, copy in kept:
            os.dup2(copy, number)
            os.close(copy)
