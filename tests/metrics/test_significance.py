"""The paired t-test, the paired bootstrap and Holm's correction, by hand and by other packages."""

import itertools
import math
import time

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.multitest import multipletests

from match_graph.errors import GraphError
from match_graph.metrics import (
    Comparison,
    DocumentBootstrap,
    adjust_holm,
    compare_runs,
    correct_comparisons,
    find_stars,
)
from match_graph.metrics.significance import FEWEST_SEEDS


def draw_scores(num_documents: int, num_columns: int, seed: int = 0) -> torch.Tensor:
    """Scores between 0 and 1 whose columns share a part, as models on the same documents do."""
    generator = torch.Generator().manual_seed(seed)
    shared, own = (
        torch.rand(num_documents, size, generator=generator) for size in (1, num_columns)
    )
    return (shared + own + 0.02 * torch.arange(num_columns)) / 4


def test_compare_runs_t_test_by_hand() -> None:
    """Differences .01 to .05: mean .03, deviation sqrt(.001 / 4), t = 3 sqrt 2; 4 degrees."""
    first = {0: 0.51, 1: 0.62, 2: 0.73, 3: 0.84, 4: 0.95}
    second = {2: 0.70, 0: 0.50, 1: 0.60, 4: 0.90, 3: 0.80}  # paired by seed, not by order
    found = compare_runs(first, second)
    assert found.difference == pytest.approx(0.03)
    assert found.num_pairs == 5
    share = 18 / (4 + 18)  # t^2 / (4 + t^2)
    assert found.p_value == pytest.approx(1 - math.sqrt(share) * (1 + (1 - share) / 2))
    assert found.reason == ""
    assert compare_runs(second, first).p_value == pytest.approx(found.p_value)
    assert compare_runs(second, first).difference == pytest.approx(-0.03)


def test_compare_runs_scipy() -> None:
    """Of the seeds that both have; others are left out."""
    values = np.random.default_rng(0).random((2, 9))
    first, second = (dict(enumerate(row)) for row in values.tolist())
    found = compare_runs({**first, 77: 0.5}, {**second, 99: 0.25})
    assert found.num_pairs == 9
    assert found.p_value == pytest.approx(stats.ttest_rel(*values).pvalue)


@pytest.mark.parametrize("number", range(FEWEST_SEEDS))
def test_compare_runs_fewer_than_five_seeds(number: int) -> None:
    """No p-value, and why."""
    seeds = range(number)
    found = compare_runs({seed: 0.5 + seed**2 for seed in seeds}, dict.fromkeys(range(9), 0.4))
    assert found.p_value is None
    assert found.reason == f"it needs 5 common seeds and has {number}"
    assert math.isnan(found.difference) == (number == 0)


@pytest.mark.parametrize("shift", [0.0, 0.1])
def test_compare_runs_without_variance(shift: float) -> None:
    """Differences that are equal but for rounding give no p-value."""
    first = {seed: 0.1 * seed for seed in range(5)}
    found = compare_runs(first, {seed: value - shift for seed, value in first.items()})
    assert (found.p_value, found.reason) == (None, "the difference is the same for all 5 runs")
    assert found.difference == pytest.approx(shift)


def test_compare_runs_measure_that_is_not_finite_is_an_error() -> None:
    """A failed run must not become a comparison."""
    with pytest.raises(GraphError) as error:
        compare_runs({0: 0.5, 1: math.nan}, {0: 0.5, 1: 0.4})
    assert str(error.value) == "The measure of every run must be finite, found NaN or infinity."


def test_DocumentBootstrap_all_resamples() -> None:
    """Four documents: the share of all 4^4 resamples whose mean is as far from the observed."""
    scores = torch.tensor([[0.9, 0.5, 0.7, 0.2], [0.4, 0.6, 0.3, 0.1]]).double().t()
    differences = (scores[:, 0] - scores[:, 1]).tolist()
    mean = sum(differences) / 4
    means = sorted(sum(some) / 4 for some in itertools.product(differences, repeat=4))
    share = sum(abs(value - mean) >= abs(mean) - 1e-12 for value in means) / len(means)
    found = DocumentBootstrap(scores).compare(0, 1)
    assert found.difference == pytest.approx(mean)
    assert found.num_pairs == 4
    assert found.p_value == pytest.approx(share, abs=0.01)
    assert found.interval == pytest.approx((means[6], means[-7]), abs=0.03)  # 2.5 % of 256


