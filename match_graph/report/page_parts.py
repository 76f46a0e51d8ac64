"""Sections shared by the pages of runs and benchmarks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd

from match_graph.errors import MatchGraphError
from match_graph.io import Reporter
from match_graph.io.progress import format_seconds
from match_graph.metrics.slices import FREQUENCY_CUTS
from match_graph.predict import Explainer, compare_variants
from match_graph.predict.summary import draw_records
from match_graph.report.charts import NUM_STYLES, LineChart, Series
from match_graph.report.label_rows import LabelRows
from match_graph.report.page import Case, Note, Section
from match_graph.report.plots import keep_common_epochs
from match_graph.report.tables import Table
from match_graph.runs import Run
from match_graph.runs.folder import choose_code
from match_graph.runs.readers import read_bins
from match_graph.typing import Split

T = TypeVar("T")

NO_CASES = Section("Case studies", "", [])
#: What curves over epochs show, unlike the measures of a run.
ABOUT_CURVES = (
    "Measures are of the network alone, before its blend, calibration and coherent output, on the "
    "validation documents of training."
)
#: How `metrics.slices` divides the labels.
ABOUT_SLICES = (
    f"Head: more than {FREQUENCY_CUTS[1]} training documents; torso: {FREQUENCY_CUTS[0]} to "
    f"{FREQUENCY_CUTS[1]}; tail: fewer. Depth counts edges on the longest path to a root."
)


@dataclass(frozen=True)
class CaseOptions:
    """Options of the case studies of a page.

    Args:
        documents: Ids of the documents; if empty, some of the page's split are drawn by the first
            run's seed.
        num_documents: Number of documents drawn; 0 keeps all texts out of the page.
        against: Run folders of the same data that a run is compared with.
        root: Root folder of built data; None takes the default.
        device: Device, as for `load`.
        reporter: Progress reporter, also of warnings.
        encoder: Custom encoder of those runs that were trained with it, as for `load`.
        head: Custom head, likewise.
        dataset: Data set of the runs, as for `open_run`.
        rows: Rows of a benchmark that are compared; none takes the reference and two more.
    """

    documents: Sequence[str] = ()
    num_documents: int = 3
    against: Sequence[Path] = ()
    root: Path | None = None
    device: str = "auto"
    reporter: Reporter = field(default_factory=lambda: Reporter(quiet=True))
    encoder: str | None = None
    head: str | None = None
    dataset: str | None = None
    rows: Sequence[str] = ()


def study_cases(
    runs: Sequence[Run], options: CaseOptions, split: Split, names: Sequence[str] = ()
) -> Section:
    """Case studies of given or randomly drawn documents, in variants of a model.

    Args:
        runs: Trained runs on the same data.
        options: Options of the case studies.
        split: Split of the documents that are drawn.
        names: Names of the variants; none takes those of the folders.
    """
    documents = options.documents
    if not documents and options.num_documents:
        records = draw_records(runs[0], options.num_documents, split)
        documents = [record["paper"] for record in records]
    if not documents:
        return NO_CASES
    codes = choose_code([run.folder for run in runs], options.encoder, options.head)
    explainers = [
        Explainer(run, options.device, *code) for run, code in zip(runs, codes, strict=True)
    ]
    for explainer, name in zip(explainers, names, strict=False):
        explainer.name = name
    studies = [compare_variants(explainers, document) for document in documents]
    cases = [
        Case(study, [LabelRows(study.labels, variant) for variant in study.variants])
        for study in studies
    ]
    about = (
        "What carried each prediction: the change of the label's log-odds when a metadata token is "
        "left out, the attention of the document's own states, and what the linear classifier "
        "adds, exact unless it clusters labels. Hypernymy terms are those of the loss, for this "
        "document."
    )
    return Section("Case studies", about, cases)


def explain_absence(error: MatchGraphError, options: CaseOptions, where: str = "") -> Section:
    """Section that says why there are no case studies; the reporter warns of it too.

    Raises:
        MatchGraphError: The error itself, if documents were asked for by name.
    """
    if options.documents:
        raise error
    options.reporter.warn(f"The report has no case studies{where}: {error}")
    return Section("Case studies", "", [Note([f"There are none: {error}"])])


def select_bins(folder: Path, split: str, names: Mapping[str, str]) -> pd.DataFrame | None:
    """Bins of a reliability diagram; None if the run has none.

    Args:
        folder: Run folder.
        split: Split of the documents.
        names: Names of the lines by kind, "ranked" or "all".

    Returns:
        Non-empty bins of these lines, with a column ``name``.

    Raises:
        CheckpointError: The file is broken.
    """
    table = read_bins(folder)
    if table is None:
        return None
    table = table.dropna()
    table = table[(table["split"] == split) & table["labels"].isin([*names])]
    return table.assign(name=table["labels"].map(names))


def draw_reliability(bins: pd.DataFrame) -> LineChart:
    """Reliability diagram of bins from `select_bins`, with a line for each name."""
    series = [
        Series(str(name), rows["probability"].tolist(), rows["gold"].tolist())
        for name, rows in bins.groupby("name", sort=False)
    ]
    columns = ["", "bin", "pairs", "mean probability", "share of gold labels"]
    shown = bins[["name", "bin", "pairs", "probability", "gold"]].itertuples(index=False)
    rows = [
        [name, str(one), f"{n:,}", f"{p:.4f}", f"{gold:.4f}"] for name, one, n, p, gold in shown
    ]
    table = Table(columns, rows)
    return LineChart("Reliability", "probability", "share of gold labels", series, True, table)


def average_histories(histories: pd.DataFrame, name: str) -> list[Series]:
    """Mean of a column of `collect_histories` by row and epoch, and standard deviation over seeds.

    A row's line ends where the first of its seeds stopped, as in `draw_training_curves`.
    """
    if name not in histories:
        return []
    series = []
    for row, runs in histories.dropna(subset=[name]).groupby("row", sort=False):
        groups = keep_common_epochs(runs).groupby("epoch")[name]
        several, mean = len(set(runs["seed"])) > 1, groups.mean()
        band = groups.std().fillna(0.0).tolist() if several else ()
        series.append(Series(str(row), mean.index.tolist(), mean.tolist(), band))
    return series


def cut(lines: Sequence[T]) -> list[Sequence[T]]:
    """Splits lines into figures, each of at most as many lines as there are styles."""
    return [lines[start : start + NUM_STYLES] for start in range(0, len(lines), NUM_STYLES)]


def list_record(record: Mapping[str, Any], prefix: str = "") -> list[list[str]]:
    """Rows of key and value of a record, nested keys joined by blanks."""
    rows = []
    for key, value in record.items():
        name = f"{prefix} {key}".strip().replace("_", " ")
        if isinstance(value, Mapping):
            rows += list_record(value, name)
        elif prefix == "seconds" and isinstance(value, float):
            rows.append([name, format_seconds(value)])
        else:
            rows.append([name, "-" if value is None else str(value)])
    return rows
