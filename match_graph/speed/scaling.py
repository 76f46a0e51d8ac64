"""Scaling of time and memory to corpora of 4 and 16 times as many documents or labels."""

import math
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

import torch

from match_graph.datasets import Synthetic
from match_graph.speed.batches import open_bench
from match_graph.speed.measure import CPU, Bench, MemoryPeak, Speed, describe, synchronize
from match_graph.speed.step import Trainer

#: Factors of documents and labels; the first is what the others are compared with.
FACTORS = ((1, 1), (4, 1), (16, 1), (1, 4), (1, 16))
#: Size of the smallest corpus relative to MAG-CS, in documents and labels.
_BASE = 1 / 128
_BATCH_SIZE, _BATCHES = 256, 4


def measure_scaling(bench: Bench) -> Iterator[Speed]:
    """Measures building and training on corpora like MAG-CS; ignores the given data set.

    ``seconds`` are those of the whole build, always on the CPU, and of a training epoch,
    extrapolated from some steps by their tokens. On the CPU they are processor time of all threads,
    so that other work of the machine does not count. ``slope`` is the exponent of their growth
    since the smallest corpus (1 is proportional, 0 is constant), ``memory_slope`` that of the peak
    memory.
    """
    first: dict[str, tuple[float, float, float | None]] = {}
    for documents, labels in FACTORS:
        factor = max(documents, labels)
        for part, device, number, seconds, peak, dataset in _measure_size(bench, documents, labels):
            rate = float(f"{number / seconds:.6g}")
            mib = None if peak is None else round(peak, 1)
            base_rate, base_seconds, base_mib = first.setdefault(part, (rate, seconds, mib))
            more = {"seconds": float(f"{seconds:.4g}")}
            if factor > 1:
                more["slope"] = _find_slope(seconds, base_seconds, factor)
                if mib and base_mib:
                    more["memory_slope"] = _find_slope(mib, base_mib, factor)
            yield Speed(
                f"scaling: {part}",
                f"documents x {documents}, labels x {labels}: {number:,} documents, "
                f"{dataset.num_labels:,} labels",
                describe(device),
                rate,
                "documents/s",
                f"documents x 1, labels x 1: {base_rate:,.6g} documents/s",
                float(f"{rate / base_rate:.4g}"),
                mib,
                more,
            )


def _measure_size(
    bench: Bench, documents: int, labels: int
) -> Iterator[tuple[str, torch.device, int, float, float | None, Synthetic]]:
    """Measurements: (stage, device, number of documents, seconds, peak in MiB, data set)."""
    clock = time.perf_counter if bench.device.type == "cuda" else time.process_time
    with tempfile.TemporaryDirectory() as root:
        start = time.process_time()
        with MemoryPeak(CPU).watch() as memory:
            dataset = Synthetic(
                like="mag-cs", scale=_BASE * documents, label_scale=_BASE * labels, root=root
            )
        seconds = time.process_time() - start
        yield "build", CPU, dataset.num_documents, seconds, memory.mib, dataset
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
        lengths = loader.order.lengths
        seconds *= int(lengths.sum()) / sum(int(batch.ptr[-1]) for batch in batches)
        yield "step", bench.device, len(lengths), seconds, memory.mib, dataset


def _find_slope(value: float, base: float, factor: int) -> float:
    return round(math.log(value / base) / math.log(factor), 3)