def test_DocumentBootstrap_scipy() -> None:
    """Interval and p-value of every pair of columns, within the error of resampling."""
    scores = draw_scores(300, 3)
    ours = DocumentBootstrap(scores)
    for first, second in itertools.combinations(range(3), 2):
        values = (scores[:, first] - scores[:, second]).double().numpy()
        theirs = stats.bootstrap(
            (values,), np.mean, n_resamples=9999, method="percentile",
            rng=np.random.default_rng(1), batch=1000,
        )  # fmt: skip
        found = ours.compare(first, second)
        error = values.std() / math.sqrt(len(values))
        interval = theirs.confidence_interval
        assert found.interval == pytest.approx((interval.low, interval.high), abs=0.1 * error)
        distance = np.abs(theirs.bootstrap_distribution - values.mean())
        p_value = (1 + (distance >= abs(values.mean())).sum()) / 10000
        assert found.p_value == pytest.approx(p_value, abs=0.02)
        assert found.difference == pytest.approx(values.mean())
    alone = stats.bootstrap(
        (scores[:, 0].double().numpy(),), np.mean, n_resamples=9999, method="percentile",
        rng=np.random.default_rng(1), batch=1000,
    ).confidence_interval  # fmt: skip
    assert ours.find_interval(0) == pytest.approx((alone.low, alone.high), abs=0.002)


