"""Documents per second of sampling batches, against a loop over documents."""

from collections.abc import Iterator

import torch
from torch import Tensor

from match_graph.graph import EgoBatch, TokenSpace
from match_graph.graph.view import Graph, view_graph
from match_graph.speed.batches import (
    count_tokens,
    find_batch_size,
    open_bench,
    repeat,
    sample_batches,
)
from match_graph.speed.measure import Bench, Speed, compare, watch_memory
from match_graph.typing import DOCUMENT, WORD

#: Batches that the baseline cycles through; ours cycles through a whole epoch.
_NUM_BATCHES = 20


class LoopSampler:
    """Baseline: samples a document's neighbours one document and edge type at a time.

    PyG's own loaders need compiled packages that are not on PyPI, so none is compared.

    Args:
        data: Built graph.
        space: Token space, which gives token ids.
        max_metadata: Largest number of metadata tokens per document, shared evenly by the types;
            the first ones of each, as `EgoSampler` takes them without ``random``.
        max_words: Largest number of words per document, the first ones.
    """

    def __init__(self, data: Graph, space: TokenSpace, max_metadata: int, max_words: int) -> None:
        self.space, self.max_metadata, self.max_words = space, max_metadata, max_words
        self.edges: dict[str, tuple[Tensor, Tensor]] = {}
        graph = view_graph(data)
        for edge_type in graph.edge_types:
            if edge_type[0] == DOCUMENT and edge_type[2] in space.types:
                lists = graph.adjacency(edge_type)
                self.edges[edge_type[2]] = lists.ptr, lists.node

    def sample(self, documents: Tensor) -> EgoBatch:
        """Token sets of documents [B]."""
        ids, fields, positions, lengths = [], [], [], []
        for document in documents.tolist():
            sizes = {
                name: int(ptr[document + 1] - ptr[document])
                for name, (ptr, _) in self.edges.items()
            }
            length = 0
            for name, number in self._share(sizes).items():
                ptr, col = self.edges[name]
                start = int(ptr[document])
                ids.append(self.space.encode(name, col[start : start + number]))
                fields.append(torch.full((number,), self.space.field_index(name)))
                place = torch.arange(number)
                positions.append(place if name == WORD else torch.zeros_like(place))
                length += number
            lengths.append(length)
        ptr = torch.tensor([0, *lengths]).cumsum(0)
        return EgoBatch(documents, torch.cat(ids), torch.cat(fields), torch.cat(positions), ptr)

    def _share(self, sizes: dict[str, int]) -> dict[str, int]:
        """Budget of each type; what small types do not use goes to the larger ones."""
        fields = sorted((name for name in sizes if name != WORD), key=sizes.__getitem__)
        left, take = self.max_metadata, {}
        for number, name in enumerate(fields):
            take[name] = min(sizes[name], left // (len(fields) - number))
            left -= take[name]
        take[WORD] = min(sizes[WORD], self.max_words)
        return {name: take[name] for name in sizes}


def measure_sample(bench: Bench) -> Iterator[Speed]:
    """Measures batches as training takes them, sampled at random and with gold labels."""
    run, settings, bench = open_bench(bench), bench.config.data, bench.on_cpu
    loader = run.loader("train", training=True)
    batches = sample_batches(loader, _NUM_BATCHES)
    naive = LoopSampler(bench.dataset.graph, run.space, settings.max_metadata, settings.max_words)

    def loop(batch: EgoBatch) -> int:
        return naive.sample(batch.document).num_documents

    tokens = count_tokens(batches)
    yield from compare(
        bench, "sample",
        f"batches of {find_batch_size(batches)}, {tokens:.1f} tokens per document", "documents/s",
        {
            "ours": repeat(lambda batch: batch.num_documents, loader),
            "a loop over documents": repeat(loop, batches),
        },
        watch_memory(bench, lambda: next(iter(loader))),
        more=lambda rates: {"tokens_per_s": rates["ours"] * tokens},
    )  # fmt: skip
