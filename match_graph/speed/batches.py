"""Run, batches and work items shared by the measurements of the network."""

import itertools
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

import torch

from match_graph.graph import EgoBatch, EgoLoader, EgoSampler
from match_graph.graph.tokens import make_batch
from match_graph.io.progress import Reporter
from match_graph.runs.run import Run
from match_graph.speed.measure import Bench
from match_graph.training.device import make_fabric

T = TypeVar("T")

#: Batches that are drawn for each one that is measured.
_READ = 20


def open_bench(bench: Bench, alone: bool = True) -> Run:
    """Run with the measured settings, without a folder, as nothing is written.

    Args:
        bench: Bench to open.
        alone: Whether this process computes by itself, whatever ``train.devices`` says.
    """
    fabric = make_fabric(bench.config.train, alone=alone)
    return Run(Path(), bench.config, bench.dataset, Reporter(quiet=True), fabric)


def sample_batches(loader: EgoLoader, number: int) -> list[EgoBatch]:
    """Sample of a loader's batches, at evenly spaced ranks by number of tokens.

    Documents of a batch have similar lengths, so that batches differ widely in size and the first
    few are not representative of an epoch.
    """
    batches = sorted(
        itertools.islice(loader, _READ * number), key=lambda batch: batch.token_id.numel()
    )
    places = torch.linspace(0, len(batches) - 1, 2 * min(number, len(batches)) + 1)[1::2]
    return [batches[place] for place in places.round().long().tolist()]


def shuffle_batches(bench: Bench, batches: Sequence[EgoBatch]) -> list[EgoBatch]:
    """Batches of the same documents and sizes, not sorted by length."""
    graph, settings = bench.dataset.graph, bench.config.data
    documents = torch.cat([batch.document for batch in batches])
    order = torch.randperm(len(documents), generator=torch.Generator().manual_seed(0))
    sampler = EgoSampler(graph, settings.max_metadata, settings.max_words, random=True)
    space = bench.space
    return [
        make_batch(sampler.sample(part), space, bench.dataset.targets)
        for part in documents[order].split(find_batch_size(batches))
    ]


def find_batch_size(batches: Iterable[EgoBatch]) -> int:
    """Number of documents of a full batch; one batch of an epoch may have fewer."""
    return max(batch.num_documents for batch in batches)


def count_tokens(batches: Sequence[EgoBatch]) -> float:
    """Mean number of tokens per document."""
    documents = sum(batch.num_documents for batch in batches)
    return sum(int(batch.ptr[-1]) for batch in batches) / documents


def repeat(work: Callable[[T], float], items: Iterable[T]) -> Callable[[], float]:
    """Work item for `take_turns` that does the work on the next item, again and again."""
    endless = itertools.chain.from_iterable(itertools.repeat(items))
    return lambda: work(next(endless))
