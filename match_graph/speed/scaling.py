"""Scaling of time and memory with documents and labels: corpora four and sixteen times as large."""

import math
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

from match_graph.datasets import Synthetic
from match_graph.speed.batches import open_bench
from match_graph.speed.measure import Bench, MemoryPeak, Speed, describe, synchronize
from match_graph.speed.step import Trainer

#: Factors of documents and labels; the first is what the others are compared with.
FACTORS = ((1, 1), (4, 1), (16, 1), (1, 4), (1, 16))
#: The smallest corpus is this share of MAG-CS, in documents and labels.
_BASE = 1 / 128
_BATCH_SIZE, _BATCHES = 256, 4


def measure_scaling(bench: Bench) -> Iterator[Speed]:
    """Measures building and training steps of corpora like MAG-CS; ignores the given data set.

    ``seconds`` are those of the whole build, and of a training epoch by the tokens of its steps; on
    CPU of processor time over all threads, so that other work beside does not count. ``slope`` is
    the power of the factor that they grow with since the smallest corpus (1 is proportional, 0 is
    constant), ``memory_slope`` likewise for the peak of memory.
    """
    first: dict[str, Speed] = {}
    for documents, labels in FACTORS:
        factor = max(documents, labels)
        for found in _measure_size(bench, documents, labels):
            base = first.setdefault(found.stage, found)
            more = dict(found.more)
            if factor > 1:
                more["slope"] = _find_slope(more["seconds"], base.more["seconds"], factor)
                if found.peak_mib and base.peak_mib:
                    more["memory_slope"] = _find_slope(found.peak_mib, base.peak_mib, factor)
            yield replace(
                found,
                baseline=f"documents x 1, labels x 1: {base.rate:,.6g} {base.unit}",
                ratio=float(f"{found.rate / base.rate:.4g}"),
                more=more,
            )


def _measure_size(bench: Bench, documents: int, labels: int) -> Iterator[Speed]:
    name = f"documents x {documents}, labels x {labels}"
    clock = time.perf_counter if bench.device.type == "cuda" else time.process_time
    with tempfile.TemporaryDirectory() as root:
        start = clock()
        with MemoryPeak(bench.device).watch() as memory:
            dataset = Synthetic(
                like="mag-cs", scale=_BASE * documents, label_scale=_BASE * labels, root=root
            )
        seconds = clock() - start
        yield _note(bench, "build", name, memory.mib, seconds, dataset.num_documents, dataset)
        train = bench.config.train.model_copy(update={"batch_size": _BATCH_SIZE})
        config = bench.config.model_copy(update={"train": train})
        inner = replace(bench, dataset=dataset, config=config)
        loader = open_bench(inner).loader("train", training=True)
        batches = list(islice(loader, _BATCHES))
        with MemoryPeak(bench.device).watch() as memory:
            trainer = Trainer(inner)
            trainer.step(batches[0])
            synchronize(bench.device)
            start = clock()
            for batch in batches:
                trainer.step(batch)
            synchronize(bench.device)
            seconds = clock() - start
        lengths = loader.batch_sampler.lengths
        seconds *= int(lengths.sum()) / sum(int(batch.ptr[-1]) for batch in batches)
        yield _note(bench, "step", name, memory.mib, seconds, len(lengths), dataset)


def _note(
    bench: Bench,
    part: str,
    name: str,
    peak_mib: float | None,
    seconds: float,
    documents: int,
    dataset: Synthetic,
) -> Speed:
    return Speed(
        f"scaling: {part}",
        f"{name}: {documents:,} documents, {dataset.num_labels:,} labels",
        describe(bench.device),
        float(f"{documents / seconds:.6g}"),
        "documents/s",
        "",
        1.0,
        None if peak_mib is None else round(peak_mib, 1),
        {"seconds": float(f"{seconds:.4g}")},
    )


def _find_slope(value: float, base: float, factor: int) -> float:
    return round(math.log(value / base) / math.log(factor), 3)
