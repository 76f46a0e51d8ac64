"""Settings derived from the corpus."""

import pytest

from match_graph.config import load_config
from match_graph.datasets import Synthetic
from match_graph.training.defaults import (
    derive_batch_size,
    derive_epochs,
    derive_samples,
    resolve_config,
)


def test_what_is_given_stays_and_what_is_not_is_filled_in(synthetic: Synthetic) -> None:
    """Given epochs stay; samples and batch size are numbers afterwards."""
    config = resolve_config(load_config(None, ["train.epochs=3"]), synthetic)
    assert config.train.epochs == 3
    assert config.pretrain.samples == 1_000_000
    assert config.train.batch_size == derive_batch_size(320)


@pytest.mark.parametrize("derive", [derive_batch_size, lambda n: -derive_epochs(n), derive_samples])
def test_derived_values_are_monotone_in_size(derive) -> None:
    """Larger corpora never get smaller batches, more epochs or fewer pairs."""
    values = [derive(number) for number in (200, 1_000, 5_000, 20_000, 100_000, 1_000_000)]
    assert values == sorted(values)


def test_batches_reach_the_size_of_the_paper() -> None:
    """256 documents at the size of MAG-CS, 16 at the least."""
    assert derive_batch_size(564_340) == 256
    assert derive_batch_size(1) == 16
