"""Numbers as pages show them."""

import pytest

from match_graph.benchmark.page import percent, seconds


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [(0.12345, 2, "12.35"), (1.0, 1, "100.0"), (0.0, 2, "0.00"), (None, 2, "-")],
)
def test_fractions_in_percent(value: float | None, digits: int, text: str) -> None:
    """Without the sign; nothing stands for what is missing but a dash."""
    assert percent(value, digits) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.04, "0.0 s"), (59.94, "59.9 s"), (90, "2 min"), (3599, "1 h 0 min"), (9000, "2 h 30 min")],
)
def test_durations(value: float, text: str) -> None:
    """Seconds, minutes, hours."""
    assert seconds(value) == text
