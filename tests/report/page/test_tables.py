"""Numbers as pages show them."""

import pytest

from match_graph.report.page import fraction, seconds


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [(0.12345, 4, "0.1235"), (1.0, 3, "1.000"), (None, 4, "-"), (1e30, 4, "1e+30")],
)
def test_fraction(value: float | None, digits: int, text: str) -> None:
    """As metrics.json has it; nothing stands for what is missing but a dash."""
    assert fraction(value, digits) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.04, "0.0 s"), (59.94, "59.9 s"), (90, "2 min"), (3599, "1 h 0 min"), (9000, "2 h 30 min")],
)
def test_durations(value: float, text: str) -> None:
    """Seconds, minutes, hours."""
    assert seconds(value) == text
