"""Page of a benchmark: tables with stars and intervals, figures, case studies, provenance."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pandas as pd

from match_graph.benchmark.experiment import LOWER_IS_BETTER
from match_graph.benchmark.results import Cell, DatasetRecord, Results, read_results
from match_graph.errors import ConfigError, CorpusError, MatchGraphError, suggest
from match_graph.io.progress import format_seconds
from match_graph.io.run_folder import HISTORY
from match_graph.io.yaml import dump_yaml
from match_graph.report.benchmark_tables import (
    format_value,
    make_legend,
    tabulate_best,
    tabulate_expected,
    tabulate_grid,
    tabulate_rows,
)
from match_graph.report.charts import Bar, BarChart, LineChart
from match_graph.report.page import Block, Code, Headline, Note, Page, Section
from match_graph.report.page_parts import (
    ABOUT_CURVES,
    ABOUT_SLICES,
    NO_CASES,
    CaseOptions,
    average_histories,
    cut,
    draw_reliability,
    explain_absence,
    list_record,
    select_bins,
    study_cases,
)
from match_graph.report.plots import collect_grid, collect_histories
from match_graph.report.summary import collect_notes, summarize
from match_graph.report.tables import Table, fraction, number
from match_graph.runs import open_run
from match_graph.runs.folder import choose_code
from match_graph.runs.measures import SCORE_NAMES
from match_graph.typing import DOCUMENT, Split

#: Number of rows that case studies compare if none is named, including the reference.
_VARIANTS = 3


def make_benchmark_page(folder: Path, options: CaseOptions | None = None) -> Page:
    """Page of a benchmark, finished or not.

    Args:
        folder: Folder with ``results.json``.
        options: Options of the case studies, which compare rows of each data set; None takes the
            defaults.

    Raises:
        CheckpointError: The results are missing or broken, or a finished cell lacks a measure.
        CorpusError: A named document is in no data set with a finished run.
        ConfigError: A named row has no finished run.
    """
    options = options or CaseOptions()
    results = read_results(folder)
    several = len(results.datasets) > 1
    headlines, sections = [], []
    check_rows(results, options.rows)
    missing = [*options.documents]
    for record in results.datasets:
        part = DatasetPart(folder, results, record)
        headlines += part.headlines()
        found = [part.results_section(), part.figures(), part.curves()]
        found += [part.slices(), part.calibration(), part.case_studies(options)]
        missing = [one for one in missing if one not in part.studied]
        for section in found:
            title = f"{record.name}: {section.title}" if several else section.title
            sections.append(Section(title, section.about, section.blocks))
    if missing:
        raise CorpusError(
            f"A document must be in a data set of the benchmark that has a finished run, found "
            f"'{missing[0]}' in none of {[record.name for record in results.datasets]}; look at "
            f"the ids."
        )
    done = sum(cell.status == "done" for cell in results.cells)
    headlines.append(Headline("runs finished", f"{done} of {len(results.cells)}"))
    return Page(
        results.experiment.name,
        results.experiment.question,
        headlines,
        [*sections, describe_provenance(results)],
    )


def choose_main_measures(measures: Sequence[str]) -> list[str]:
    """Main measures for figures: the first and the last one, of P@k and NDCG@k if possible."""
    higher = [one for one in measures if one not in LOWER_IS_BETTER] or measures
    plain = [one for one in higher if one in SCORE_NAMES] or higher
    return list(dict.fromkeys([plain[0], plain[-1]]))


class DatasetPart:
    """Sections of one data set of a benchmark.

    Args:
        folder: Folder of the benchmark.
        results: Results, finished or not.
        record: Record of the data set.
    """

    def __init__(self, folder: Path, results: Results, record: DatasetRecord) -> None:
        self.folder, self.results, self.record = folder, results, record
        self.rows = summarize(results, record.name, folder)
        self.measures = results.experiment.measures
        self.main = choose_main_measures(self.measures)
        self.split = results.experiment.split
        #: Documents named for case studies that are in this data set.
        self.studied: list[str] = []

    def headlines(self) -> list[Headline]:
        """Best row by each main measure."""
        found = []
        for measure in self.main:
            rows = (row for row in self.rows if measure in row.measured)
            best = next((row for row in rows if row.measured[measure].is_best), None)
            if best is not None:
                name = f"best {measure}, {self.record.name}"
                found.append(Headline(name, fraction(best.measured[measure].mean), best.name))
        return found

    def results_section(self) -> Section:
        """Means over seeds with stars, intervals and the best marked; published values; notes."""
        numbers = ", ".join(f"{n:,} {split}" for split, n in self.record.documents.items())
        legend = make_legend(self.results, self.record, self.rows)
        about = (
            f"On {self.split}: {numbers} documents, {self.record.num_labels:,} labels. "
            f"{' '.join(legend)} The best is marked."
        )
        blocks: list[Block] = [tabulate_rows(self.rows, self.measures)]
        expected = tabulate_expected(self.rows, self.measures)
        blocks += [] if expected is None else [expected]
        notes = collect_notes(self.rows)
        blocks += [Note(notes)] if notes else []
        return Section("Results", about, blocks)

    def figures(self) -> Section:
        """Bars of the main measures and of hierarchy violations; or tables of a grid."""
        if self.results.experiment.figure == "grid":
            points = collect_grid(self.record.rows, self.rows)
            keys = [*self.results.experiment.grid]
            return Section("Grid", "", [*tabulate_grid(points, keys, self.measures)])
        charts = []
        for measure in dict.fromkeys([*self.main, *({"violation_rate"} & {*self.measures})]):
            bars = [
                Bar(row.name, value.mean, format_value(value, 3) + value.stars, value.std or 0.0)
                for row in self.rows
                if (value := row.measured.get(measure)) is not None
            ]
            unit = "rank" if "RankedSum@" in measure else "fraction"
            unit += ", less is better" * (measure in LOWER_IS_BETTER)
            charts += [BarChart(measure, unit, bars)] if bars else []
        return Section("Rows side by side", "Whiskers are one standard deviation.", charts)

    def curves(self) -> Section:
        """Loss and validation measures over epochs: means and standard deviations over seeds."""
        histories = collect_histories(self.results, self.record)
        shown = {
            "loss_recent": ("Training loss", "last batches of the epoch"),
            self.main[-1]: (f"Validation, {self.main[-1]}", "fraction"),
            "violation_rate": ("Violations of the hierarchy", "share, on valid"),
        }
        charts = [
            LineChart(title, "epoch", unit, series)
            for name, (title, unit) in shown.items()
            for series in cut(average_histories(histories, name))
        ]
        about = f"From the {HISTORY} of every run; bands are one standard deviation. {ABOUT_CURVES}"
        return Section("Training", about, charts)

    def slices(self) -> Section:
        """R@5 by frequency of the labels in training, and by depth."""
        found = {row.name: self._average_slices(row.name) for row in self.rows}
        names = list(dict.fromkeys(name for values in found.values() for name in values))
        if not names:
            return Section("Slices of the labels", "", [])
        table = tabulate_best(found, names, "R@5")
        return Section("Slices of the labels", ABOUT_SLICES, [table])

    def calibration(self) -> Section:
        """Reliability of the five best labels in the first run of each row."""
        found = []
        for row in self.rows:
            for cell in self._finished(row.name)[:1]:
                bins = select_bins(self.folder / cell.folder, self.split, {"ranked": row.name})
                if bins is not None:
                    found.append(bins)
        charts = [draw_reliability(pd.concat(part)) for part in cut(found)]
        about = (
            "How often one of the 5 best labels is gold, by its probability; on the diagonal they "
            "agree. The first seed of each row."
        )
        return Section("Calibration", about, charts)

    def case_studies(self, options: CaseOptions) -> Section:
        """Case studies of the named rows; else of the reference and the first other rows."""
        if not options.documents and not options.num_documents:
            return NO_CASES
        reference = self.results.experiment.reference
        folders = {
            cell.row: self.folder / cell.folder
            for row in self.rows
            for cell in self._finished(row.name)[::-1]  # so that the first seed's is kept
            if not cell.published
        }
        finished = [*folders]
        names = [name for name in dict.fromkeys(options.rows) if name in finished]
        if not options.rows:
            names = sorted(finished, key=lambda name: name != reference)[:_VARIANTS]
        try:
            chosen = [folders[name] for name in names]
            codes = choose_code(chosen, options.encoder, options.head)
            runs = [
                open_run(one, options.root, options.reporter, *code, options.dataset)
                for one, code in zip(chosen, codes, strict=True)
            ]
            if runs and options.documents:
                known = set(runs[0].dataset.names(DOCUMENT).astype(str))
                self.studied = [one for one in options.documents if one in known]
            if not runs or (options.documents and not self.studied):
                return NO_CASES
            options = replace(options, documents=self.studied)
            section = study_cases(runs, options, self.split, names)
        except MatchGraphError as error:
            return explain_absence(error, options, f" of {self.record.name}")
        which = describe_choice(names, len(finished), options, self.split)
        about = f"{which} {section.about}"
        return Section(section.title, about, section.blocks)

    def _finished(self, row: str) -> list[Cell]:
        cells = self.results.find_cells(self.record.name, row)
        return [cell for cell in cells if cell.status == "done"]

    def _average_slices(self, row: str) -> dict[str, float]:
        """Mean over seeds of R@5 by slice."""
        runs = [cell.metrics[self.split] for cell in self._finished(row)]
        names = [key for key in (runs[0] if runs else {}) if key.endswith("/R@5")]
        return {
            name.removesuffix("/R@5").replace("_", " "): fmean(run[name] for run in runs)
            for name in names
            if all(name in run for run in runs)
        }


def check_rows(results: Results, rows: Sequence[str]) -> None:
    """Checks that each row of case studies has a finished run with a folder on some data set.

    Raises:
        ConfigError: One has none.
    """
    cells = [cell for cell in results.cells if cell.status == "done" and not cell.published]
    known = list(dict.fromkeys(cell.row for cell in cells))
    for row in rows:
        if row not in known:
            raise ConfigError(
                f"A row of case studies must be one of the benchmark with a finished run, found "
                f"'{row}'; {suggest(row, known, f'choose from {known}')}."
            )


def describe_choice(names: Sequence[str], num_rows: int, options: CaseOptions, split: Split) -> str:
    """Sentences on the rows and documents of case studies, and on how to choose others."""
    drawn = "" if options.documents else f" The documents are drawn at random from {split}."
    return (
        f"Shown: {', '.join(names)}; {len(names)} of {num_rows} rows with a finished run, each by "
        f"its first seed.{drawn} `match-graph report` takes other rows by --row NAME and "
        f"other documents by --document ID, both repeatable."
    )


def describe_provenance(results: Results) -> Section:
    """Provenance: machine, data sets, every cell, and the experiment as it was run."""
    about = f"Started {results.started}, last changed {results.updated}."
    machine = Table(["", ""], list_record(results.machine.model_dump()))
    datasets = Table(
        ["data set", "documents", "labels", "fields", "epochs", "checksum"],
        [
            [
                one.name, f"{sum(one.documents.values()):,}", f"{one.num_labels:,}",
                ", ".join(one.fields), number(one.epochs, ""),
                one.checksum[:12],
            ]
            for one in results.datasets
        ],
    )  # fmt: skip
    cells = Table(
        ["run", "data set", "seed", "status", "time", "epochs", "peak MiB", "reason"],
        [
            [
                cell.row, cell.dataset, str(cell.seed), cell.status,
                format_seconds(sum(cell.seconds.values())) if cell.seconds else "-",
                number(cell.epochs, ""),
                ", ".join(f"{value:,.0f}" for value in cell.peak_mib.values()) or "-",
                cell.reason or "-",
            ]
            for cell in results.cells
        ],
    )  # fmt: skip
    content = dump_yaml(
        results.experiment.model_dump(mode="json"), sort_keys=False, allow_unicode=True
    )
    return Section(
        "How it was made", about, [machine, datasets, cells, Code("experiment", content)]
    )
