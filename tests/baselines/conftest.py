"""Batches of the small planted data set for baselines."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from match_graph.datasets import Synthetic
from match_graph.graph import EgoBatch, EgoLoader, EgoSampler
from match_graph.typing import MASKS, Split

#: (split, documents per batch, features) -> batches with gold labels.
Batches = Callable[..., list[EgoBatch]]


@pytest.fixture(scope="session")
def batches(synthetic: Synthetic) -> Batches:
    data, space = synthetic[0], synthetic.token_space()

    def make(split: Split, batch_size: int = 64, width: int = 0) -> list[EgoBatch]:
        loaded = EgoLoader(
            data, EgoSampler(data), space, synthetic.documents(MASKS[split]),
            synthetic.targets, batch_size=batch_size,
        )  # fmt: skip
        if not width:
            return list(loaded)
        generator = torch.Generator().manual_seed(0)
        rows = torch.randn(data["document"].num_nodes, width, generator=generator).half()
        rows[::7] = 0
        return [replace(batch, x=rows[batch.document]) for batch in loaded]

    return make
