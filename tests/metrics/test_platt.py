"""Platt scaling against scipy, label by label in float64, and against held-out documents."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from match_graph.errors import GraphError
from match_graph.metrics import PlattSearch, RankingMeter, platt, rank_labels

FOLDS, LABELS = 3, 5


def draw(seed: int, num_documents: int = 400, sure: float = 1.0):
    """Logits whose labels are more or less sure of themselves than they should be, packed gold
    labels, folds, and gold [D, L]; the last label is rare."""
    generator = torch.Generator().manual_seed(seed)
    true = 2.5 * torch.randn(num_documents, LABELS, generator=generator)
    true -= torch.tensor([0.0, 0.0, 0.0, 1.0, 6.0])
    gold = torch.rand(true.shape, generator=generator) < torch.sigmoid(true)
    logits = true * torch.tensor([1.0, 2.0, 0.5, 1.0, 1.0]) ** sure
    logits = logits + sure * torch.tensor([0.0, 0.0, 0.0, 1.5, 0.0])
    ptr = torch.cat([torch.zeros(1, dtype=torch.int64), gold.sum(1).cumsum(0)])
    return logits, ptr, gold.nonzero()[:, 1], torch.arange(num_documents) % FOLDS, gold


def search_of(*batches) -> PlattSearch:
    search = PlattSearch(LABELS, FOLDS)
    for batch in batches:
        search.update(*batch)
    return search


def fit_slowly(logits: np.ndarray, gold: np.ndarray, width: float) -> np.ndarray:
    """(a, b) of one label by scipy, over documents and not over bins."""
    known = logits >= -8
    z, y = logits[known].astype("float64"), gold[known]

    def objective(ab: np.ndarray) -> float:
        scaled = np.exp(ab[0]) * z + ab[1]
        loss = np.logaddexp(0, scaled).sum() - scaled[y].sum()
        return loss + ((3 * ab[0]) ** 2 + ab[1] ** 2) / (2 * width**2)

    return minimize(objective, np.zeros(2), method="BFGS").x


@given(seed=st.integers(0, 10_000), bins=st.booleans())
@settings(max_examples=15)
def test_PlattSearch_each_label_has_the_least_penalised_loss(seed: int, bins: bool) -> None:
    """Scores in the middle of their bins: the same as scipy's; any scores: as near as the bins."""
    logits, ptr, index, fold, gold = draw(seed)
    if bins:
        logits = (logits * 8).floor() / 8 + 0.0625
    found = search_of((logits, ptr, index, fold)).compute()
    if found.width == 0:
        assert found.scale.tolist() == [1.0] * LABELS
        return
    for label in range(LABELS):
        a, b = fit_slowly(logits[:, label].numpy(), gold[:, label].numpy(), found.width)
        near = 1e-3 if bins else 0.02
        assert float(found.scale[label].log()) == pytest.approx(a, abs=near)
        assert float(found.shift[label]) == pytest.approx(b, abs=near)


@given(seed=st.integers(0, 10_000), cut=st.integers(0, 400))
@settings(max_examples=15)
def test_PlattSearch_batches_do_not_matter(seed: int, cut: int) -> None:
    """Documents in one batch or two, and sums over two processes, give the same scaling."""
    logits, ptr, index, fold, _ = draw(seed)
    first = logits[:cut], ptr[: cut + 1], index[: ptr[cut]], fold[:cut]
    second = logits[cut:], ptr[cut:] - ptr[cut], index[ptr[cut] :], fold[cut:]
    whole = search_of((logits, ptr, index, fold)).compute()
    parts = [search_of(first), search_of(second)]
    sums = iter([sum(values) for values in zip(*map(counted, parts), strict=True)])
    parts[0].reduce(lambda _: next(sums))
    for found in (search_of(first, second).compute(), parts[0].compute()):
        for name in ("scale", "shift", "fold_scale", "fold_shift"):
            assert torch.equal(getattr(found, name), getattr(whole, name))
        assert (found.width, found.before, found.after) == (whole.width, whole.before, whole.after)


def counted(search: PlattSearch) -> list[torch.Tensor]:
    """What a search would sum over processes, in order."""
    seen: list[torch.Tensor] = []
    search.reduce(lambda values: seen.append(values) or values)
    return seen


