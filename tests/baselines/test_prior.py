"""The label prior: training frequencies, smoothed, for every document."""

from pathlib import Path

import pytest
import torch

from match_graph.baselines import LabelPrior
from match_graph.errors import CheckpointError
from match_graph.graph import EgoBatch, TokenSpace

NONE = torch.empty(0, dtype=torch.int64)


def make_batch(*labels: list[int]) -> EgoBatch:
    ptr = torch.tensor([0, *map(len, labels)]).cumsum(0)
    index = torch.tensor([label for some in labels for label in some], dtype=torch.int64)
    empty = torch.zeros(len(labels) + 1, dtype=torch.int64)
    return EgoBatch(torch.arange(len(labels)), NONE, NONE, NONE, empty, ptr, index)


def test_LabelPrior_prior_is_the_smoothed_share_of_documents() -> None:
    """(count + 1/2) / (documents + 1), over batches, also of a label that is never seen."""
    prior = LabelPrior(TokenSpace((), ()), 3, LabelPrior.Config())
    prior.fit([make_batch([0, 1], [0]), make_batch([0], [])])
    probability = torch.sigmoid(prior.predict(make_batch([2], [])))
    expected = torch.tensor([3.5 / 5, 1.5 / 5, 0.5 / 5])
    assert torch.allclose(probability, expected.expand(2, 3))


def test_LabelPrior_of_other_labels_is_refused(tmp_path: Path) -> None:
    """The shape is named."""
    prior = LabelPrior(TokenSpace((), ()), 3, LabelPrior.Config())
    prior.fit([make_batch([0])])
    prior.save(tmp_path)
    other = LabelPrior(TokenSpace((), ()), 4, LabelPrior.Config())
    with pytest.raises(CheckpointError) as caught:
        other.load(tmp_path)
    assert str(caught.value) == (
        f"'{tmp_path / 'tensors.safetensors'}' must hold the tensors "
        f"{{'logit': [4, 'torch.float32']}} of this run's tokens and labels, found "
        f"{{'logit': [3, 'torch.float32']}}; fit the baseline again."
    )
