"""Prediction and evaluation of blocks of documents, each by any process."""

import shutil
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Protocol

import torch

from match_graph import __version__
from match_graph.errors import CheckpointError, CorpusError, format_command
from match_graph.graph import EgoBatch
from match_graph.io.beside import beside, finish
from match_graph.io.line_blocks import Block
from match_graph.predict.classifier import Classifier, load
from match_graph.predict.files import read_documents
from match_graph.predict.label_sums import LabelSums, RunLabels
from match_graph.predict.streams import encode_result
from match_graph.runs.folder import compute_checksum
from match_graph.runs.readers import check_has_data, read_record, read_shared_threshold
from match_graph.runs.vocabulary import ReadDocument, read_hierarchy

#: A process computes one block at a time, also where a cluster gives it several threads.
_ONE = threading.Lock()


@dataclass(frozen=True)
class RunHandle:
    """Run that each process loads by itself, once.

    Args:
        folder: Run folder, on a disk that all processes share.
        checksum: Checksum of the run, see `compute_checksum`.
        device: Device, as for `load`.
        encoder: Encoder, as for `load`.
        head: Head, as for `load`.
    """

    folder: str
    checksum: str
    device: str = "auto"
    encoder: str | None = None
    head: str | None = None

    @classmethod
    def find(cls, folder: Path, *args: Any) -> "RunHandle":
        """Handle of a run folder as it is now; further arguments are those of the class."""
        return cls(str(folder.absolute()), compute_checksum(folder), *args)

    def load(self) -> Classifier:
        """Classifier of the run, cached in this process.

        Raises:
            CheckpointError: The run has changed, or is another one here.
        """
        return _load(self)


@lru_cache(maxsize=1)
def _load(run: RunHandle) -> Classifier:
    folder = Path(run.folder)
    if compute_checksum(folder) != run.checksum:
        raise CheckpointError(
            f"All processes must use the same run, but '{folder}' has changed since the first one "
            f"looked, or is another one on this machine; start again when nothing writes there."
        )
    return load(folder, run.device, run.encoder, run.head)


class Work(Protocol):
    """Work on blocks of documents, whose parts are joined to a result per file."""

    name: ClassVar[str]

    @property
    def run(self) -> RunHandle:
        """Run that predicts or is evaluated."""

    def settings(self) -> dict[str, Any]:
        """Settings on which results depend, besides the run and the documents."""

    def name_result(self, name: str) -> str:
        """Name of a file's result in the folder."""

    def check(self) -> None:
        """Checks that the run can do the work, before any block is read."""

    def make(self, block: Block, part: Path) -> None:
        """Writes the part of a block."""

    def join(self, parts: Sequence[Path], result: Path) -> None:
        """Writes the result of a file from the parts of its blocks, in order."""


@dataclass(frozen=True)
class Task:
    """Work on one block of an input file.

    Args:
        work: Work to be done.
        number: Number of the input.
        block: Block of its documents.
        part: Path of the part to write.
    """

    work: Work
    number: int
    block: Block
    part: Path


def make_part(task: Task) -> str | None:
    """Writes the part of a block beside its place and renames it.

    Returns:
        Message of a fault, if a document is wrong (file:line) or the file has changed: there is no
        part then.

    Raises:
        CheckpointError: The run has changed.
    """
    try:
        with _ONE, beside(task.part) as place:
            task.work.make(task.block, place)
            finish(place)
            place.replace(task.part)
    except CorpusError as error:
        return str(error)
    return None


