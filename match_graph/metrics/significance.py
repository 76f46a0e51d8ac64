"""Significance tests: paired by seed over runs, paired bootstrap over documents."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from match_graph.errors import GraphError

#: Stars by p-value, as in the tables of MATCH.
_LEVELS = (("**", 0.01), ("*", 0.05))
#: Differences that vary by less than this share of the largest do not vary but for rounding.
_ROUNDING = 1e-12
#: Resampled documents that exist at once.
_CHUNK_VALUES = 2**22


@dataclass(frozen=True)
class Comparison:
    """Comparison of a first model with a second.

    Args:
        difference: Mean of first minus second; above 0 the first is better.
        num_pairs: Number of paired runs, or documents.
        p_value: Two-tailed p-value; None where there is none.
        reason: Reason why there is no p-value, a clause; empty where there is one.
        interval: 95 % confidence interval of the difference; None where it is not computed.
    """

    difference: float
    num_pairs: int
    p_value: float | None
    reason: str = ""
    interval: tuple[float, float] | None = None

    @property
    def stars(self) -> str:
        """``**`` for p < 0.01, ``*`` for p < 0.05, else nothing."""
        if self.p_value is None:
            return ""
        return next((stars for stars, level in _LEVELS if self.p_value < level), "")


def compare_runs(first: Mapping[int, float], second: Mapping[int, float]) -> Comparison:
    """Two-tailed t-test over the runs of two models, paired by seed.

    Source: the two-tailed paired t-test of Tables 2 and 3 of MATCH, section 4.2 of
    https://arxiv.org/abs/2102.07349, over three runs; what pairs them is not said there and is the
    seed here. Computed by ``scipy.stats.ttest_rel``.

    Args:
        first: Measure of the first model by seed.
        second: Measure of the second model by seed, for the same seeds.

    Raises:
        GraphError: The seeds differ, there is none, or a measure is not finite.
    """
    from scipy.stats import ttest_rel

    if set(first) != set(second) or not first:
        raise GraphError(
            f"Runs must be paired by seed, found the seeds {sorted(first)} and {sorted(second)}; "
            f"give both models runs of the same seeds."
        )
    seeds = sorted(first)
    pair = np.array([[runs[seed] for seed in seeds] for runs in (first, second)], dtype=np.float64)
    number, difference, reason = _describe(pair, "run")
    if reason:
        return Comparison(difference, number, None, reason)
    return Comparison(difference, number, float(ttest_rel(*pair).pvalue))


def compare_documents(
    first: Tensor, second: Tensor, num_resamples: int = 9999, seed: int = 0
) -> Comparison:
    r"""Paired bootstrap test over documents of one pair of runs.

    .. math:: p = \frac{1 + \#\{b: |\delta_b - \delta| \ge |\delta|\}}{1 + \text{resamples}}

    where :math:`\delta` is the mean difference and :math:`\delta_b` that of a resample of the
    documents. The interval is that of percentiles.

    Source: Berg-Kirkpatrick, Burkett & Klein, EMNLP 2012, https://aclanthology.org/D12-1091;
    differs from it by two tails and by the 1 that keeps p above 0. Computed by
    ``scipy.stats.bootstrap``. It says nothing of other seeds; `compare_runs` does.

    Args:
        first: Score of the first run on each document, [D], floating point.
        second: Score of the second run on each of the same documents, [D], floating point.
        num_resamples: Number of bootstrap resamples.
        seed: Random seed of the resamples.

    Raises:
        GraphError: The shapes differ or are not [D], D is 0, or a score is not finite.
    """
    from scipy.stats import bootstrap

    if first.dim() != 1 or first.shape != second.shape or not first.numel():
        raise GraphError(
            f"Scores must be [D] of the same documents, found {list(first.shape)} and "
            f"{list(second.shape)}."
        )
    pair = torch.stack([first.double(), second.double()]).cpu().numpy()
    number, difference, reason = _describe(pair, "document")
    if reason:
        return Comparison(difference, number, None, reason)
    result = bootstrap(
        (pair[0] - pair[1],),  # resampling pairs is resampling their differences
        np.mean,
        n_resamples=num_resamples,
        batch=max(1, _CHUNK_VALUES // number),
        method="percentile",
        rng=np.random.default_rng(seed),
    )
    # rounding must not part a resample that equals the observed one
    least = abs(difference) * (1 - _ROUNDING)
    far = int((np.abs(result.bootstrap_distribution - difference) >= least).sum())
    interval = (float(result.confidence_interval.low), float(result.confidence_interval.high))
    p_value = (1 + far) / (1 + num_resamples)
    return Comparison(difference, number, p_value, interval=interval)


def _describe(pair: np.ndarray, unit: str) -> tuple[int, float, str]:
    """Number of pairs, mean difference, and why no test is possible ("" where one is)."""
    if not np.isfinite(pair).all():
        raise GraphError(f"The measure of every {unit} must be finite, found NaN or infinity.")
    values = pair[0] - pair[1]
    number, difference, reason = len(values), float(values.mean()), ""
    if number == 1:
        reason = f"there is one {unit} only"
    elif np.ptp(values) <= _ROUNDING * np.abs(pair).max():
        reason = f"the difference is the same for all {number} {unit}s"
    return number, difference, reason
