"""Percent escapes: only where needed, and back."""

import re

from hypothesis import given
from hypothesis import strategies as st

from match_graph.export.target import NOT_IN_TAXONOMY, NOT_IN_XML, escape_all, unescape

TEXTS = st.lists(st.text(max_size=8), max_size=6)


@given(TEXTS, st.sampled_from([NOT_IN_TAXONOMY, NOT_IN_XML]))
def test_escape_all_escapes_turn_back_and_are_safe(
    values: list[str], unsafe: re.Pattern[str]
) -> None:
    """Escapes are safe and make a round trip, or no value is changed."""
    escaped = escape_all(values, unsafe)
    if escaped is None:
        assert not any(unsafe.search(value) for value in values)
    else:
        assert not any(unsafe.search(value) for value in escaped)
        assert [unescape(value) for value in escaped] == values


def test_escape_all_only_what_is_unsafe_and_percent_sign_change() -> None:
    """Only unsafe characters and percent signs are escaped."""
    assert escape_all(["50% off", "naïve-李"], NOT_IN_TAXONOMY) == ["50%25%20off", "naïve-李"]
    assert escape_all(["50%", "naïve-李"], NOT_IN_TAXONOMY) is None


@given(st.text())
def test_NOT_IN_TAXONOMY_label_without_what_unsafe_one_word_line(value: str) -> None:
    """A label without unsafe characters is one word of `str.split`."""
    if value and not NOT_IN_TAXONOMY.search(value):
        assert f"a {value} b".split() == ["a", value, "b"]
