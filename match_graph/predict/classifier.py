"""A trained run as a classifier of new documents."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar, overload

import pandas as pd
import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from match_graph.baselines import TfidfLinear
from match_graph.config import Config, TrainConfig, parse_settings
from match_graph.errors import CheckpointError
from match_graph.graph import (
    EgoBatch,
    EgoGraphs,
    EgoLoader,
    EgoSampler,
    Hierarchy,
    LengthBucketSampler,
)
from match_graph.io.names import read_path
from match_graph.io.run_folder import SHARES
from match_graph.metrics import Blend, PlattScaling
from match_graph.metrics.ranking import Chosen, choose_labels
from match_graph.nn import MatchModel
from match_graph.openmp import open_threads
from match_graph.predict.documents import OwnColumns, Warn, check_counts, name_documents
from match_graph.predict.hub import HubMixin
from match_graph.predict.share import open_settings
from match_graph.runs.blend import load_linear
from match_graph.runs.features import KnownFeatures, read_features
from match_graph.runs.finish import compose_model
from match_graph.runs.folder import verify_run_folder
from match_graph.runs.known_graph import KnownGraph, read_known_graph
from match_graph.runs.readers import read_blend, read_calibration, read_thresholds
from match_graph.runs.vocabulary import (
    ReadDocument,
    Vocabulary,
    read_document,
    read_hierarchy,
    read_vocabulary,
)
from match_graph.training.device import (
    choose_device,
    choose_precision,
    deterministic,
    make_fabric,
)
from match_graph.training.models import find_model
from match_graph.typing import DOCUMENT

T = TypeVar("T")

#: Labels per document unless the caller says otherwise.
DEFAULT_TOP_K = 5
#: Batches that are read together and sorted by length, so that little is padded.
_BUFFER = 8


class Classifier(HubMixin):
    """Predicts the labels of documents with a trained model; made by `load`.

    Args:
        vocabulary: Vocabulary of token and label names.
        model: Trained model.
        config: Configuration of the run.
        fabric: Lightning Fabric: device and precision.
        thresholds: Decision threshold of each label, a probability, [L]; None where none were
            chosen.
        hierarchy: Label hierarchy, where the output is coherent.
        calibration: Calibration of the logits; None where there is none.
        known: Known graph, by which an encoder of several hops reaches neighbours; None for others.
        features: Features of nodes; None without.
        linear: Linear classifier beside the model, or the model itself if it is one; else None.
        blend: Shares of the model and the linear classifier; None where there is none.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        model: nn.Module,
        config: Config,
        fabric: Fabric,
        thresholds: Tensor | None = None,
        hierarchy: Hierarchy | None = None,
        calibration: PlattScaling | None = None,
        known: KnownGraph | None = None,
        features: KnownFeatures | None = None,
        linear: TfidfLinear | None = None,
        blend: Blend | None = None,
    ) -> None:
        self.vocabulary, self.config, self.fabric = vocabulary, config, fabric
        self.thresholds, self.calibration, self.known = thresholds, calibration, known
        self.features, self.linear, self.blend = features, linear, blend
        self._has_time = any(one is not None and one.has_time for one in (known, features))
        self._width = 0 if features is None else features.width
        self._fields = vocabulary.settings.fields
        self.columns = OwnColumns(
            vocabulary.settings, config.data.drop_fields, reads_x=self._width > 0
        )
        self.label_rank = None if hierarchy is None else hierarchy.rank
        found = find_model(config)
        self._needs_graph, neighborhood = "graph" in found.needs, found.neighborhood
        self._graphs: EgoGraphs | None = None
        if known is not None and neighborhood is not None:
            self._graphs = EgoGraphs(
                known.data,
                neighborhood,
                vocabulary.space,
                seed=config.seed,
                temporal=config.data.temporal,
            )
        self.network = model if isinstance(model, MatchModel) else None
        self.model = compose_model(
            fabric.setup_module(model), fabric.device, linear, blend, calibration, hierarchy
        ).eval()
        labels = vocabulary.labels
        names = labels["name"] if "name" in labels else labels["id"]
        self._labels = [
            {"id": label, "name": name} if name and name != label else {"id": label}
            for label, name in zip(labels["id"], names, strict=True)
        ]

    @overload
    def predict(
        self,
        documents: Sequence[Mapping[str, Any]] | pd.DataFrame,
        top_k: int | None = None,
        threshold: bool = False,
        batch_size: int = 256,
    ) -> list[dict[str, Any]]: ...

    @overload
    def predict(
        self,
        documents: Iterator[Mapping[str, Any]],
        top_k: int | None = None,
        threshold: bool = False,
        batch_size: int = 256,
    ) -> Iterator[dict[str, Any]]: ...

    def predict(
        self,
        documents: Iterable[Mapping[str, Any]] | pd.DataFrame,
        top_k: int | None = None,
        threshold: bool = False,
        batch_size: int = 256,
    ) -> list[dict[str, Any]] | Iterator[dict[str, Any]]:
        """Predicts the labels of documents, in their order.

        Args:
            documents: Documents in the MATCH format, dicts or rows of a DataFrame: ``text``, and
                what there is of the metadata fields; ``paper`` (the id) may be missing, ``label``
                is not read, and a warning names unknown keys. Metadata that training has not seen
                count as unknown. Where the run's graph or its features have times, ``time`` is the
                document's in their unit, the latest if missing. Where the run has features of
                documents, a document's are ``x``, a list or array of numbers, if given; else those
                of its text by the run's language model, or of its id. Where the run was trained on
                a table of the user's own (`Custom`, `from_frames`), rows of it are read, too.
            top_k: Largest number of labels; None for 5, with ``threshold`` for all above it.
            threshold: Whether to give the labels at or above their thresholds instead of the best
                ones.
            batch_size: Documents per batch; sixteen batches are read ahead.

        Returns:
            For each document ``{"paper": id or None, "labels": [{"id", "name", "probability"}]}``,
            most probable first; ``name`` only where it is known and differs from the id. Of a
            sequence or a DataFrame they are a list; of another iterable they come while it is read.

        Raises:
            ConfigError: top_k or batch_size is below 1.
            CheckpointError: There are no thresholds.
            CorpusError: A document has no text, a field of the wrong type, or no features where the
                run needs some; of an iterator after the results of those before.
        """
        found = self.predict_named(name_documents(documents), top_k, threshold, batch_size)
        return list(found) if isinstance(documents, Sequence | pd.DataFrame) else found

    def predict_named(
        self,
        documents: Iterable[tuple[str, Mapping[str, Any]]],
        top_k: int | None = None,
        threshold: bool = False,
        batch_size: int = 256,
        warn: Warn | None = None,
    ) -> Iterator[dict[str, Any]]:
        """Predicts (place, document) pairs as `predict` does an iterator; faults name the place.

        ``warn`` takes the text of a warning; None makes it a UserWarning.
        """
        check_counts(batch_size=batch_size, **({} if top_k is None else {"top_k": top_k}))
        if threshold and self.thresholds is None:
            raise CheckpointError(
                "Predicting by threshold needs a threshold for each label, but the run has none; "
                "choose them on its validation split with `match-graph evaluate RUN`."
            )
        if top_k is None and not threshold:
            top_k = DEFAULT_TOP_K
        limits = self.thresholds if threshold else None

        def choose(batch: EgoBatch) -> Chosen:
            return choose_labels(self.compute(batch), top_k, limits, self.label_rank)

        named = self.columns.warn_of_unread(documents, warn)
        read = (self.read_row(one, place) for place, one in named)
        done = self.stream(read, lambda batch, _: choose(batch), batch_size)
        return (result for buffer in done for result in self._name_labels(*buffer))

    def score(
        self, documents: Sequence[ReadDocument], batch_size: int = 256
    ) -> Iterator[tuple[Any, Any]]:
        """Batches of similar length: (document indices [B], logits [B, L], float32, CPU)."""
        for rows, batch in self.batches(documents, batch_size):
            yield rows, self.compute(batch)

    def batches(
        self, documents: Sequence[ReadDocument], batch_size: int = 256
    ) -> Iterator[tuple[Tensor, EgoBatch]]:
        """Model input in batches of similar length: (document indices [B], batch).

        To the model they are new ones, also where the run was trained on them.
        """
        data = self.vocabulary.build_graph(documents)
        x = None if self.features is None else self.features.find(documents)
        if x is not None:
            data[DOCUMENT].x = x
        settings = self.config.data
        sampler = EgoSampler(data, settings.max_metadata, settings.max_words)
        rows = torch.arange(len(documents))
        graphs = None
        if self.known is not None and self._graphs is not None:
            adopted = self.known.build_graph(documents)
            if x is not None:
                adopted[DOCUMENT].x = x
            graphs = self._graphs.adopt(adopted)
        loader = EgoLoader(
            data,
            sampler,
            self.vocabulary.space,
            rows,
            with_graph=self._needs_graph,
            graphs=graphs,
            texts=[one.text for one in documents],
            batch_sampler=LengthBucketSampler(sampler.lengths(rows), batch_size, False),
            generator=torch.Generator(),  # iterating must not advance the caller's
        )
        for batch in loader:
            yield batch.document, batch.as_new()

    def read(self, content: Any, place: str, with_gold: bool = False) -> ReadDocument:
        """A document as the run reads it; arguments and errors as `read_document`."""
        found = read_document(content, self._fields, place, self._has_time, self._width, with_gold)
        if self.features is not None:
            self.features.check(found, place)
        return found

    def read_row(self, row: Any, place: str, with_gold: bool = False) -> ReadDocument:
        """As `read`, of a document that may have the columns of the run's data set instead."""
        return self.read(self.columns.translate(row, place, with_gold), place, with_gold)

    @torch.no_grad()
    def compute(self, batch: EgoBatch) -> Tensor:
        """Label scores before the sigmoid, [B, L], float32, on the CPU."""
        device = self.fabric.device
        with deterministic(self.config.train, device), self.fabric.autocast():
            logits: Tensor = self.model(batch.to(device))
        return logits.float().cpu()

    def stream(
        self,
        documents: Iterator[ReadDocument],
        work: Callable[[EgoBatch, Sequence[ReadDocument]], T],
        batch_size: int,
    ) -> Iterator[tuple[list[ReadDocument], list[tuple[Tensor, T]]]]:
        """Batches worked on in threads, in order, while the next documents are read.

        A batch is computed by one thread: threads that share its operations would wait for each
        other some hundred times, and reading needs a processor too.

        Args:
            documents: Documents from `read`.
            work: Called in a thread with a batch and its documents.
            batch_size: Documents per batch.

        Returns:
            Documents that were read together, and for each of their batches the places of its
            documents among them, [B], and what ``work`` gave.
        """
        waiting: deque[tuple[list[ReadDocument], list[tuple[Tensor, Future[T]]]]] = deque()
        with open_threads(_BUFFER if self.fabric.device.type == "cpu" else 1) as threads:
            fault: Exception | None = None
            while True:
                buffer: list[ReadDocument] = []
                try:
                    if fault is None:  # extend keeps what comes before a fault
                        buffer.extend(islice(documents, _BUFFER * batch_size))
                except Exception as error:  # raised after the results of those before
                    fault = error
                if buffer:
                    jobs = [
                        (rows, threads.submit(work, batch, [buffer[row] for row in rows.tolist()]))
                        for rows, batch in self.batches(buffer, batch_size)
                    ]
                    waiting.append((buffer, jobs))
                if len(waiting) > 1 or (waiting and not buffer):
                    done, jobs = waiting.popleft()
                    yield done, [(rows, job.result()) for rows, job in jobs]
                elif not buffer:
                    break
            if fault is not None:
                raise fault

    def _name_labels(
        self, documents: Sequence[ReadDocument], chosen: Sequence[tuple[Tensor, Chosen]]
    ) -> Iterator[dict[str, Any]]:
        labels: list[list[dict[str, Any]]] = [[] for _ in documents]
        for rows, found in chosen:
            for row, pairs in zip(rows.tolist(), found, strict=True):
                labels[row] = [
                    {**self._labels[label], "probability": float(f"{probability:.6g}")}
                    for label, probability in pairs
                ]
        for document, named in zip(documents, labels, strict=True):
            yield {"paper": document.id, "labels": named}


