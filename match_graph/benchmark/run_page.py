"""The page of a run: what its folder says, and case studies of its data set's documents."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from match_graph.benchmark.page import (
    Bar,
    BarChart,
    Case,
    Code,
    Headline,
    LabelRows,
    LineChart,
    Note,
    Page,
    Section,
    Series,
    Table,
    percent,
    seconds,
)
from match_graph.errors import CheckpointError, MatchGraphError
from match_graph.training import Explainer, Reporter, Run, compare_variants, open_run
from match_graph.training.files import (
    CALIBRATION,
    CONFIG,
    HISTORY,
    METRICS,
    open_run_folder,
    read_json,
)
from match_graph.training.record import read_record
from match_graph.training.summary import draw_records

#: Columns of the table of measures, as far as a split has them.
_COLUMNS = ("P@1", "P@3", "P@5", "NDCG@3", "NDCG@5", "R@5", "PSP@5", "F1_micro", "F1_macro")
#: Figures of training: title, vertical axis, columns of ``history.csv``.
_CURVES = (
    ("Training loss", "mean of the epoch", ("loss", "loss_bce")),
    ("Validation", "fractions", ("P@1", "P@5", "NDCG@5")),
    ("Violations of the hierarchy", "share, on valid", ("violation_rate",)),
)


class RunFolder:
    """What a run's folder says by itself: no data set is opened.

    Args:
        folder: Of an evaluated run.

    Raises:
        CheckpointError: It is no run folder, or the run was not evaluated.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.config = folder, open_run_folder(folder)
        if not (folder / METRICS).is_file():
            raise CheckpointError(
                f"A report needs the measures of an evaluated run, but '{folder}' has no "
                f"{METRICS}; run `match-graph evaluate {folder}`."
            )
        self.metrics: dict[str, dict[str, float]] = read_json(folder / METRICS)
        self.record = read_record(folder)

    @property
    def split(self) -> str:
        """Of which the page speaks first: test, or valid where there is no test document."""
        return "test" if "test" in self.metrics else "valid"

    def headlines(self) -> list[Headline]:
        """The measures that matter most."""
        values = self.metrics[self.split]
        shown = [("P@1", 1), ("P@5", 1), ("NDCG@3", 1), ("NDCG@5", 1), ("F1_micro", 1)]
        found = [
            Headline(f"{name}, {self.split}", f"{percent(values[name], digits)} %")
            for name, digits in shown
            if name in values
        ]
        others = [
            ("violation_rate", "violations of the hierarchy"),
            ("ECE@5", "calibration error, 5 best"),
        ]
        return found + [
            Headline(about, f"{percent(values[name], 1)} %")
            for name, about in others
            if name in values
        ]

    def measures(self, prior: Mapping[str, float] | None) -> Section:
        """The splits side by side, and the ranking by training frequency below them."""
        rows = dict(self.metrics)
        if prior is not None:
            rows[f"{self.split}, label prior"] = dict(prior)
        columns = [name for name in _COLUMNS if any(name in values for values in rows.values())]
        table = Table(
            ["in percent", *columns],
            [
                [name, *(percent(values.get(column)) for column in columns)]
                for name, values in rows.items()
            ],
        )
        about = (
            "Documents without gold labels count 0. F1 is measured on test, at thresholds that "
            "were chosen on valid."
        )
        return Section("Measures", about, [table])

    def curves(self) -> Section:
        """Losses and validation measures over epochs."""
        path = self.folder / HISTORY
        if not path.is_file():
            return Section(
                "Training", "", [Note(["There is no history: nothing was trained by epochs."])]
            )
        table = pd.read_csv(path)
        charts = [
            LineChart(title, "epoch", unit, draw_columns(table, names))
            for title, unit, names in _CURVES
        ]
        return Section("Training", "", [chart for chart in charts if chart.series])

    def slices(self) -> Section:
        """R@5 and F1 by frequency of the labels in training, and by depth."""
        values = self.metrics[self.split]
        charts = []
        for measure in ("R@5", "F1_micro"):
            found = {
                key.removesuffix(f"/{measure}"): value
                for key, value in values.items()
                if key.endswith(f"/{measure}")
            }
            for title, names in _group_slices(found).items():
                bars = [
                    Bar(_name_slice(name), 100 * found[name], percent(found[name], 1))
                    for name in names
                ]
                charts.append(BarChart(f"{measure} {title}", "percent", bars))
        about = (
            "Head: more than 100 training documents; torso: 20 to 100; tail: fewer. Depth counts "
            "edges on the longest path to a root."
        )
        if not charts:
            return Section("Slices of the labels", "", [
                Note(["There are no slices; `match-graph evaluate` measures them on test."])
            ])  # fmt: skip
        return Section("Slices of the labels", about, charts)

    def calibration(self) -> Section:
        """The reliability diagram of the five best labels."""
        path = self.folder / CALIBRATION
        if not path.is_file():
            text = f"There is no {CALIBRATION}; `match-graph evaluate {self.folder}` writes it."
            return Section("Calibration", "", [Note([text])])
        names = {"ranked": "5 best labels", "all": "all labels"}
        bins = read_bins(path, self.split, names)
        values = self.metrics[self.split]
        about = (
            f"How often a label of some probability is gold; on the diagonal they agree. Expected "
            f"calibration error: {percent(values['ECE@5'])} % of the 5 best labels, "
            f"{percent(values['ECE'])} % of all."
        )
        return Section("Calibration", about, [draw_reliability(bins)])

    def provenance(self) -> Section:
        """How it was made."""
        return Section("How it was made", "", [
            Table(["", ""], list_record(self.record)),
            Code(CONFIG, (self.folder / CONFIG).read_text(encoding="utf-8")),
        ])  # fmt: skip


