"""Settings derived from the corpus."""

import pytest

from match_graph.config import load_config
from match_graph.datasets import Synthetic
from match_graph.errors import ConfigError
from match_graph.runs import defaults
from match_graph.runs.defaults import (
    derive_batch_size,
    derive_epochs,
    derive_samples,
    derive_valid_documents,
    resolve_config,
)


def test_what_is_given_stays_and_what_is_not_is_filled_in(synthetic: Synthetic) -> None:
    """Given epochs stay; samples and batch size are numbers afterwards."""
    config = resolve_config(load_config(None, ["train.epochs=3"]), synthetic)
    assert config.train.epochs == 3
    assert config.pretrain.samples == 1_000_000
    assert config.train.batch_size == derive_batch_size(320)
    assert config.train.valid_documents == 40


@pytest.mark.parametrize(
    "derive",
    [
        derive_batch_size,
        lambda n: -derive_epochs(n, True),
        lambda n: -derive_epochs(n, False),
        derive_samples,
    ],
)
def test_derived_values_are_monotone_in_size(derive) -> None:
    """Larger corpora never get smaller batches, more epochs or fewer pairs."""
    values = [derive(number) for number in (200, 1_000, 5_000, 20_000, 100_000, 1_000_000)]
    assert values == sorted(values)


def test_batches_reach_the_size_of_the_paper() -> None:
    """256 documents at the size of MAG-CS, 16 at the least."""
    assert derive_batch_size(564_340) == 256
    assert derive_batch_size(1) == 16


def test_validation_is_a_sample_where_it_would_cost_much() -> None:
    """Everything in small corpora, 10,000 documents at the size of MAG-CS."""
    assert [derive_valid_documents(number) for number in (0, 2_976, 70_534)] == [1, 2_976, 10_000]


def test_the_head_is_named(synthetic: Synthetic) -> None:
    """The one that fits the encoder, unless it is given; so that config.yaml says which it was."""
    for settings, head in (
        ([], "linear"),
        (["model.encoder=attention_xml"], "label_attention"),
        (["model.encoder=attention_xml", "model.head=linear"], "linear"),
    ):
        assert resolve_config(load_config(None, settings), synthetic).model.head == head


def test_an_unknown_encoder_is_an_error(synthetic: Synthetic) -> None:
    """Its head cannot be chosen."""
    with pytest.raises(ConfigError, match=r"The encoder must be one of \['attention_xml', "):
        resolve_config(load_config(None, ["model.encoder=attention"]), synthetic)


def test_a_wide_term_is_there_where_its_weights_fit(synthetic: Synthetic, monkeypatch) -> None:
    """By the number of kept tokens and labels, unless it is said; it shortens the training."""
    size = synthetic.token_space().num_tokens * synthetic.num_labels
    for limit, expected in ((size, True), (size - 1, False)):
        monkeypatch.setattr(defaults, "MAX_WIDE", limit)
        config = resolve_config(load_config(), synthetic)
        assert config.model.wide is expected
        assert config.train.epochs == defaults.derive_epochs(320, expected)
    assert resolve_config(load_config(None, ["model.wide=true"]), synthetic).model.wide is True


def test_a_label_tree_refuses_hypernymy_in_the_output_space(synthetic: Synthetic) -> None:
    """Where it is asked for; the default gives way, and a given 0 stays."""
    tree = ["model.encoder=attention_xml", "model.head_config={flat_labels: 10, cluster_size: 4}"]
    assert resolve_config(load_config(None, tree), synthetic).train.lambda_output == 0
    given = load_config(None, [*tree, "train.lambda_output=0"])
    assert resolve_config(given, synthetic).train.lambda_output == 0
    with pytest.raises(ConfigError) as caught:
        resolve_config(load_config(None, [*tree, "train.lambda_output=0.5"]), synthetic)
    assert str(caught.value) == (
        "A label tree learns probabilities given the parent, so that hypernymy in the output space "
        "has no meaning there, but train.lambda_output is 0.5; leave it out, or raise flat_labels "
        f"of model.head_config above {synthetic.num_labels}."
    )