@dataclass(frozen=True)
class Predicting:
    """Prediction of labels.

    Args:
        run: Run that predicts.
        top_k: Largest number of labels, as for `Classifier.predict`.
        threshold: Whether to use thresholds, as for `Classifier.predict`.
        batch_size: Documents per batch.
    """

    name: ClassVar[str] = "predict"
    run: RunHandle
    top_k: int | None = None
    threshold: bool = False
    batch_size: int = 256

    def settings(self) -> dict[str, Any]:
        """Arguments of `Classifier.predict`, and the version."""
        found = {name: value for name, value in asdict(self).items() if name != "run"}
        return {"work": self.name, **found, "version": __version__}

    def name_result(self, name: str) -> str:
        """JSON lines."""
        return f"{name}.jsonl"

    def check(self) -> None:
        """Checks the arguments."""
        self._predict(self.run.load(), iter(()))

    def make(self, block: Block, part: Path) -> None:
        """Writes a line per document."""
        classifier = self.run.load()
        with _naming_lines(classifier, block), part.open("wb") as file:
            for result in self._predict(classifier, read_documents(block)):
                file.write(encode_result(result))

    def _predict(self, classifier: Classifier, documents: Any) -> Iterator[dict[str, Any]]:
        settings = self.top_k, self.threshold, self.batch_size
        return classifier.predict_named(documents, *settings, warn=lambda _: None)  # by block

    def join(self, parts: Sequence[Path], result: Path) -> None:
        """Appends the parts to each other."""
        with result.open("wb") as file:
            for part in parts:
                with part.open("rb") as source:
                    shutil.copyfileobj(source, file, 1 << 20)


@dataclass(frozen=True)
class Evaluating:
    """Measures of documents with gold labels.

    Args:
        run: Run to evaluate; its thresholds were chosen by `Run.evaluate`.
        batch_size: Documents per batch.
    """

    name: ClassVar[str] = "evaluate"
    run: RunHandle
    batch_size: int = 256

    def settings(self) -> dict[str, Any]:
        """Batch size and version."""
        return {"work": self.name, "batch_size": self.batch_size, "version": __version__}

    def name_result(self, name: str) -> str:
        """Sums of a file."""
        return f"sums/{name}.safetensors"

    def check(self) -> None:
        """Checks that there are thresholds."""
        self.labels()

    def labels(self) -> RunLabels:
        """Labels of the run, cached in this process."""
        return _load_labels(self.run)

    def make(self, block: Block, part: Path) -> None:
        """Writes the sums of a block."""
        classifier, labels = self.run.load(), self.labels()

        def measure(batch: EgoBatch, documents: Sequence[ReadDocument]) -> LabelSums:
            sums = LabelSums(labels)
            sums.update(classifier.compute(batch), [one.gold for one in documents])
            return sums

        total = LabelSums(labels)
        with _naming_lines(classifier, block, with_gold=True):
            read = (
                classifier.read_row(content, place, with_gold=True)
                for place, content in read_documents(block)
            )
            for _, found in classifier.stream(read, measure, self.batch_size):
                for _, sums in found:  # in order, so that the sum is the same again
                    total.add(sums.state(), sums.unknown)
        total.write(part)

    def join(self, parts: Sequence[Path], result: Path) -> None:
        """Adds up the sums."""
        total = LabelSums(self.labels())
        for part in parts:
            total.add_file(part)
        total.write(result)


@lru_cache(maxsize=1)
def _load_labels(run: RunHandle) -> RunLabels:
    """Labels of a run.

    Raises:
        CheckpointError: It was not evaluated, or a file is broken.
    """
    folder, classifier = Path(run.folder), run.load()
    check_has_data(folder)
    if classifier.thresholds is None:
        raise CheckpointError(
            f"Documents are evaluated at the thresholds that a run chose on its validation split, "
            f"but '{folder}' has none; choose them with "
            f"`{format_command('evaluate', folder)}`."
        )
    names = classifier.vocabulary.labels["id"].tolist()
    count = classifier.vocabulary.labels["train_count"].to_numpy(dtype="int64", copy=True)
    return RunLabels(
        {name: row for row, name in enumerate(names)},
        read_hierarchy(folder, len(names)),
        torch.from_numpy(count),
        read_record(folder)["num_train_documents"],
        classifier.thresholds,
        read_shared_threshold(folder),
        classifier.label_rank,
    )


@contextmanager
def _naming_lines(classifier: Classifier, block: Block, with_gold: bool = False) -> Iterator[None]:
    """Context in which a block's documents are read; a fault names its line in the file.

    The lines before the block are counted only then, as that reads the file up to there.
    """
    try:
        yield
    except CorpusError:
        if block.start:
            for place, content in read_documents(block, 1 + block.count_lines_before()):
                classifier.read_row(content, place, with_gold)
        raise