def make_run_page(
    folder: Path,
    against: Sequence[Path] = (),
    documents: Sequence[str] = (),
    num_documents: int = 3,
    root: Path | None = None,
    device: str = "auto",
    reporter: Reporter | None = None,
    encoder: str | None = None,
    head: str | None = None,
) -> Page:
    """The page of an evaluated run.

    Where its data set cannot be opened, the page says so and lacks what needs it.

    Args:
        folder: Of the run.
        against: Runs of the same data that case studies compare it with.
        documents: Their documents; none draws some of test by the run's seed.
        num_documents: How many are drawn; 0 keeps all texts out of the page.
        root: Of built data; None takes the default.
        device: As for `load`.
        reporter: For progress and warnings.
        encoder: As for `load`; otherwise a run of an encoder of one's own has no case studies.
        head: Likewise.

    Raises:
        CheckpointError: The folder is no evaluated run, or runs were made from different data.
        CorpusError: There is no such document.
    """
    reporter = reporter or Reporter(quiet=True)
    own = RunFolder(folder)
    prior, cases = None, Section("Case studies", "", [])
    try:
        run = open_run(folder, root, reporter, encoder, head)
    except MatchGraphError as error:
        if documents:
            raise
        reporter.warn(f"The report has no case studies: {error}")
        cases = Section("Case studies", "", [Note([f"There are none: {error}"])])
    else:
        prior = run.prior("test") if own.split == "test" else run.prior("valid")
        runs = [run, *(open_run(other, root, reporter) for other in against)]
        cases = study_cases(runs, documents, num_documents, device, encoder, head)
    parts = [own.config.model.encoder, *own.config.ablation, f"seed {own.config.seed}"]
    sections = [own.measures(prior), own.curves(), own.slices(), own.calibration()]
    return Page(
        f"{own.record.get('dataset', own.config.dataset)}: {', '.join(parts)}",
        f"Run {folder.resolve().name}",
        own.headlines(),
        [*sections, cases, own.provenance()],
    )


def study_cases(
    runs: Sequence[Run],
    documents: Sequence[str],
    num_documents: int,
    device: str = "auto",
    encoder: str | None = None,
    head: str | None = None,
    names: Sequence[str] = (),
) -> Section:
    """Case studies of some documents, or of some drawn ones, in variants of a model.

    Args:
        runs: Trained, on the same data.
        documents: Ids.
        num_documents: To be drawn where none is named.
        device: As for `load`.
        encoder: Of the first run, as for `load`.
        head: Likewise.
        names: Of the variants; none takes those of the folders.
    """
    if not documents and num_documents:
        documents = [record["paper"] for record in draw_records(runs[0], num_documents)]
    if not documents:
        return Section("Case studies", "", [])
    explainers = [
        Explainer(runs[0], device, encoder, head),
        *(Explainer(run, device) for run in runs[1:]),
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
        "left out, the attention of the document's own states, and what the wide term adds, which "
        "is exact. Hypernymy terms are those of the loss, for this document."
    )
    return Section("Case studies", about, cases)


def read_bins(path: Path, split: str, names: Mapping[str, str]) -> pd.DataFrame:
    """The bins of some lines of a reliability diagram.

    Args:
        path: A ``calibration.csv``.
        split: Of the documents.
        names: "ranked" or "all" -> the line's name.

    Returns:
        Its rows that hold a pair, with a column ``name``.
    """
    table = pd.read_csv(path).dropna()
    table = table[(table["split"] == split) & table["labels"].isin([*names])]
    return table.assign(name=table["labels"].map(names))


def draw_reliability(bins: pd.DataFrame) -> LineChart:
    """The diagram of what `read_bins` gave, a line for each name in their order."""
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


def draw_columns(table: pd.DataFrame, names: Sequence[str]) -> list[Series]:
    """Columns over epochs; those that are missing or nowhere finite are left out."""
    found = []
    for name in names:
        if name in table:
            rows = table[np.isfinite(table[name].astype(float))]
            found.append(Series(name, rows["epoch"].tolist(), rows[name].tolist()))
    return [one for one in found if one.x]


def list_record(record: Mapping[str, Any], prefix: str = "") -> list[list[str]]:
    """A record as rows of two columns, nested names joined by blanks."""
    rows = []
    for key, value in record.items():
        name = f"{prefix} {key}".strip().replace("_", " ")
        if isinstance(value, Mapping):
            rows += list_record(value, name)
        elif prefix == "seconds" and isinstance(value, float):
            rows.append([name, seconds(value)])
        else:
            rows.append([name, "-" if value is None else str(value)])
    return rows


def _group_slices(found: Mapping[str, float]) -> dict[str, list[str]]:
    """Titles -> slices: frequency from head to tail, depth from the roots down."""
    depths = sorted((name for name in found if name.startswith("depth_")), key=_depth)
    groups = {"by frequency": [name for name in ("head", "torso", "tail") if name in found]}
    return {title: names for title, names in {**groups, "by depth": depths}.items() if names}


def _depth(name: str) -> int:
    return int(name.removeprefix("depth_"))


def _name_slice(name: str) -> str:
    return name.replace("_", " ")
