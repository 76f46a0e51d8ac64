"""The paired t-test and the paired bootstrap against hand computations."""

import itertools
import math

import pytest
import torch

from match_graph.errors import GraphError
from match_graph.metrics import Comparison, compare_documents, compare_runs


def test_compare_runs_t_test_by_hand() -> None:
    """Differences .01, .02, .03: mean .02, deviation .01, t = .02 / (.01 / sqrt 3) = 2 sqrt 3.

    With two degrees of freedom p = 1 - t / sqrt(t^2 + 2) = 1 - sqrt(12 / 14).
    """
    first = {0: 0.51, 1: 0.62, 2: 0.73}
    second = {2: 0.70, 0: 0.50, 1: 0.60}  # paired by seed, not by order
    found = compare_runs(first, second)
    assert found.difference == pytest.approx(0.02)
    assert found.num_pairs == 3
    assert found.p_value == pytest.approx(1 - math.sqrt(12 / 14))
    assert (found.stars, found.reason) == ("", "")
    assert compare_runs(second, first).p_value == pytest.approx(found.p_value)


@pytest.mark.parametrize(
    ("t", "stars"), [(4.2, ""), (4.4, "*"), (9.8, "*"), (10.1, "**"), (-4.4, "*"), (-10.1, "**")]
)
def test_compare_runs_stars_by_the_table_of_t(t: float, stars: str) -> None:
    """Two degrees of freedom: 4.303 is the two-tailed 5 % point, 9.925 the 1 % point."""
    values = [t / math.sqrt(3) + shift for shift in (-1.0, 0.0, 1.0)]
    found = compare_runs(dict(enumerate(values)), dict.fromkeys(range(3), 0.0))
    assert found.stars == stars


@pytest.mark.parametrize(
    ("p_value", "stars"), [(0.05, ""), (0.0499, "*"), (0.01, "*"), (0.0099, "**"), (None, "")]
)
def test_Comparison_levels_are_strict(p_value: float | None, stars: str) -> None:
    """p < 0.05 and p < 0.01."""
    assert Comparison(0.1, 3, p_value).stars == stars


@pytest.mark.parametrize(
    ("first", "second", "reason"),
    [
        ({0: 0.5}, {0: 0.4}, "there is one run only"),
        (
            {0: 0.3, 1: 0.4, 2: 0.5},
            {0: 0.2, 1: 0.3, 2: 0.4},  # equal but for rounding
            "the difference is the same for all 3 runs",
        ),
        ({0: 0.3, 1: 0.4}, {0: 0.3, 1: 0.4}, "the difference is the same for all 2 runs"),
    ],
)
def test_compare_runs_no_star_and_why(
    first: dict[int, float], second: dict[int, float], reason: str
) -> None:
    """One run, and differences without variance."""
    found = compare_runs(first, second)
    assert found.p_value is None
    assert (found.stars, found.reason) == ("", reason)
    assert found.difference == pytest.approx(first[0] - second[0])


def test_compare_runs_of_other_seeds_are_an_error() -> None:
    """Also no run at all."""
    with pytest.raises(GraphError) as error:
        compare_runs({0: 0.5, 1: 0.5}, {0: 0.5, 2: 0.5})
    assert str(error.value) == (
        "Runs must be paired by seed, found the seeds [0, 1] and [0, 2]; "
        "give both models runs of the same seeds."
    )
    with pytest.raises(GraphError):
        compare_runs({}, {})


def test_compare_runs_measure_that_is_not_finite_is_an_error() -> None:
    """A failed run must not become a comparison."""
    with pytest.raises(GraphError) as error:
        compare_runs({0: 0.5, 1: math.nan}, {0: 0.5, 1: 0.4})
    assert str(error.value) == "The measure of every run must be finite, found NaN or infinity."


def test_compare_documents_bootstrap_against_all_resamples() -> None:
    """Four documents: the share of all 4^4 resamples whose mean is as far from the observed."""
    first, second = [0.9, 0.5, 0.7, 0.2], [0.4, 0.6, 0.3, 0.1]
    differences = [a - b for a, b in zip(first, second, strict=True)]
    mean = sum(differences) / 4
    means = [sum(some) / 4 for some in itertools.product(differences, repeat=4)]
    share = sum(abs(value - mean) >= abs(mean) - 1e-12 for value in means) / len(means)
    found = compare_documents(torch.tensor(first).double(), torch.tensor(second).double())
    assert found.difference == pytest.approx(mean)
    assert found.num_pairs == 4
    assert found.p_value == pytest.approx(share, abs=0.01)
    means.sort()
    assert found.interval is not None
    assert found.interval[0] == pytest.approx(means[6], abs=0.03)  # 2.5 % of 256
    assert found.interval[1] == pytest.approx(means[-7], abs=0.03)


def test_compare_documents_many_documents_resampled_chunks(monkeypatch) -> None:
    """Many documents are resampled in chunks as the normal law says.

    1,000 documents: the interval is mean plus or minus 1.96 standard errors; a seed repeats.
    """
    generator = torch.Generator().manual_seed(0)
    first = torch.rand(1000, generator=generator, dtype=torch.float64)
    second = first - 0.1 + 0.5 * torch.randn(1000, generator=generator, dtype=torch.float64)
    monkeypatch.setattr("match_graph.metrics.significance._CHUNK_VALUES", 300_000)
    found = compare_documents(first, second, num_resamples=1999, seed=3)
    error = float((first - second).std()) / math.sqrt(1000)
    assert found.interval == pytest.approx(
        (found.difference - 1.96 * error, found.difference + 1.96 * error), abs=0.15 * error
    )
    assert found.p_value == 1 / 2000  # none is as far
    assert found.stars == "**"
    assert compare_documents(first, second, num_resamples=1999, seed=3) == found


def test_compare_documents_bootstrap_without_variance_documents() -> None:
    """The reasons of `compare_runs`, and one sentence for shapes."""
    scores = torch.tensor([0.0, 0.5, 1.0])
    same = compare_documents(scores, scores)
    assert (same.p_value, same.interval) == (None, None)
    assert same.reason == "the difference is the same for all 3 documents"
    assert compare_documents(scores[:1], scores[1:2]).reason == "there is one document only"
    with pytest.raises(GraphError) as error:
        compare_documents(scores, scores[:2])
    assert str(error.value) == "Scores must be [D] of the same documents, found [3] and [2]."
