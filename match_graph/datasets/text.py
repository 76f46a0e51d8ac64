"""Tokenization by one regular expression that is saved with every run."""

import re
from typing import Literal, TypeAlias

Tokenizer: TypeAlias = Literal["regex", "whitespace"]

#: Lower-cased words; an inner `+#.-` stays, so that `c++`, `f#`, `node.js` and `x-ray` are words.
WORD_PATTERN = r"[a-z0-9][a-z0-9+#.-]*[a-z0-9+#]|[a-z0-9]"


def split_words(
    text: str, tokenizer: Tokenizer = "regex", pattern: str = WORD_PATTERN
) -> list[str]:
    """Splits a text into words, in order.

    Args:
        text: Text, may be empty.
        tokenizer: Text tokenization: "regex" lower-cases and matches the pattern; "whitespace"
            takes the text as tokenised already and splits at white space, keeping case.
        pattern: Regular expression of a word; a run keeps its own.
    """
    if tokenizer == "whitespace":
        return text.split()
    return re.findall(pattern, text.lower())
