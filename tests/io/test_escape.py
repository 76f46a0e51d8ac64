"""Texts of users: nothing that is printed steers a terminal, no cell is a formula."""

import io
import json

import pandas as pd
import pytest
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from match_graph.io.escape import (
    SafeConsole,
    escape_controls,
    escape_formulas,
    escape_markdown,
)

#: Clear the screen, set the title (OSC), the same by C1, right to left, a bell, half a pair.
EVIL = "a\x1b[2J\x1b]0;title\x07\x9b2J\u202eb\u2066\r\ud800[bold]:smile:[/x]"
SHOWN = r"a\u001b[2J\u001b]0;title\u0007\u009b2J\u202eb\u2066\u000d\ud800[bold]:smile:[/x]"


def test_escape_markdown_has_no_markup_left() -> None:
    """Markup is escaped, and the text is one line."""
    assert escape_markdown("a|b *c* <d>\n`e`") == r"a\|b \*c\* \<d\> \`e\`"


def test_escape_controls_shows_the_number() -> None:
    """Control characters are shown by number; text of any script, tabs and line feeds stay."""
    assert escape_controls(EVIL) == SHOWN
    plain = "Größe\tא 中文 ع\n½ naïve 👍"
    assert escape_controls(plain) == plain
    line = json.dumps({"id": "x\x1b\x9b\u202e\x7f"}, ensure_ascii=False)
    assert escape_controls(line) != line
    assert json.loads(escape_controls(line)) == json.loads(line)


@pytest.mark.parametrize("terminal", [False, True])
def test_SafeConsole_escapes_whatever_is_printed(terminal: bool) -> None:
    """Control characters are escaped in whatever is printed; on a terminal rich's own stay."""
    file = io.StringIO()
    console = SafeConsole(file=file, force_terminal=terminal, highlight=False, width=400)
    bad = EVIL.replace("\x07", "").replace("\r", "")  # rich drops these from texts
    console.print(bad)
    console.print(Text(bad, style="dim"))
    console.rule(Text(bad))
    table = Table(bad)
    table.add_row(bad)
    console.print(table)
    with Progress(console=console) as bar:
        bar.add_task(bad.replace("[/x]", ""), total=1)
    printed = file.getvalue()
    assert printed.count(r"\u001b[2J\u001b]0;title\u009b2J\u202eb\u2066\ud800[bold]") >= 3
    assert "\x1b[2J" not in printed
    assert "\x1b]" not in printed
    assert not {"\x9b", "\u202e", "\u2066", "\x07"} & {*printed}
    assert ("\x1b" in printed) == terminal


def test_escape_formulas_leaves_signs_alone() -> None:
    """Signs alone, such as marks of significance and dashes, are no formulas."""
    texts = ["+", "++", "-", "--"]
    assert [*escape_formulas(pd.DataFrame({"stars": texts}))["stars"]] == texts


def test_escape_formulas_leaves_numbers() -> None:
    """Strings and headings that start as a formula are escaped, numbers are not."""
    texts = ["=1+1", "+1", "-x", "@A1", "\tx", "\rx", "a=b", "", None, -0.5, 2]
    table = escape_formulas(pd.DataFrame({"=row": pd.Series(texts, dtype=object)}))
    assert [*table.columns] == ["'=row"]
    assert [*table["'=row"]] == [
        "'=1+1", "'+1", "'-x", "'@A1", "'\tx", "'\rx", "a=b", "", None, -0.5, 2,
    ]  # fmt: skip
