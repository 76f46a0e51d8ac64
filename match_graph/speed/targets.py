"""The loss from packed gold labels, against a dense target."""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice

import torch
from torch import Tensor

from match_graph.graph import EgoBatch
from match_graph.nn import sparse_bce
from match_graph.speed.batches import find_batch_size, open_bench, repeat
from match_graph.speed.measure import Bench, Speed, compare, watch_memory
from match_graph.speed.step import dense_bce


def measure_targets(bench: Bench) -> Iterator[Speed]:
    """Measures the loss and its gradient on the same logits, in documents per second."""
    loader = open_bench(bench).loader("train", training=True)
    batches = [batch.to(bench.device) for batch in islice(loader, 5)]
    size = (bench.dataset.num_labels, find_batch_size(batches))
    scores = torch.randn(size, device=bench.device).t().requires_grad_()  # as the head's: [L, B]

    def descend(loss: Callable[..., Tensor], batch: EgoBatch) -> int:
        logits = scores[: batch.num_documents]
        torch.autograd.grad(loss(logits, batch.label_ptr, batch.label_index), scores)
        return batch.num_documents

    work = {
        name: repeat(partial(descend, loss), batches)
        for name, loss in (("ours", sparse_bce), ("dense targets", dense_bce))
    }
    yield from compare(
        bench, "targets", f"batches of {size[1]}, {size[0]:,} labels", "documents/s", work,
        watch_memory(bench, lambda: descend(sparse_bce, batches[0])),
    )  # fmt: skip
