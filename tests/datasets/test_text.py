"""Text -> words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from match_graph.datasets import split_words
from match_graph.datasets.text import WORD_PATTERN

ALNUM = set("abcdefghijklmnopqrstuvwxyz0123456789")


def naive_words(text: str) -> list[str]:
    """A character at a time: the longest run that starts alphanumeric and ends so, or in + or #."""
    text, words, start = text.lower(), [], 0
    while start < len(text):
        if text[start] not in ALNUM:
            start += 1
            continue
        end = start + 1
        while end < len(text) and text[end] in ALNUM | set("+#.-"):
            end += 1
        while end > start + 1 and text[end - 1] in ".-":
            end -= 1
        words.append(text[start:end])
        start = end
    return words


@given(st.text(alphabet="abZ09+#.- ,é\n", max_size=30) | st.text(max_size=30))
def test_split_words_equals_a_scan_by_character(text: str) -> None:
    """The regular expression finds what a character loop finds."""
    assert split_words(text) == naive_words(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", []),
        ("...", []),
        ("C++ and F# in Node.js.", ["c++", "and", "f#", "in", "node.js"]),
        ("X-rays, e.g. naïve", ["x-rays", "e.g", "na", "ve"]),
        ("a A", ["a", "a"]),
    ],
)
def test_split_words_on_examples(text: str, words: list[str]) -> None:
    """Names of languages and inner hyphens stay, case and final stops go."""
    assert split_words(text) == words


def test_split_words_whitespace_keeps_tokens_as_they_are() -> None:
    """Text that is tokenised already is only split."""
    assert split_words(" Über  [SEP]\tC++ .\n", "whitespace") == ["Über", "[SEP]", "C++", "."]


def test_WORD_PATTERN_pattern_is_the_one_of_the_design() -> None:
    """The pattern is saved with runs, so changing it breaks them."""
    assert WORD_PATTERN == r"[a-z0-9][a-z0-9+#.-]*[a-z0-9+#]|[a-z0-9]"
