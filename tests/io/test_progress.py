"""Progress: plain lines where there is no terminal, nothing when quiet."""

import re

import pytest

from match_graph.io.progress import Reporter, format_seconds


def test_Reporter_plain_lines_carry_rate_and_time_left(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a terminal, a line says how far, how fast, how long."""
    reporter = Reporter(seconds=0.0)
    with reporter.track("train", 1000, "documents") as advance:
        advance(500, "loss 1.0")
    printed = capsys.readouterr().err
    assert printed.startswith("train: 500 of 1,000 documents (")
    assert "s left) loss 1.0" in printed
    with reporter.track("fetch a.zip", 0, "MB") as advance:
        advance(5, "")
    assert re.fullmatch(r"fetch a\.zip: 5 MB \([\d,]+/s\) \n", capsys.readouterr().err)


def test_Reporter_quiet_prints_only_warnings(capsys: pytest.CaptureFixture[str]) -> None:
    """A quiet reporter prints neither lines nor progress."""
    reporter = Reporter(quiet=True)
    reporter.line("x")
    with reporter.track("train", 10, "documents") as advance:
        advance(5, "")
    assert capsys.readouterr().err == ""
    reporter.warn("[the] loss")
    assert capsys.readouterr().err == "warning: [the] loss\n"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.04, "0.0 s"), (9.94, "9.9 s"), (9.96, "10 s"), (89.4, "89 s"), (90, "2 min"),
        (600, "10 min"), (5399, "90 min"), (9000, "2.5 h"), (86400 * 3, "3.0 days"),
    ],
)  # fmt: skip
def test_format_seconds(seconds: float, text: str) -> None:
    """Durations have two digits, in seconds, minutes, hours or days."""
    assert format_seconds(seconds) == text


def test_make_bar_terminal_gets_a_bar_with_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal the bar shows the count, the unit, the rate and the text."""
    from io import StringIO

    from rich.console import Console

    from match_graph.io import progress

    output = StringIO()
    console = Console(file=output, force_terminal=True, width=200)
    with progress._make_bar(console, "pairs") as bar:
        task = bar.add_task("pretrain", total=100, detail="")
        bar.update(task, completed=50, detail="loss 0.5")
    shown = output.getvalue()
    assert all(part in shown for part in ("pretrain", "50/100", "pairs", "loss 0.5"))
