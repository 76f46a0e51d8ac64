"""Escaping of untrusted text for terminals, spreadsheets and Markdown."""

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

if TYPE_CHECKING:
    import pandas as pd

#: Control characters but tab and line feed (C0, DEL, C1); marks of bidirectional formatting
#: (Unicode 16, 9.2); line separators; lone surrogates, which no encoding has.
_CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)

#: First characters of a cell that spreadsheets run as a formula. Source: OWASP, CSV injection,
#: https://owasp.org/www-community/attacks/CSV_Injection.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>|#~$!&])")


def escape_markdown(text: str) -> str:
    """Escapes text for Markdown, also in table cells."""
    return _MARKDOWN.sub(r"\\\1", " ".join(text.split()))


def escape_controls(text: str) -> str:
    r"""Escapes control characters for a terminal: ``\u001b`` for ESC, as in JSON."""
    return _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


class SafeConsole(Console):
    """Rich console without markup, with control characters escaped."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, **options)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Renders segments with escaped text; rich's own control codes pass."""
        for segment in super().render(renderable, options):
            if segment.control or not _CONTROLS.search(segment.text):
                yield segment
            else:
                yield Segment(escape_controls(segment.text), segment.style)


def escape_formulas(table: "pd.DataFrame") -> "pd.DataFrame":
    """Escapes spreadsheet formulas by a leading apostrophe; a lone sign is none."""

    def escape(value: Any) -> Any:
        is_formula = isinstance(value, str) and value.startswith(_FORMULA) and value.strip("+-")
        return f"'{value}" if is_formula else value

    return table.map(escape).rename(columns=escape)
