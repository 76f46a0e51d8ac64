"""Work in a process of its own."""

import os

import pytest
import torch

from match_graph.errors import ConfigError, MatchGraphError
from match_graph.export import find_target
from match_graph.speed.alone import measure_both, run_alone


def test_run_alone_is_another_process() -> None:
    """The function runs in a process of another id, and its result is returned."""
    assert run_alone(os.getpid) != os.getpid()


@pytest.mark.slow
def test_run_alone_error_comes_back() -> None:
    """An exception of the function is raised in the caller, with its type."""
    with pytest.raises(ConfigError, match="An export target must be one of"):
        run_alone(find_target, "dgl")


def test_run_alone_process_that_is_killed_is_one_sentence() -> None:
    """A killed process, as when memory runs out, is a MatchGraphError."""
    with pytest.raises(MatchGraphError) as caught:
        run_alone(os._exit, 1)
    assert str(caught.value) == (
        "A measured process must come to its end, but it was ended from outside, as happens where "
        "memory runs out; choose a smaller data set."
    )


def test_measure_both_memory_is_that_of_ours() -> None:
    """Memory of the baseline does not count in the peak."""
    kept = []

    def ours() -> int:
        kept.append(torch.ones(2**22))  # 16 MiB
        return 1

    def baseline() -> int:
        kept.append(torch.ones(2**25))
        kept.pop()
        return 1

    measured = measure_both(ours, "theirs", baseline, 1e-9)
    assert set(measured.rates.per_second) == {"ours", "theirs"}
    assert measured.peak_mib is None or 8 < measured.peak_mib < 100
