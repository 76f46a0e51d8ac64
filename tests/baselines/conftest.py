"""Batches of the small planted data set for baselines."""

from collections.abc import Callable

import pytest

from match_graph.datasets import Synthetic
from match_graph.graph import EgoBatch, EgoLoader, EgoSampler
from match_graph.typing import MASKS, Split

#: (split, documents per batch) -> batches with gold labels.
Batches = Callable[..., list[EgoBatch]]


@pytest.fixture(scope="session")
def batches(synthetic: Synthetic) -> Batches:
    data, space = synthetic[0], synthetic.token_space()

    def make(split: Split, batch_size: int = 64) -> list[EgoBatch]:
        return list(
            EgoLoader(
                data, EgoSampler(data), space, synthetic.documents(MASKS[split]),
                synthetic.targets, batch_size=batch_size,
            )
        )  # fmt: skip

    return make
