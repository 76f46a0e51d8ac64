"""Page of a run: measures, history, case studies."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from match_graph.errors import MatchGraphError, format_command
from match_graph.io.run_folder import CONFIG, RELIABILITY
from match_graph.own_code import shorten_code
from match_graph.report.charts import Bar, BarChart, LineChart, Series
from match_graph.report.page import Code, Headline, Note, Page, Section
from match_graph.report.page_parts import (
    ABOUT_CURVES,
    ABOUT_SLICES,
    CaseOptions,
    draw_reliability,
    explain_absence,
    list_record,
    select_bins,
    study_cases,
)
from match_graph.report.tables import Table, fraction
from match_graph.runs import open_run
from match_graph.runs.folder import choose_code, open_run_folder
from match_graph.runs.measures import ABOUT_POLICY
from match_graph.runs.readers import check_evaluated, read_history, read_metrics, read_record
from match_graph.runs.record import list_twins
from match_graph.typing import Split

#: Columns of the table of measures, where a split has them.
_COLUMNS = ("P@1", "P@3", "P@5", "NDCG@3", "NDCG@5", "R@5", "PSP@5", "F1_micro", "F1_macro")
#: Figures of training: title, vertical axis, columns of ``history.csv``.
_CURVES = (
    ("Training loss", "mean of the epoch", ("loss", "loss_bce")),
    ("Validation", "fractions", ("P@1", "P@5", "NDCG@5")),
    ("Violations of the hierarchy", "share, on valid", ("violation_rate",)),
)


class RunFolder:
    """Sections of a run's page that need its folder alone, and not its data set.

    Args:
        folder: Folder of an evaluated run.

    Raises:
        CheckpointError: It is no run folder, or the run was not evaluated.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.config = folder, open_run_folder(folder)
        check_evaluated(folder, self.config, "A report needs the measures of an evaluated run")
        self.metrics = read_metrics(folder)
        self.record = read_record(folder)

    @property
    def split(self) -> Split:
        """Main split of the page: test, or valid where there is no test document."""
        return "test" if "test" in self.metrics else "valid"

    def headlines(self) -> list[Headline]:
        """Headline measures."""
        values = self.metrics[self.split]
        shown = ("P@1", "P@5", "NDCG@3", "NDCG@5", "F1_micro")
        titles = {
            **{name: f"{name}, {self.split}" for name in shown},
            "violation_rate": "violations of the hierarchy",
            "ECE@5": "calibration error, 5 best",
        }
        return [
            Headline(title, fraction(values[name]))
            for name, title in titles.items()
            if name in values
        ]

    def measures(self, prior: Mapping[str, float] | None) -> Section:
        """Measures of all splits, and of ranking labels by their training frequency."""
        rows = dict(self.metrics)
        if prior is not None:
            rows[f"{self.split}, label prior"] = dict(prior)
        columns = [name for name in _COLUMNS if any(name in values for values in rows.values())]
        table = Table(
            ["", *columns],
            [
                [name, *(fraction(values.get(column)) for column in columns)]
                for name, values in rows.items()
            ],
        )
        about = ABOUT_POLICY
        if "test" in self.metrics:
            about += " F1 is measured on test, at thresholds that were chosen on valid."
        return Section("Measures", " ".join([about, *list_twins(self.record)]), [table])

    def curves(self) -> Section:
        """Losses and validation measures over epochs."""
        table = read_history(self.folder)
        if table is None:
            return Section(
                "Training", "", [Note(["There is no history: nothing was trained by epochs."])]
            )
        charts = [
            LineChart(title, "epoch", unit, draw_columns(table, names))
            for title, unit, names in _CURVES
        ]
        return Section("Training", ABOUT_CURVES, [chart for chart in charts if chart.series])

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
                    Bar(name.replace("_", " "), found[name], fraction(found[name], 3))
                    for name in names
                ]
                charts.append(BarChart(f"{measure} {title}", "fraction", bars))
        if not charts:
            return Section("Slices of the labels", "", [
                Note(["There are no slices: they are measured on test documents."])
            ])  # fmt: skip
        return Section("Slices of the labels", ABOUT_SLICES, charts)

    def calibration(self) -> Section:
        """The reliability diagram of the five best labels."""
        names = {"ranked": "5 best labels", "all": "all labels"}
        bins = select_bins(self.folder, self.split, names)
        if bins is None:
            command = format_command("evaluate", self.folder)
            text = f"There is no {RELIABILITY}; `{command}` writes it."
            return Section("Calibration", "", [Note([text])])
        values = self.metrics[self.split]
        about = (
            f"How often a label of some probability is gold; on the diagonal they agree. Expected "
            f"calibration error: {fraction(values['ECE@5'])} for the 5 best labels, "
            f"{fraction(values['ECE'])} for all."
        )
        return Section("Calibration", about, [draw_reliability(bins)])

    def provenance(self) -> Section:
        """Provenance of the run."""
        return Section("How it was made", "", [
            Table(["", ""], list_record(self.record)),
            Code(CONFIG, (self.folder / CONFIG).read_text(encoding="utf-8")),
        ])  # fmt: skip


def make_run_page(folder: Path, options: CaseOptions | None = None) -> Page:
    """Page of an evaluated run.

    If the data set cannot be opened, the page says so and lacks the parts that need it; a run of a
    custom encoder that is not named has no case studies.

    Args:
        folder: Run folder.
        options: Options of the case studies; None takes the defaults.

    Raises:
        CheckpointError: The folder is no evaluated run, or runs were made from different data.
        CorpusError: There is no such document.
    """
    options = options or CaseOptions()
    own, prior = RunFolder(folder), None
    try:
        folders = [folder, *options.against]
        codes = choose_code(folders, options.encoder, options.head)
        run, *others = (
            open_run(one, options.root, options.reporter, *code, options.dataset)
            for one, code in zip(folders, codes, strict=True)
        )
    except MatchGraphError as error:
        cases = explain_absence(error, options)
    else:
        prior = run.prior(own.split)
        cases = study_cases([run, *others], options, own.split)
    parts = [
        shorten_code(own.config.model.encoder),
        *own.config.ablation,
        f"seed {own.config.seed}",
    ]
    sections = [own.measures(prior), own.curves(), own.slices(), own.calibration()]
    return Page(
        f"{own.record.get('dataset', own.config.dataset)}: {', '.join(parts)}",
        f"Run {folder.resolve().name}",
        own.headlines(),
        [*sections, cases, own.provenance()],
    )


def draw_columns(table: pd.DataFrame, names: Sequence[str]) -> list[Series]:
    """Series of columns over epochs, except those that are missing or nowhere finite."""
    found = []
    for name in names:
        if name in table:
            rows = table[np.isfinite(table[name].astype(float))]
            found.append(Series(name, rows["epoch"].tolist(), rows[name].tolist()))
    return [one for one in found if one.x]


def _group_slices(found: Mapping[str, float]) -> dict[str, list[str]]:
    """Slices by title: by frequency from head to tail, and by depth from the roots down."""
    depths = [name for name in found if name.startswith("depth_")]
    depths.sort(key=lambda name: int(name.removeprefix("depth_")))
    groups = {"by frequency": [name for name in ("head", "torso", "tail") if name in found]}
    return {title: names for title, names in {**groups, "by depth": depths}.items() if names}
