"""Text -> words, by one regular expression that is saved with every run."""

import re
from typing import Literal, TypeAlias

Tokenizer: TypeAlias = Literal["regex", "whitespace"]

#: Lower-cased words; an inner `+#.-` stays, so that `c++`, `f#`, `node.js` and `x-ray` are words.
WORD_PATTERN = r"[a-z0-9][a-z0-9+#.-]*[a-z0-9+#]|[a-z0-9]"

_find_words = re.compile(WORD_PATTERN).findall


def split_words(text: str, tokenizer: Tokenizer = "regex") -> list[str]:
    """The words of a text in order.

    Args:
        text: Any text, also empty.
        tokenizer: "regex" lower-cases and matches ``WORD_PATTERN``; "whitespace" takes the text as
            tokenised already and splits at white space, keeping case.
    """
    if tokenizer == "whitespace":
        return text.split()
    return _find_words(text.lower())
