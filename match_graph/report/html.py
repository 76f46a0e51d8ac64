"""HTML report of a run or a benchmark."""

from collections.abc import Sequence
from pathlib import Path

from match_graph.benchmark.results import RESULTS
from match_graph.errors import ConfigError
from match_graph.io import Reporter
from match_graph.io.names import read_path
from match_graph.io.run_folder import REPORT
from match_graph.report.benchmark_page import make_benchmark_page
from match_graph.report.page import write_page
from match_graph.report.page_parts import CaseOptions
from match_graph.report.run_page import make_run_page


def write_report(
    folder: str | Path,
    out: str | Path | None = None,
    against: Sequence[str | Path] = (),
    documents: Sequence[str] = (),
    num_documents: int = 3,
    root: str | Path | None = None,
    device: str = "auto",
    reporter: Reporter | None = None,
    encoder: str | None = None,
    head: str | None = None,
    dataset: str | None = None,
    rows: Sequence[str] = (),
) -> Path:
    """Writes the page of a run, or of a benchmark.

    Args:
        folder: Run folder, or folder with the ``results.json`` of a benchmark.
        out: Path of the HTML file; None takes ``report.html`` in the folder.
        against: Run folders that a run is compared with in case studies; for a run only.
        documents: Ids of the documents of case studies.
        num_documents: Number of documents drawn if none is named; 0 keeps all texts out of the
            page.
        root: Root folder of built data; None takes the default.
        device: Device, as for `load`.
        reporter: Progress reporter, also of warnings.
        encoder: Encoder of the run, as for `load`.
        head: Head of the run, as for `load`.
        dataset: Data set of the run, as for `open_run`.
        rows: Rows of a benchmark that are compared in case studies; none takes the reference and
            two more.

    Returns:
        The file.

    Raises:
        MatchGraphError: See `make_run_page` and `make_benchmark_page`; or jinja2 or matplotlib is
            not installed.
        ConfigError: ``against`` is given for a benchmark, or ``rows`` for a run.
    """
    folder = read_path(folder, "A run or a benchmark")
    path = folder / REPORT if out is None else read_path(out, "A page")
    options = CaseOptions(
        documents, num_documents, [*map(Path, against)], None if root is None else Path(root),
        device, reporter or Reporter(quiet=True), encoder, head, dataset, rows,
    )  # fmt: skip
    if (folder / RESULTS).is_file():
        if against:
            raise ConfigError(
                f"The case studies of a benchmark compare its own rows, but other runs are given "
                f"for '{folder}'; leave out --against."
            )
        page = make_benchmark_page(folder, options)
    elif rows:
        raise ConfigError(
            f"Rows must be those of a benchmark, but '{folder}' is a run and has no row "
            f"'{rows[0]}'; leave out --row, or name other runs with --against."
        )
    else:
        page = make_run_page(folder, options)
    write_page(page, path)
    return path
