"""Anonymous memory of sampling and pre-training from files: that of batches, not of edges."""

import gc
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from match_graph.config import PretrainConfig
from match_graph.graph import (
    EgoSampler,
    MappedGraph,
    NeighborhoodConfig,
    NeighborhoodSampler,
    TokenSpace,
)
from match_graph.graph.store_writer import StoreWriter
from match_graph.graph.view import GraphView, view_graph
from match_graph.io.manifest import write_manifest
from match_graph.pretrain import SphericalTrainer
from match_graph.speed.measure import MemoryPeak
from match_graph.typing import CONTAINS, DOCUMENT, LABEL, MASKS, WORD, has_edge

DOCUMENTS, WORDS = 20_000, 5_000


def plant(folder: Path, words_per_document: int) -> MappedGraph:
    """A build of random words and authors, written piece by piece."""
    folder.mkdir()
    random, writer = np.random.default_rng(0), StoreWriter(folder)
    sizes = {DOCUMENT: DOCUMENTS, "author": 500, WORD: WORDS, LABEL: 10}
    for name, number in sizes.items():
        writer.add_nodes(name, number)
    for number, mask in enumerate(MASKS.values()):
        with writer.node_array(DOCUMENT, mask, bool, (DOCUMENTS,)) as array:
            array.append(np.arange(DOCUMENTS) * 3 // DOCUMENTS == number)
    for edge_type, degree in ((has_edge("author"), 2), (CONTAINS, words_per_document)):
        writer.add_edges(edge_type, degree * DOCUMENTS, edge_type == CONTAINS)
        with writer.edge_array(edge_type, "ptr") as array:
            array.append(np.arange(DOCUMENTS + 1) * degree)
        with writer.edge_array(edge_type, "index") as array:
            for _ in range(10):
                part = random.random(DOCUMENTS // 10 * degree) ** 2
                array.append(part * sizes[edge_type[2]])
        writer.reverse(edge_type)
    for name, size in (("ptr", DOCUMENTS + 1), ("index", 0)):
        with writer.target_array(name, size) as array:
            array.append(np.zeros(size))
    (folder / "corpus.json").write_text(json.dumps({"schema": writer.schema()}))
    write_manifest(folder)
    return MappedGraph(folder)


def use(graph: GraphView) -> None:
    """Batches of both samplers, the token space, pairs of all kinds."""
    TokenSpace.from_data(graph)
    sampler = EgoSampler(graph, 8, 20, random=True)
    train = graph.node_tensor(DOCUMENT, MASKS["train"])
    fanouts = NeighborhoodConfig().resolve(graph.edge_types)
    neighborhoods = NeighborhoodSampler(graph, fanouts, train, random=True)
    for documents in torch.randperm(DOCUMENTS)[:640].split(64):
        sampler.sample(documents)
        neighborhoods.sample(documents)
    trainer = SphericalTrainer(graph, PretrainConfig(channels=8))
    trainer.fit(50_000)


@pytest.mark.slow
def test_MappedGraph_memory_does_not_grow_with_edges(tmp_path: Path) -> None:
    """Six million more edges; a copy of one array would take 24 MiB, as in memory."""
    small, large = plant(tmp_path / "small", 100), plant(tmp_path / "large", 400)
    use(small)  # what is loaded once
    few, many, copied = (MemoryPeak(torch.device("cpu")) for _ in range(3))
    gc.collect()
    with few.watch():
        use(MappedGraph(small.folder))
    with many.watch():
        use(large)
    with copied.watch():
        use(view_graph(large.to_hetero()))
    assert copied.mib > many.mib + 48
    assert large.num_edges(CONTAINS) - small.num_edges(CONTAINS) == 6_000_000
    assert many.mib < few.mib + 16, (few.mib, many.mib)