def test_DocumentBootstrap_naive_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same draws summed document by document; the size of chunks changes nothing."""
    scores, number = draw_scores(37, 4, seed=3), 57
    generator, expected = np.random.default_rng(5), np.zeros((number, 4))
    for resample in range(number):
        for document in generator.integers(0, 37, 37).tolist():
            expected[resample] += scores[document].double().numpy() / 37
    whole = DocumentBootstrap(scores, number, seed=5)
    np.testing.assert_allclose(whole.resampled, expected, rtol=1e-12)
    np.testing.assert_allclose(whole.mean, scores.double().mean(0).numpy(), rtol=1e-12)
    monkeypatch.setattr("match_graph.metrics.significance._CHUNK_VALUES", 37 * 10)
    parts = DocumentBootstrap(scores, number, seed=5)
    np.testing.assert_allclose(parts.resampled, expected, rtol=1e-12)
    differences = expected[:, 2] - expected[:, 0]
    found, mean = whole.compare(2, 0), float((scores[:, 2] - scores[:, 0]).double().mean())
    far = sum(abs(value - mean) >= abs(mean) for value in differences.tolist())
    assert found.p_value == (1 + far) / (1 + number)
    assert found.interval == pytest.approx(tuple(np.percentile(differences, [2.5, 97.5])))


def test_DocumentBootstrap_seed_repeats() -> None:
    """The same seed, the same comparison; columns do not depend on those beside them."""
    scores = draw_scores(50, 3)
    found = DocumentBootstrap(scores, 199).compare(0, 2)
    assert DocumentBootstrap(scores, 199).compare(0, 2) == found
    assert DocumentBootstrap(scores, 199, seed=1).compare(0, 2) != found
    pair = DocumentBootstrap(scores[:, [0, 2]], 199).compare(0, 1)
    assert pair.interval == pytest.approx(found.interval)
    assert pair.p_value == found.p_value


def test_DocumentBootstrap_without_variance() -> None:
    """Equal columns, a constant difference and a single document have no p-value."""
    scores = torch.tensor([[0.0, 0.0, 0.25], [0.5, 0.5, 0.75]])
    bootstrap = DocumentBootstrap(scores, 99)
    for column, difference in ((1, 0.0), (2, -0.25)):
        found = bootstrap.compare(0, column)
        assert (found.p_value, found.interval) == (None, (difference, difference))
        assert found.reason == "the difference is the same for all 2 documents"
    single = DocumentBootstrap(scores[:1], 99)
    assert single.compare(0, 2).reason == "there is one document only"
    assert single.compare(0, 2).interval is single.find_interval(0) is None


@pytest.mark.parametrize(
    ("scores", "found"),
    [
        (torch.zeros(3), "[3]"),
        (torch.zeros(0, 2), "[0, 2]"),
        (torch.zeros(2, 0), "[2, 0]"),
        (torch.tensor([[math.nan]]), "[1, 1]"),
    ],
)
def test_DocumentBootstrap_scores_must_be_whole(scores: torch.Tensor, found: str) -> None:
    """One sentence for shapes and values."""
    with pytest.raises(GraphError) as error:
        DocumentBootstrap(scores)
    assert str(error.value) == (
        f"Scores must be finite and [documents, columns] with at least one of each, found {found} "
        f"or NaN or infinity; leave out what has no score."
    )


@pytest.mark.slow
def test_DocumentBootstrap_of_a_large_table_takes_seconds() -> None:
    """6 measures of 10 rows, 70,000 documents: 9,999 resamples in well under a minute."""
    scores, start = draw_scores(70_000, 60), time.process_time()
    bootstrap = DocumentBootstrap(scores, 999)  # a tenth
    assert time.process_time() - start < 6
    found = bootstrap.compare(1, 0)
    error = float((scores[:, 1] - scores[:, 0]).std()) / math.sqrt(70_000)
    assert found.interval == pytest.approx(
        (found.difference - 1.96 * error, found.difference + 1.96 * error), abs=0.3 * error
    )


P_VALUES = st.lists(st.floats(0, 1), max_size=12)


@given(P_VALUES)
def test_adjust_holm_naive_loop(p_values: list[float]) -> None:
    """Step down: each value times the number of those not yet rejected, never below the last."""
    expected, last = {}, 0.0
    for step, (value, place) in enumerate(sorted((p, i) for i, p in enumerate(p_values))):
        last = max(last, (len(p_values) - step) * value)
        expected[place] = min(1.0, last)
    assert adjust_holm(p_values) == [expected[place] for place in range(len(p_values))]


@settings(max_examples=10)  # each takes a tenth of a second
@given(P_VALUES.filter(bool))
def test_adjust_holm_statsmodels(p_values: list[float]) -> None:
    """As `multipletests` has it."""
    expected = multipletests(p_values, method="holm")[1]
    assert adjust_holm(p_values) == pytest.approx(expected.tolist())


def test_adjust_holm_values_are_probabilities() -> None:
    """One sentence for anything else, NaN too."""
    for wrong in (1.5, -0.1, math.nan):
        with pytest.raises(GraphError) as error:
            adjust_holm([0.5, wrong])
        assert str(error.value) == (
            f"p-values must be in 0..1, found [0.5, {wrong}]; leave out other ones."
        )


def test_correct_comparisons_counts_those_with_a_p_value() -> None:
    """.01 and .03 of two tests are .02 and .03; a third without a p-value stays without."""
    tests = {
        "a": Comparison(0.1, 5, 0.03),
        "b": Comparison(0.1, 2, None, "why"),
        "c": Comparison(0.1, 5, 0.01),
    }
    found = correct_comparisons(tests)
    assert [found[row].p_holm for row in "abc"] == [0.03, None, 0.02]
    assert [found[row].p_value for row in "abc"] == [0.03, None, 0.01]


@pytest.mark.parametrize(
    ("runs", "documents", "stars"),
    [
        (0.009, 0.009, "**"),
        (0.01, 0.001, "*"),
        (0.0001, 0.049, "*"),
        (0.05, 0.0001, ""),
        (0.0001, 0.05, ""),
        (None, 0.0001, ""),
        (0.0001, None, ""),
    ],
)
def test_find_stars_levels_are_strict(
    runs: float | None, documents: float | None, stars: str
) -> None:
    """Both corrected p-values must be below .05, or .01; what is not corrected does not count."""
    tests = [Comparison(0.1, 5, 1e-9, p_holm=p_holm) for p_holm in (runs, documents)]
    assert find_stars(*tests) == stars


def test_find_stars_tests_must_agree() -> None:
    """No star where one of the tests is missing, or they name different winners."""
    better, worse = (Comparison(sign * 0.1, 5, 0.001, p_holm=0.001) for sign in (1, -1))
    assert find_stars(better, better) == "**"
    assert find_stars(better, worse) == find_stars(better, None) == find_stars() == ""


def test_DocumentBootstrap_resamples_just_as_far_count() -> None:
    """The p-value counts resamples whose difference is exactly as large: half of two documents'."""
    bootstrap = DocumentBootstrap(torch.tensor([[1.0, 0.0], [0.0, 0.0]]), num_resamples=4_000)
    found = bootstrap.compare(0, 1)
    assert found.difference == 0.5
    assert found.p_value == pytest.approx(0.5, abs=0.03)
