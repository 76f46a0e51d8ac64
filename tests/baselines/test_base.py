"""The base class of baselines leaves everything to subclasses."""

from pathlib import Path

import pytest
import torch

from match_graph.baselines import Baseline
from match_graph.graph import EgoBatch, TokenSpace

EMPTY = torch.empty(0, dtype=torch.int64)


def test_Baseline_base_class_computes_nothing() -> None:
    """Nothing is done silently; the defaults of the contract."""
    baseline = Baseline(TokenSpace(("word",), (4,)), 3, Baseline.Config())
    assert baseline.needs == frozenset({"tokens"})
    assert (baseline.num_labels, baseline.seed) == (3, 0)
    batch = EgoBatch(EMPTY, EMPTY, EMPTY, EMPTY, torch.zeros(1, dtype=torch.int64))
    for call in (
        lambda: baseline.fit([batch]),
        lambda: baseline.predict(batch),
        lambda: baseline.save(Path("x")),
        lambda: baseline.load(Path("x")),
    ):
        with pytest.raises(NotImplementedError):
            call()
