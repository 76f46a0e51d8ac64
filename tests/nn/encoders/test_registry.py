"""Every registered encoder keeps the contract."""

from pathlib import Path
from typing import Any

import pytest

from match_graph.nn import ENCODERS
from match_graph.testing import assert_encoder

#: Arguments of `assert_encoder` for each registered encoder, small to be fast.
CASES: dict[str, list[dict[str, Any]]] = {
    "attention_xml": [
        {"config": {"hidden_channels": 5}},
        {"config": {"hidden_channels": 3, "num_layers": 2, "metadata": True}, "channels": 7},
    ],
    "bert_xml": [
        {"config": {"num_cls": 2, "num_layers": 1, "hidden_channels": 8, "max_positions": 3}},
        {"config": {"num_cls": 1, "num_heads": 1, "metadata": True}, "channels": 7},
    ],
    "match": [
        {"config": {"num_cls": 2, "num_layers": 2, "position_channels": 4}},
        {"config": {"num_cls": 1, "num_layers": 1, "num_heads": 1}, "channels": 7},
    ],
    "mesh_probe_net": [
        {"config": {"rnn": "gru", "hidden_channels": 5, "num_probes": 2, "num_layers": 2}},
        {"config": {"hidden_channels": 4, "num_probes": 1, "metadata": True}, "channels": 7},
    ],
    "star_transformer": [
        {"config": {"num_cycles": 1, "num_heads": 3}},
        {"config": {"num_cycles": 3, "num_heads": 1, "metadata": True}, "channels": 7},
    ],
    "transformer": [
        {"config": {"num_layers": 1, "num_heads": 3, "hidden_channels": 5}},
        {"config": {"num_heads": 1, "metadata": True}, "channels": 7},
    ],
    "xml_cnn": [
        {"config": {"widths": [1, 3], "num_filters": 4, "num_chunks": 2, "bottleneck": 6}},
        {"config": {"widths": [5], "num_chunks": 3, "metadata": True}, "channels": 7},
    ],
}
#: What has no default checkpoint, to be downloaded unasked; its own test runs `assert_encoder`.
ELSEWHERE = {"language_model": "test_language_model.py"}


def test_every_registered_encoder_is_tested() -> None:
    """Fails when an encoder is registered and not named above."""
    assert set(CASES) | set(ELSEWHERE) == set(ENCODERS)
    assert all(CASES.values())
    for name in ELSEWHERE.values():
        assert "assert_encoder(" in (Path(__file__).parent / name).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "arguments"), [(name, case) for name, cases in CASES.items() for case in cases]
)
def test_registered_encoders_keep_the_contract(name: str, arguments: dict[str, Any]) -> None:
    """Shapes, independence, gradients, reset, saving; see `assert_encoder`."""
    assert_encoder(ENCODERS[name], **arguments)


@pytest.mark.parametrize("name", sorted(CASES))
def test_registered_encoders_have_defaults(name: str) -> None:
    """A name alone is enough: every setting has a default."""
    assert_encoder(ENCODERS[name])
