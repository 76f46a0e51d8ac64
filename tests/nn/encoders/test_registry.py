"""Every registered encoder keeps the contract."""

from typing import Any

import pytest

from match_graph.nn import ENCODERS
from match_graph.testing import assert_encoder

#: Arguments of `assert_encoder` for each registered encoder, small to be fast.
CASES: dict[str, list[dict[str, Any]]] = {
    "match": [
        {"config": {"num_cls": 2, "num_layers": 2, "position_channels": 4}},
        {"config": {"num_cls": 1, "num_layers": 1, "num_heads": 1}, "channels": 7},
    ],
}


def test_every_registered_encoder_is_tested() -> None:
    """Fails when an encoder is registered and not named above."""
    assert set(CASES) == set(ENCODERS)
    assert all(CASES.values())


@pytest.mark.parametrize(
    ("name", "arguments"), [(name, case) for name, cases in CASES.items() for case in cases]
)
def test_registered_encoders_keep_the_contract(name: str, arguments: dict[str, Any]) -> None:
    """Shapes, independence, gradients, reset, saving; see `assert_encoder`."""
    assert_encoder(ENCODERS[name], **arguments)


@pytest.mark.parametrize("name", sorted(ENCODERS))
def test_registered_encoders_have_defaults(name: str) -> None:
    """A name alone is enough: every setting has a default."""
    assert_encoder(ENCODERS[name])