def load(
    folder: str | Path,
    device: str | torch.device = "auto",
    encoder: str | None = None,
    head: str | None = None,
    precision: str | None = None,
    verify: bool = False,
) -> Classifier:
    """Loads a trained run as a classifier; its data set is not needed.

    Args:
        folder: Run folder, or one that `share_run` made of it.
        device: Device: "auto" (a GPU if there is one), "cpu" or "cuda".
        encoder: Encoder; must be given if the run's is ``package.module:Class``, and equal it: a
            folder alone cannot make this process import code.
        head: Head; must be given if the run's is ``package.module:Class``, and equal it.
        precision: Floating-point precision, as for ``train.precision``; None takes the run's.
        verify: Whether to compare the SHA-256 of every file of the run, also of large files that
            reading leaves out.

    Raises:
        CheckpointError: The folder is no trained run, or its own code is not named or has changed.
        ConfigError: The run is of another format, or there is no such device or precision.
    """
    folder = read_path(folder, "A run folder")
    if verify:
        verify_run_folder(folder)
    config = open_settings(folder, {"encoder": encoder, "head": head})
    choose_device(device)
    vocabulary = read_vocabulary(folder)
    hierarchy = read_hierarchy(folder, len(vocabulary.labels))
    found = find_model(config.change("train", shard_embeddings=False))  # in one process
    features = read_features(folder, config, vocabulary.space.types)
    model = found.load(folder, vocabulary.space, len(vocabulary.labels), hierarchy, features.nodes)
    alone: dict[str, Any] = {"accelerator": str(device), "devices": 1, "num_nodes": 1}
    alone |= {} if precision is None else {"precision": precision}
    content = config.train.model_dump() | alone
    train = parse_settings(TrainConfig, content, "A classifier must be loaded with valid settings")
    train = train.model_copy(update={"precision": choose_precision(train, "text" in found.needs)})
    fabric = make_fabric(train, alone=True)
    thresholds = read_thresholds(folder, vocabulary.labels["id"].tolist())
    calibration = read_calibration(folder, len(vocabulary.labels))
    linear, blend = model if isinstance(model, TfidfLinear) else None, None
    if config.model.blend:
        blend = read_blend(folder)
        if blend is None:
            raise CheckpointError(
                f"A network that is blended with a linear classifier must have the share of each, "
                f"but '{folder / SHARES}' was not written yet; finish the run with the command "
                f"that started it."
            )
        linear = load_linear(
            folder, config, vocabulary.space, len(vocabulary.labels), features.nodes
        )
    known = None
    if found.neighborhood is not None:
        known = read_known_graph(folder, vocabulary, features.x)
    coherent = hierarchy if config.model.coherent else None
    parts = thresholds, coherent, calibration, known, features, linear, blend
    classifier = Classifier(vocabulary, model, config, fabric, *parts)
    classifier.folder = folder
    return classifier
