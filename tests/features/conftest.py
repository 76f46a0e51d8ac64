"""A graph of 400 documents, and vectors of its documents."""

from pathlib import Path

import numpy as np
import pytest

from match_graph.datasets import Synthetic


@pytest.fixture(scope="module")
def ids(synthetic: Synthetic) -> list[str]:
    """Ids of the documents."""
    return synthetic.names("document").tolist()


@pytest.fixture(scope="module")
def vectors(ids: list[str]) -> np.ndarray:
    """Vectors of the documents, [400, 5], float32."""
    return np.random.default_rng(0).normal(size=(len(ids), 5)).astype(np.float32)


@pytest.fixture
def home(match_graph_home: Path) -> Path:
    """The default root."""
    return match_graph_home
