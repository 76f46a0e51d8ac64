"""Progress bars on a terminal, plain lines elsewhere."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from match_graph.io.escape import SafeConsole
from match_graph.io.source import Advance


class Reporter:
    """Reporter of messages and progress on standard error.

    Args:
        quiet: Whether to print nothing but warnings.
        seconds: Seconds between two lines of progress without a terminal.
    """

    def __init__(self, quiet: bool = False, seconds: float = 20.0) -> None:
        self.console = SafeConsole(stderr=True, highlight=False, soft_wrap=True)
        self.quiet, self.seconds = quiet, seconds

    def line(self, text: str) -> None:
        """Prints a line."""
        if not self.quiet:
            self.console.print(text)

    def warn(self, text: str) -> None:
        """Prints a warning, also when quiet."""
        self.console.print(f"warning: {text}")

    @contextmanager
    def track(self, name: str, total: int, unit: str) -> Iterator[Advance]:
        """Tracks the progress of a long operation; yields the callback for its updates."""
        if self.quiet:
            yield lambda _done, _text: None
        elif self.console.is_terminal and sys.stderr.isatty():
            with _make_bar(self.console, unit) as bar:
                task = bar.add_task(name, total=total or None, detail="")
                yield lambda done, text: bar.update(task, completed=done, detail=text)
        else:
            yield self._plain(name, total, unit)

    def _plain(self, name: str, total: int, unit: str) -> Advance:
        start = last = time.monotonic()

        def advance(done: int, text: str) -> None:
            nonlocal last
            now = time.monotonic()
            if now - last < self.seconds:
                return
            last = now
            rate = done / max(now - start, 1e-9)
            left = f", {(total - done) / max(rate, 1e-9):,.0f} s left" if total else ""
            share = f"{done:,} of {total:,}" if total else f"{done:,}"
            self.line(f"{name}: {share} {unit} ({rate:,.0f}/s{left}) {text}")

        return advance


def format_seconds(seconds: float) -> str:
    """Formats a duration in its largest unit."""
    minutes, hours = seconds / 60, seconds / 3600
    if seconds < 90:
        return f"{seconds:.{int(seconds < 9.95)}f} s"
    if minutes < 90:
        return f"{minutes:.0f} min"
    return f"{hours:.1f} h" if hours < 48 else f"{hours / 24:.1f} days"


class _RateColumn(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(f"{task.speed:,.0f}/s" if task.speed else "")


def _make_bar(console: Console, unit: str) -> Progress:
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit, markup=False),
        _RateColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[detail]}", markup=False),
        console=console,
        transient=True,
    )
