"""The base class of heads, and the prior that they share."""

import math

import pytest
import torch

from match_graph.nn import EncoderOutput, Head
from match_graph.nn.heads.base import prior_log_odds


def test_Head_base_class_leaves_everything_to_subclasses() -> None:
    """Nothing is computed silently; a head that knows no prior goes without."""
    head = Head(2, 3, Head.Config())
    with pytest.raises(NotImplementedError):
        _ = head.label_weight
    with pytest.raises(NotImplementedError):
        head.reset_parameters()
    with pytest.raises(NotImplementedError):
        head(EncoderOutput(torch.zeros(1, 2), None, torch.arange(2)))
    head.set_prior(torch.tensor([1, 2, 3]), 3)
    assert list(head.parameters()) == []


def test_prior_log_odds_are_finite_for_labels_on_none_and_on_all() -> None:
    """log(p / (1 - p)) with half a document added."""
    found = prior_log_odds(torch.tensor([0, 3, 10]), 10)
    expected = [math.log((count + 0.5) / (10.5 - count)) for count in (0, 3, 10)]
    assert found.tolist() == pytest.approx(expected, abs=1e-12)
