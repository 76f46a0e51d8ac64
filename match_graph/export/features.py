"""Node features ``x``: those of the data, node indices, or pre-trained unit vectors."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from match_graph.config import Config
from match_graph.datasets import CorpusDataset
from match_graph.errors import ExportError
from match_graph.features import open_features
from match_graph.graph.adjacency import Adjacency
from match_graph.graph.view import Graph, view_graph
from match_graph.io.files import read_tensors
from match_graph.io.progress import Reporter
from match_graph.io.run_folder import VECTORS
from match_graph.pretrain import SphericalTrainer
from match_graph.runs.configure import resolve_config
from match_graph.runs.folder import open_run_folder
from match_graph.runs.readers import read_record
from match_graph.training.device import choose_device
from match_graph.typing import CONTAINS, DOCUMENT

_DOCUMENTS = 50_000  # rows of one sparse product of tokens and vectors


def has_features(dataset: CorpusDataset, config: Config) -> bool:
    """True if the data set or its settings have features to export."""
    return bool(config.data.features) or any(
        dataset.graph.node_tensor(name, "x") is not None for name in dataset.graph.node_types
    )


def collect_features(
    dataset: CorpusDataset, config: Config, reporter: Reporter
) -> dict[str, Tensor]:
    """Features of the data: the data set's own ``x``, and those of ``data.features``.

    Returns:
        Per node type that has some, [num_nodes, F], float32, as layers of other libraries expect.

    Raises:
        CorpusError: As `open_features`.
        ConfigError: As `open_features`.
    """
    graph = dataset.graph
    every = {name: graph.node_tensor(name, "x") for name in graph.node_types}
    found = {name: x for name, x in every.items() if x is not None}
    for name, source in config.data.features.items():
        found[name] = open_features(source, dataset, name, dataset.root, reporter).x
    return {name: x.float() for name, x in found.items()}


def number_nodes(data: Graph) -> dict[str, Tensor]:
    """Index of each node within its type, for an embedding table, [num_nodes, 1], int64."""
    graph = view_graph(data)
    return {name: torch.arange(graph.num_nodes(name)).unsqueeze(1) for name in graph.node_types}


def spread_vectors(data: Graph, vectors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Features of all nodes from pre-trained vectors.

    Nodes that are too rare for pre-training have zeros. A document's vector, in any split, is the
    normalised mean of those of its words and metadata. The vector that pre-training learned for a
    document is not used: it has seen the document's labels and exists for training documents only,
    so that a model would rely on information that test documents lack.

    Args:
        data: Built graph.
        vectors: Pre-trained vectors per node type, [num_rows, C]; the rows are a prefix of the
            nodes.

    Returns:
        Per node type, [num_nodes, C], float32.
    """
    graph, channels = view_graph(data), next(iter(vectors.values())).size(1)
    features = {}
    for name in graph.node_types:
        features[name] = torch.zeros(graph.num_nodes(name), channels)
        if name in vectors and name != DOCUMENT:
            features[name][: len(vectors[name])] = vectors[name]
    edge_types = [
        edge_type
        for edge_type in graph.edge_types
        if edge_type[1] == "has" or edge_type == CONTAINS
    ]
    for edge_type in edge_types:
        _add_neighbours(features[DOCUMENT], graph.adjacency(edge_type), features[edge_type[2]])
    torch.nn.functional.normalize(features[DOCUMENT], dim=1, out=features[DOCUMENT])
    return features


def _add_neighbours(out: Tensor, lists: Adjacency, x: Tensor) -> None:
    """Adds the vectors of its neighbours to each document of ``out`` [D, C]."""
    ptr, columns, rows = lists.ptr.numpy(), lists.node.numpy(), x.numpy()
    for start in range(0, len(out), _DOCUMENTS):
        part = ptr[start : start + _DOCUMENTS + 1]
        index = columns[part[0] : part[-1]]
        ones = np.ones(len(index), dtype=np.float32)
        shape = (len(part) - 1, len(rows))
        counts = sp.csr_array((ones, index, part - part[0]), shape=shape)
        out[start : start + len(part) - 1] += torch.from_numpy(counts @ rows)


def train_vectors(
    dataset: CorpusDataset, data: Graph, config: Config, reporter: Reporter
) -> dict[str, Tensor]:
    """Pre-trains vectors for an export.

    Args:
        dataset: Data set of the graph.
        data: Graph whose edges are sampled; without edges of training gold, no label is seen.
        config: Configuration; ``pretrain``, ``data.min_count``, ``data.min_word_count``, ``seed``
            and ``train.accelerator`` count.
        reporter: Progress reporter.
    """
    config = resolve_config(config, dataset)
    trainer = SphericalTrainer(
        data,
        config.pretrain,
        config.seed,
        dataset.token_space(config.data.min_count, config.data.min_word_count).kept_by_type,
        device=choose_device(config.train.accelerator),
    )
    assert config.pretrain.samples is not None
    with reporter.track("pretrain", config.pretrain.samples, "pairs") as advance:
        trainer.fit(config.pretrain.samples, lambda done, loss: advance(done, f"loss {loss:.4f}"))
    return {name: table.cpu() for name, table in trainer.tables.items()}


def read_vectors(folder: Path, dataset: CorpusDataset) -> dict[str, Tensor]:
    """Reads the vectors of a run folder.

    Raises:
        CheckpointError: The folder is no run, or has no vectors.
        ExportError: The run is of another data set.
    """
    open_run_folder(folder)
    if read_record(folder)["data_checksum"] != dataset.checksum:
        raise ExportError(
            f"Features come from vectors of the same data, but the run in '{folder}' was made from "
            f"other data than '{dataset.name}' holds now; choose another run, or leave out --run."
        )
    return read_tensors(folder / VECTORS)
