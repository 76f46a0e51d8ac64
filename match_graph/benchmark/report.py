"""One HTML file of a run or a benchmark, to be looked at and sent around."""

from collections.abc import Sequence
from pathlib import Path

from match_graph.benchmark.page import write_page
from match_graph.benchmark.run_page import make_run_page
from match_graph.training import Reporter
from match_graph.training.files import REPORT


def write_report_page(
    folder: str | Path,
    out: str | Path | None = None,
    against: Sequence[str | Path] = (),
    documents: Sequence[str] = (),
    num_documents: int = 3,
    root: str | Path | None = None,
    device: str = "auto",
    reporter: Reporter | None = None,
) -> Path:
    """Writes the page of a run.

    Args:
        folder: Of the run.
        out: The file; None takes ``report.html`` in the folder.
        against: As for `make_run_page`.
        documents: Likewise.
        num_documents: Likewise.
        root: Likewise.
        device: Likewise.
        reporter: Likewise.

    Returns:
        The file.

    Raises:
        MatchGraphError: See `make_run_page`; or jinja2 or matplotlib is not installed.
    """
    folder = Path(folder)
    path = folder / REPORT if out is None else Path(out)
    others = [Path(other) for other in against]
    where = None if root is None else Path(root)
    page = make_run_page(folder, others, documents, num_documents, where, device, reporter)
    write_page(page, path)
    return path
