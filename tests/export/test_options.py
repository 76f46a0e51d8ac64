"""Words of a user -> options; every wrong one is named."""

import pytest

from match_graph.errors import ConfigError
from match_graph.export import ExportOptions, parse_options


def test_ExportOptions_defaults_cannot_leak() -> None:
    """Gold labels of training documents, nothing else."""
    options = ExportOptions()
    assert (options.features, options.include_labels, options.text) == ("none", "train", None)
    assert parse_options(features="ids", include_labels="all", text=None).features == "ids"


def test_parse_options_all_wrong_words_at_once() -> None:
    """With the choices."""
    with pytest.raises(ConfigError) as caught:
        parse_options(features="x", include_labels="test", text=None)
    assert str(caught.value).splitlines() == [
        "The options of an export must be valid, but 2 faults were found:",
        "  'features': Input should be 'none', 'ids' or 'pretrained', found 'x'.",
        "  'include_labels': Input should be 'none', 'train' or 'all', found 'test'.",
    ]