@pytest.mark.parametrize("size", [1, 2**12])
def test_PlattSearch_fits_labels_in_blocks(monkeypatch, size: int) -> None:
    """A label alone, or all at once: the same scalings, also of a label that no score reaches."""
    logits, ptr, index, fold, _ = draw(7)
    logits[:, 4] = -9.0
    expected = search_of((logits, ptr, index, fold)).compute()
    monkeypatch.setattr(platt, "_BLOCK_VALUES", size)
    found = search_of((logits, ptr, index, fold)).compute()
    assert found.width == expected.width > 0
    assert (float(found.scale[4]), float(found.shift[4])) == (1.0, 0.0)
    for name in ("scale", "shift", "fold_scale", "fold_shift"):
        torch.testing.assert_close(
            getattr(found, name), getattr(expected, name), atol=1e-6, rtol=1e-6
        )


def test_PlattSearch_recovers_a_planted_scaling() -> None:
    """Doubled, halved and shifted scores are put right, those that say what they mean stay, and a
    new document is ranked better for it."""
    found = search_of(draw(0, 20_000)[:4]).compute()
    assert found.scale[:4].tolist() == pytest.approx([1.0, 0.5, 2.0, 1.0], rel=0.05)
    assert found.shift[:4].tolist() == pytest.approx([0.0, 0.0, 0.0, -1.5], abs=0.1)
    assert found.after < found.before
    logits, ptr, index, _, _ = draw(1, 5_000)
    before, after = RankingMeter(ks=(1,)), RankingMeter(ks=(1,))
    before.update(rank_labels(logits, 1), ptr, index)
    after.update(rank_labels(found(logits), 1), ptr, index)
    assert after.compute()["P@1"] > before.compute()["P@1"] + 0.01


def test_PlattSearch_scores_that_say_what_they_mean_stay() -> None:
    """Held-out documents say that nothing is gained, or next to nothing."""
    found = search_of(draw(3, 3_000, sure=0.0)[:4]).compute()
    assert found.width <= 0.1
    assert found.scale.tolist() == pytest.approx([1.0] * LABELS, abs=0.05)


def test_PlattSearch_held_out_loss_is_of_unseen_documents() -> None:
    """``after`` is the log-loss of each document by the scaling without its fold; ``before`` that
    of the scores as they are. All scores lie on the middle of their bins."""
    logits, ptr, index, fold, gold = draw(5)
    logits = ((logits.clamp(min=-7.9) * 8).floor() / 8 + 0.0625).double()
    found = search_of((logits, ptr, index, fold)).compute()
    assert found.width > 0

    def loss(scores: torch.Tensor) -> float:
        loss = torch.nn.functional.binary_cross_entropy_with_logits(
            scores.double(), gold.double(), reduction="sum"
        )
        return float(loss) / len(scores)

    assert found.before == pytest.approx(loss(logits), rel=1e-6)
    assert found.after == pytest.approx(loss(found(logits, fold)), rel=1e-5)
    unseen = fold != 1
    rows = logits[unseen], *_packed(gold[unseen]), torch.zeros(int(unseen.sum())).long()
    alone = PlattSearch(LABELS, 1)
    alone.update(*rows)
    block = alone._take(torch.arange(LABELS), alone._all[0] > 0)
    a, b = block.fit(torch.zeros(2, LABELS, 2, dtype=torch.float64), found.width)[..., 1]
    assert found.fold_scale[1].tolist() == pytest.approx(a.exp().tolist(), abs=1e-5)
    assert found.fold_shift[1].tolist() == pytest.approx(b.tolist(), abs=1e-5)


