"""Positive pairs per second of spherical pre-training, against independent negatives."""

import time
from collections.abc import Callable, Iterator

from match_graph.config import PretrainConfig
from match_graph.nn import MatchEncoder
from match_graph.pretrain import SphericalTrainer
from match_graph.speed.measure import (
    Bench,
    MemoryPeak,
    Speed,
    compare,
    count_mib,
    synchronize,
)
from match_graph.typing import DOCUMENT

#: Chunks of one work item; types of pairs alternate between chunks.
_CHUNKS = 20


def measure_pretrain(bench: Bench) -> Iterator[Speed]:
    """Measures the trainer's own loop, with shared and with independent negatives.

    One baseline compares each positive with as many negatives as ours, the other with as many as
    ``--preset paper``. Memory is the peak of making a trainer and training, less its tables.
    """
    shared = bench.config.pretrain.model_copy(update={"shared_negatives": True})
    alone = shared.model_copy(update={"shared_negatives": False})
    number = MatchEncoder.presets["paper"]["pretrain.negatives"]
    few = alone.model_copy(update={"negatives": number})
    with MemoryPeak(bench.device).watch() as memory:
        trainer, ours = _make_work(bench, shared)
        ours()
        synchronize(bench.device)
    tables = count_mib(trainer.tables.values())
    graph = bench.dataset.graph
    documents, edges = graph.num_nodes(DOCUMENT), sum(map(graph.num_edges, graph.edge_types))
    work = {
        "shared": ours,
        "independent negatives": _make_work(bench, alone)[1],
        f"{number} independent negatives": _make_work(bench, few)[1],
    }
    yield from compare(
        bench, "pretrain",
        f"{documents:,} documents, {edges:,} edges, {shared.negatives} negatives, "
        f"chunks of {shared.chunk_size}, {shared.channels} channels", "positives/s", work,
        None if memory.mib is None else max(0.0, memory.mib - tables), baselines=len(work) - 1,
        more=lambda rates: {"comparisons_per_s": rates["shared"] * shared.negatives},
    )  # fmt: skip


def _make_work(
    bench: Bench, config: PretrainConfig
) -> tuple[SphericalTrainer, Callable[[], float]]:
    """Trainer and a work item of its training."""
    rows = bench.space.kept_by_type
    trainer = SphericalTrainer(
        bench.dataset.graph, config, bench.config.seed, rows, device=bench.device
    )

    return trainer, lambda: train_chunks(trainer, _CHUNKS)


def train_chunks(trainer: SphericalTrainer, number: int) -> float:
    """Trains some chunks in every process; returns the number of positives of each."""
    before, processes = trainer.num_seen, trainer.share.number
    aim = before + number * trainer.config.chunk_size * processes
    trainer.fit(2 * aim, stop=aim)
    return (trainer.num_seen - before) / processes


def time_training(trainer: SphericalTrainer, samples: int) -> float:
    """Seconds of training some number of positives."""
    start = time.perf_counter()
    trainer.fit(samples)
    synchronize(trainer.device)
    return time.perf_counter() - start
