"""The blend of two models' scores against a slow float64 version."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from match_graph.errors import GraphError
from match_graph.metrics import Blend, BlendSearch

FOLDS, LABELS = 3, 6


def draw(seed: int, num_documents: int, noise: tuple[float, float]):
    """Logits of two models, each the true ones with its noise; packed gold labels, folds."""
    generator = torch.Generator().manual_seed(seed)
    true = 2 * torch.randn(num_documents, LABELS, generator=generator)
    gold = torch.rand(true.shape, generator=generator) < torch.sigmoid(true)
    network, linear = (true + n * torch.randn(true.shape, generator=generator) for n in noise)
    ptr = torch.cat([torch.zeros(1, dtype=torch.int64), gold.sum(1).cumsum(0)])
    fold = torch.arange(num_documents) * FOLDS // num_documents
    return network, linear, (ptr, gold.nonzero()[:, 1]), fold


def search_of(batch) -> BlendSearch:
    search = BlendSearch(FOLDS)
    search.update(*batch)
    return search


def find_slowly(network: Tensor, linear: Tensor, gold: Tensor) -> float:
    """The share, document by document in float64."""
    best, found = -float("inf"), 0.0
    discount = [1 / torch.log2(torch.tensor(rank + 2.0, dtype=torch.float64)) for rank in range(5)]
    for step in range(10):
        share, total = step / 10, torch.zeros((), dtype=torch.float64)
        for one, other, own in zip(network.double(), linear.double(), gold, strict=True):
            order = (share * one + (1 - share) * other).argsort(descending=True)[:5]
            gain = sum((discount[rank] for rank, label in enumerate(order) if own[label]), 0.0)
            ideal = sum(discount[: min(5, int(own.sum()))], 0.0)
            total += gain / ideal if own.any() else 0.0
        value = float(total) - 20 * (share - 0.4) ** 2
        if value > best:
            best, found = value, share
    return found


def unpack(gold: tuple[Tensor, Tensor]) -> Tensor:
    """Gold labels as [D, L], bool."""
    dense = torch.zeros(len(gold[0]) - 1, LABELS, dtype=torch.bool)
    dense[torch.repeat_interleave(torch.arange(len(dense)), gold[0].diff()), gold[1]] = True
    return dense


@given(seed=st.integers(0, 10_000), number=st.integers(FOLDS, 60))
@settings(max_examples=25)
def test_BlendSearch_share_is_that_of_a_slow_search(seed: int, number: int) -> None:
    """Of all documents, and for each fold of those of the others."""
    network, linear, gold, fold = batch = draw(seed, number, (0.5, 0.5))
    found, dense = search_of(batch).compute(), unpack(gold)
    assert found.share == find_slowly(network, linear, dense)
    for number, share in enumerate(found.fold_share.tolist()):
        others = fold != number
        expected = find_slowly(network[others], linear[others], dense[others])
        assert share == pytest.approx(expected)


def test_BlendSearch_goes_to_the_better_model() -> None:
    """Among thousands of documents all the way, and never to the network alone."""
    assert search_of(draw(0, 3000, (0.1, 20.0))).compute().share == 0.9
    assert search_of(draw(0, 3000, (20.0, 0.1))).compute().share == 0.0


def test_BlendSearch_stays_where_documents_are_few() -> None:
    """Three documents do not move it; without any it is the prior share."""
    assert 0.2 <= search_of(draw(0, 3, (0.5, 0.5))).compute().share <= 0.6
    assert BlendSearch(FOLDS).compute().share == 0.4


def test_BlendSearch_in_batches_and_processes() -> None:
    """The same as of all documents at once."""
    network, linear, gold, fold = draw(1, 40, (0.5, 1.0))
    parts = [BlendSearch(FOLDS) for _ in range(2)]
    for part, rows in zip(parts, (slice(0, 25), slice(25, 40)), strict=True):
        ptr = gold[0][rows.start : rows.stop + 1]
        own = ptr - ptr[0], gold[1][ptr[0] : ptr[-1]]
        part.update(network[rows], linear[rows], own, fold[rows])
    parts[0].reduce(lambda tensor: tensor + parts[1].state()["sums"])
    whole, summed = search_of((network, linear, gold, fold)).compute(), parts[0].compute()
    assert summed.share == whole.share
    assert torch.equal(summed.fold_share, whole.fold_share)


def test_BlendSearch_refuses_nan() -> None:
    """As every measure does."""
    network, *rest = draw(0, 5, (1.0, 1.0))
    with pytest.raises(GraphError):
        search_of((network.fill_(torch.nan), *rest))


def test_Blend_mixes_log_odds() -> None:
    """By the one share, or by that of each document's fold."""
    network, linear, _, fold = draw(3, 6, (1.0, 1.0))
    blend = Blend(0.3, torch.tensor([0.0, 0.5, 0.9]))
    torch.testing.assert_close(blend(network, linear), 0.3 * network + 0.7 * linear)
    for row, share in enumerate((0.0, 0.0, 0.5, 0.5, 0.9, 0.9)):
        expected = share * network[row] + (1 - share) * linear[row]
        torch.testing.assert_close(blend(network, linear, fold)[row], expected)
