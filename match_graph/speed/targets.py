"""The loss from packed gold labels, against a dense target."""

from collections.abc import Iterator
from itertools import islice

import torch

from match_graph.graph import EgoBatch
from match_graph.nn import sparse_bce
from match_graph.speed.batches import backward, open_bench, repeat
from match_graph.speed.measure import Bench, MemoryPeak, Speed, make_speed, take_turns
from match_graph.speed.step import dense_bce


def measure_targets(bench: Bench) -> Iterator[Speed]:
    """Measures the loss and its gradient on the same logits, in documents per second."""
    loader = open_bench(bench).loader("train", training=True)
    batches = [batch.to(bench.device) for batch in islice(loader, 5)]
    size = (bench.dataset.num_labels, batches[0].num_documents)
    scores = torch.randn(size, device=bench.device).t().requires_grad_()  # as the head's: [L, B]

    def ours(batch: EgoBatch) -> int:
        logits = scores[: batch.num_documents]
        backward(sparse_bce(logits, *batch.gold), scores)
        return batch.num_documents

    def dense(batch: EgoBatch) -> int:
        logits = scores[: batch.num_documents]
        backward(dense_bce(logits, *batch.gold), scores)
        return batch.num_documents

    with MemoryPeak(bench.device).watch() as memory:
        ours(batches[0])
    names = ("ours", "dense targets")
    work = {names[0]: repeat(ours, batches), names[1]: repeat(dense, batches)}
    rates = take_turns(work, bench.seconds, bench.device, bench.busy)
    yield make_speed(
        bench, "targets", f"batches of {size[1]}, {size[0]:,} labels", "documents/s", rates, names,
        memory.mib,
    )  # fmt: skip
