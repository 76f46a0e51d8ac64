"""Significance tests: t-test paired by seed, paired bootstrap over documents, Holm's correction."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor

from match_graph.errors import GraphError

#: Marks by p-value, as in the tables of MATCH.
LEVELS = (("**", 0.01), ("*", 0.05))
#: Fewest common seeds for which runs are compared; with fewer a t-test has little power.
FEWEST_SEEDS = 5
NUM_RESAMPLES = 9999
#: Differences below this share of the values are rounding.
_ROUNDING = 1e-12
#: Counts of resampled documents that exist at once, float64.
_CHUNK_VALUES = 2**23


@dataclass(frozen=True)
class Comparison:
    """Comparison of a first model with a second.

    Args:
        difference: Mean of first minus second; NaN without a pair.
        num_pairs: Number of paired runs, or documents.
        p_value: Two-tailed p-value; None where there is none.
        reason: Reason why there is no p-value, a clause; empty where there is one.
        interval: 95 % confidence interval of the difference; None where it is not computed.
        p_holm: p-value after Holm's correction over a table; None before it.
    """

    difference: float
    num_pairs: int
    p_value: float | None
    reason: str = ""
    interval: tuple[float, float] | None = None
    p_holm: float | None = None


def compare_runs(first: Mapping[int, float], second: Mapping[int, float]) -> Comparison:
    r"""Two-tailed t-test over the runs of two models, paired by seed; from five common seeds on.

    .. math:: t = \bar{d} \;/\; \sqrt{\frac{1}{n (n - 1)} \sum_i (d_i - \bar{d})^2}

    where :math:`d_i` is the difference of seed i; t has n - 1 degrees of freedom.

    Source: the two-tailed paired t-test of Tables 2 and 3 of MATCH, section 4.2 of
    https://arxiv.org/abs/2102.07349, over three runs; the paper does not say how runs are paired.
    Differs from it by the least number of runs. Computed by ``scipy.stats.ttest_rel``.

    Args:
        first: Measure of the first model by seed.
        second: Measure of the second model by seed; seeds that only one has are left out.

    Raises:
        GraphError: A measure is not finite.
    """
    from scipy.stats import ttest_rel

    seeds = sorted(first.keys() & second.keys())
    pair = np.array([[runs[seed] for seed in seeds] for runs in (first, second)], dtype=np.float64)
    if not np.isfinite(pair).all():
        raise GraphError("The measure of every run must be finite, found NaN or infinity.")
    number, values = len(seeds), pair[0] - pair[1]
    difference = float(values.mean()) if number else float("nan")
    if number < FEWEST_SEEDS:
        reason = f"it needs {FEWEST_SEEDS} common seeds and has {number}"
        return Comparison(difference, number, None, reason)
    if np.ptp(values) <= _ROUNDING * np.abs(pair).max():
        reason = f"the difference is the same for all {number} runs"
        return Comparison(difference, number, None, reason)
    return Comparison(difference, number, float(ttest_rel(*pair).pvalue))


class DocumentBootstrap:
    r"""Paired bootstrap over documents: the same resamples for all models and measures.

    .. math:: \bar{s}_{bk} = \frac{1}{D} \sum_d n_{bd} s_{dk}, \qquad
        n_b \sim \mathrm{Multinomial}(D; \tfrac{1}{D}, \ldots, \tfrac{1}{D})

    where :math:`s_{dk}` is the score of document d in column k, a measure of a model averaged over
    its seeds, and :math:`n_{bd}` how often resample b holds the document. The same seed gives the
    same resamples.

    Source: Berg-Kirkpatrick, Burkett & Klein, EMNLP 2012, https://aclanthology.org/D12-1091. It
    does not cover the variance between seeds; `compare_runs` does.

    Args:
        scores: Scores by document and column, [D, K], floating point.
        num_resamples: Number of resamples.
        seed: Random seed of the resamples.

    Raises:
        GraphError: The shape is not [D, K], it is empty, or a score is not finite.
    """

    def __init__(self, scores: Tensor, num_resamples: int = NUM_RESAMPLES, seed: int = 0) -> None:
        if scores.dim() != 2 or not scores.numel() or not bool(scores.isfinite().all()):
            raise GraphError(
                f"Scores must be finite and [documents, columns] with at least one of each, found "
                f"{list(scores.shape)} or NaN or infinity; leave out what has no score."
            )
        table = scores.double().cpu().numpy()
        self.num_documents = len(table)
        self.mean = table.mean(axis=0)  # [K]
        self.resampled = _resample_means(table, num_resamples, np.random.default_rng(seed))

    def find_interval(self, column: int) -> tuple[float, float] | None:
        """95 % interval of a column's mean by percentiles; None for a single document."""
        return self._find_interval(self.resampled[:, column])

    def compare(self, first: int, second: int) -> Comparison:
        r"""Two-tailed test of the difference of two columns, with its interval by percentiles.

        .. math:: p = \frac{1 + \#\{b: |\delta_b - \delta| \ge |\delta|\}}{1 + \text{resamples}}

        where :math:`\delta` is the mean difference and :math:`\delta_b` that of resample b.

        Source: Figure 1 of Berg-Kirkpatrick et al.; differs from it by two tails and by the 1 that
        keeps p above 0.

        Args:
            first: Column of the first model.
            second: Column of the second model.
        """
        resampled = self.resampled[:, first] - self.resampled[:, second]  # [num_resamples]
        difference = float(self.mean[first] - self.mean[second])
        interval, number = self._find_interval(resampled), self.num_documents
        rounding = _ROUNDING * float(np.abs(self.mean[[first, second]]).max())
        if number == 1:
            return Comparison(difference, number, None, "there is one document only")
        if np.ptp(resampled) <= rounding:
            reason = f"the difference is the same for all {number:,} documents"
            return Comparison(difference, number, None, reason, interval)
        # rounding must not part a resample that equals the observed one
        far = int((np.abs(resampled - difference) >= abs(difference) - rounding).sum())
        return Comparison(difference, number, (1 + far) / (1 + len(resampled)), interval=interval)

    def _find_interval(self, resampled: np.ndarray) -> tuple[float, float] | None:
        if self.num_documents == 1:
            return None
        low, high = np.percentile(resampled, [2.5, 97.5])
        return float(low), float(high)