def _packed(gold: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    ptr = torch.cat([torch.zeros(1, dtype=torch.int64), gold.sum(1).cumsum(0)])
    return ptr, gold.nonzero()[:, 1]


def test_PlattSearch_labels_keep_their_order_of_documents() -> None:
    """Scales are positive, even where gold documents score lowest."""
    logits = torch.linspace(-6, 6, 200).unsqueeze(1)
    search = PlattSearch(1, 2)
    search.update(logits, *_packed(logits < 0), torch.arange(200) % 2)
    found = search.compute()
    assert 0 < float(found.scale[0]) < 0.2
    assert (found(logits).diff(dim=0) > 0).all()


@given(
    scale=st.floats(0.05, 20), shift=st.floats(-10, 10),
    low=st.floats(-20, 20), high=st.floats(-20, 20),
)  # fmt: skip
def test_PlattSearch_change_fades_below_the_bins(
    scale: float, shift: float, low: float, high: float
) -> None:
    """In full at -8 and above, but never to below -16; half of that of -8 at -12, none at -16 and
    below; never turns two documents around."""
    found = replace(
        PlattSearch(1, 1).compute(), scale=torch.tensor([scale]), shift=torch.tensor([shift])
    )
    low, high = min(low, high), max(low, high)
    logits = [low, high, -16.0, -30.0, -8.0, -8.0 - 1e-5, -12.0]
    scores = found(torch.tensor(logits).unsqueeze(1))[:, 0]
    assert float(scores[0]) <= float(scores[1]) + 1e-5
    assert scores[2:4].tolist() == [-16.0, -30.0]
    assert float(scores[4]) == pytest.approx(float(scores[5]), abs=1e-3)
    halfway = -12 + (-8 * (scale - 1) + shift) / 2
    assert float(scores[6]) == pytest.approx(max(halfway, -16), abs=1e-3)
    if high >= -8:
        assert float(scores[1]) == pytest.approx(max(scale * high + shift, -16), abs=1e-3)


@pytest.mark.parametrize("scale", [0.5, 1.0, 2.0])
def test_PlattSearch_infinite_scores_stay_infinite(scale: float) -> None:
    """Scores of +inf and -inf are the same after calibration, whatever its scale."""
    found = replace(PlattSearch(1, 1).compute(), scale=torch.tensor([scale]))
    infinite = torch.tensor([[float("inf")], [float("-inf")]])
    assert torch.equal(found(infinite), infinite)


def test_PlattSearch_without_documents_nothing_changes() -> None:
    """No validation documents: scores stay as they are."""
    found = PlattSearch(2).compute()
    assert (found.width, found.before, found.after) == (0.0, 0.0, 0.0)
    assert found(torch.tensor([[1.0, -3.0]])).tolist() == [[1.0, -3.0]]


def test_PlattSearch_ignores_scores_below_the_bins() -> None:
    """Scores below the bins, gold or not, are left out."""
    logits, ptr, index, fold, _ = draw(2)
    outside = torch.full((50, LABELS), -30.0)
    all_gold = torch.ones(50, LABELS, dtype=torch.bool)
    more = PlattSearch(LABELS, FOLDS)
    more.update(logits, ptr, index, fold)
    more.update(outside, *_packed(all_gold), torch.arange(50) % FOLDS)
    found, expected = more.compute(), search_of((logits, ptr, index, fold)).compute()
    assert torch.equal(found.scale, expected.scale)
    assert torch.equal(found.shift, expected.shift)


def test_PlattSearch_other_labels_are_refused() -> None:
    """Scores of three labels and a scaling of two."""
    with pytest.raises(GraphError, match="found 3 labels for 2"):
        PlattSearch(2).compute()(torch.zeros(1, 3))


def test_PlattSearch_scores_without_bound_are_in_the_last_bin() -> None:
    """Infinite ones and such as no whole number holds, as 100 is."""
    found = []
    for score in (100.0, 1e30, math.inf):
        search = PlattSearch(2, 2)
        logits = torch.tensor([[score, 0.0], [-1.0, 2.0]])
        search.update(logits, torch.tensor([0, 1, 2]), torch.tensor([0, 1]), torch.tensor([0, 1]))
        found.append(search.compute())
    for one in found[1:]:
        assert torch.equal(one.scale, found[0].scale)
        assert torch.equal(one.shift, found[0].shift)


def test_PlattSearch_lowest_bin_holds_its_lower_end() -> None:
    """A score of just -8 is counted among all as it is among the gold ones."""
    search = PlattSearch(1, 2)
    search.update(
        torch.tensor([[-8.0], [-8.01]]), torch.arange(3), torch.zeros(2).long(), torch.arange(2)
    )
    assert int(search._all.sum()) == int(search._gold.sum()) == 1
    assert int(search._all[0, 0, 0]) == int(search._gold[0, 0, 0]) == 1
