"""Quality of vectors: ranks of held-out pairs, margins, nearest neighbours."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from match_graph.graph.csr import row_index, select_rows, sorted_row_ptr
from match_graph.graph.view import Graph, GraphView, view_graph
from match_graph.typing import CITES, DOCUMENT, MASKS, EdgeType

#: Scores in memory at once: 64 MiB.
_SCORES = 1 << 24


@dataclass(frozen=True)
class HeldOut:
    """Held-out pairs, and the graph without them.

    Args:
        data: Graph without the held-out pairs.
        pairs: Held-out pairs by target type, [2, H], int64; row 0 documents, row 1 targets.
        known: All pairs of training documents by target type, held out or not, [2, E], int64.
    """

    data: GraphView
    pairs: dict[str, Tensor]
    known: dict[str, Tensor]


def hold_out(
    data: Graph, num_rows: Mapping[str, int], share: float = 0.05, seed: int = 0
) -> HeldOut:
    """Takes a share of the (document, metadata) and (document, label) pairs out of a graph.

    Pairs of training documents with kept targets are held out, each with the same probability.

    Args:
        data: A graph, not changed; its words, which are most of it, are not copied.
        num_rows: Number of kept nodes per type; types not named are kept whole.
        share: Share of each type's pairs to hold out, in 0..1.
        seed: Random seed of the choice; the same seed holds out the same pairs.
    """
    generator = torch.Generator().manual_seed(seed)
    graph, rest, pairs, known = view_graph(data), {}, {}, {}
    in_train = graph.node_tensor(DOCUMENT, MASKS["train"])
    assert in_train is not None
    for edge_type in _evaluated(graph):
        target = edge_type[2]
        edge_index = graph.edge_index(edge_type)
        most = num_rows.get(target, graph.num_nodes(target))
        kept = in_train[edge_index[0]] & (edge_index[1] < most)
        chosen = kept & (torch.rand(kept.shape, generator=generator) < share)
        pairs[target] = edge_index[:, chosen].to(torch.int64)
        known[target] = edge_index[:, kept].to(torch.int64)
        rest[edge_type] = edge_index[:, ~chosen]
    return HeldOut(graph.with_edges(rest), pairs, known)


def _evaluated(graph: GraphView) -> list[EdgeType]:
    """Edge types of documents that are neither sequences nor citations."""
    return [
        edge_type
        for edge_type in graph.edge_types
        if edge_type[0] == DOCUMENT and edge_type != CITES and not graph.is_sequence(edge_type)
    ]


@torch.no_grad()
def rank_pairs(
    anchor: Tensor, target: Tensor, pairs: Tensor, known: Tensor, margin: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The rank of each pair's target among all targets, by cosine.

    Args:
        anchor: Unit vectors of documents, [D, C].
        target: Unit vectors of all candidates, [T, C].
        pairs: Pairs to rank, [2, H], int64; row 0 documents, row 1 targets.
        known: Pairs that do not count as rivals in the filtered rank, [2, E], int64.
        margin: Margin, the paper's gamma.

    Returns:
        Rank and filtered rank, from 1, and the number of rivals that are at least the margin
        farther than the true target, each [H], int64.
    """
    document, instance = pairs
    known = known[:, known[0].argsort(stable=True)]
    ptr = sorted_row_ptr(known[0], len(anchor))
    rank, filtered, satisfied = (torch.empty_like(document) for _ in range(3))
    piece = max(1, _SCORES // len(target))
    for start in range(0, len(document), piece):
        rows = document[start : start + piece]
        scores = anchor.index_select(0, rows) @ target.t()  # [piece, T]
        true = scores.gather(1, instance[start : start + piece].unsqueeze(1))
        rank[start : start + piece] = 1 + (scores > true).sum(dim=1)
        satisfied[start : start + piece] = (scores <= true - margin).sum(dim=1)
        known_ptr, known_target = select_rows(ptr, known[1], rows)
        scores[row_index(known_ptr), known_target] = -2.0
        filtered[start : start + piece] = 1 + (scores > true).sum(dim=1)
    return rank, filtered, satisfied


def evaluate_vectors(
    tables: Mapping[str, Tensor], held: HeldOut, margin: float
) -> dict[str, dict[str, float]]:
    """Quality per target type of vectors that were trained without the held-out pairs.

    Args:
        tables: Unit vectors by node type; types without a table are left out.
        held: Held-out pairs, from `hold_out`.
        margin: Margin, the paper's gamma.

    Returns:
        Per type ``mrr`` (mean reciprocal rank of the true instance among all kept ones of its
        type), ``mrr_filtered`` (the document's other true instances do not count as rivals, as in
        Bordes et al. 2013), ``satisfied`` (share of margins that hold, over all rivals), ``pairs``
        and ``candidates``.
    """
    found = {}
    for name, held_pairs in held.pairs.items():
        if name not in tables or not held_pairs.size(1):
            continue
        anchor, target = tables[DOCUMENT], tables[name]
        pairs, known = held_pairs.to(anchor.device), held.known[name].to(anchor.device)
        rank, filtered, satisfied = rank_pairs(anchor, target, pairs, known, margin)
        found[name] = {
            "mrr": float(rank.double().reciprocal().mean()),
            "mrr_filtered": float(filtered.double().reciprocal().mean()),
            "satisfied": float(satisfied.double().mean()) / max(1, len(target) - 1),
            "pairs": pairs.size(1),
            "candidates": len(target),
        }
    return found


def find_neighbours(table: Tensor, rows: Tensor, number: int = 5) -> Tensor:
    """The nearest other rows by cosine, nearest first, [len(rows), number] or fewer columns."""
    scores = table.index_select(0, rows) @ table.t()
    scores.scatter_(1, rows.unsqueeze(1), -2.0)
    return scores.topk(min(number, len(table) - 1), dim=1).indices