def _resample_means(
    table: np.ndarray, num_resamples: int, generator: np.random.Generator
) -> np.ndarray:
    """Means of resampled documents, [num_resamples, K], by counts [b, D] times scores [D, K]."""
    number, columns = table.shape
    means = np.empty((num_resamples, columns))
    counts = np.empty((min(max(1, _CHUNK_VALUES // number), num_resamples), number))
    for start in range(0, num_resamples, len(counts)):
        chunk = counts[: num_resamples - start]  # [b, D]
        for row in chunk:
            row[:] = np.bincount(generator.integers(0, number, number), minlength=number)
        means[start : start + len(chunk)] = chunk @ table
    return means / number


def adjust_holm(p_values: Sequence[float]) -> list[float]:
    r"""p-values of several tests after Holm's correction, which bounds the chance of any false one.

    .. math:: \tilde{p}_{(i)} = \min\{1, \max_{j \le i} (m - j + 1)\, p_{(j)}\}

    for the sorted values :math:`p_{(1)} \le \ldots \le p_{(m)}`.

    Source: S. Holm, A Simple Sequentially Rejective Multiple Test Procedure, Scandinavian Journal
    of Statistics 6, 1979, https://www.jstor.org/stable/4615733.

    Raises:
        GraphError: A value is not in 0..1.
    """
    values = np.asarray(p_values, dtype=np.float64)  # [m]
    if not ((values >= 0) & (values <= 1)).all():
        raise GraphError(f"p-values must be in 0..1, found {list(p_values)}; leave out other ones.")
    order = np.argsort(values, kind="stable")
    steps = np.arange(len(values), 0, -1) * values[order]
    adjusted = np.empty_like(values)
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return adjusted.tolist()


def correct_comparisons(tests: Mapping[str, Comparison]) -> dict[str, Comparison]:
    """Comparisons with `adjust_holm` over those of them that have a p-value."""
    p_values = {row: test.p_value for row, test in tests.items() if test.p_value is not None}
    adjusted = dict(zip(p_values, adjust_holm([*p_values.values()]), strict=True))
    return {row: replace(test, p_holm=adjusted.get(row)) for row, test in tests.items()}


def find_stars(*tests: Comparison | None) -> str:
    """``**`` or ``*`` if every test's corrected p-value is below .01 or .05, and all agree.

    No star without one of the tests, or if one says better and another one worse.
    """
    corrected = [test.p_holm for test in tests if test is not None and test.p_holm is not None]
    sides = {test.difference > 0 for test in tests if test is not None}
    if not tests or len(corrected) < len(tests) or len(sides) > 1:
        return ""
    return next((stars for stars, level in LEVELS if max(corrected) < level), "")
