"""Tables of a benchmark as Markdown, CSV and LaTeX, with stars and 95 % intervals."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import pandas as pd

from match_graph.benchmark.experiment import LOWER_IS_BETTER
from match_graph.benchmark.results import DatasetRecord, Results
from match_graph.io.escape import escape_markdown
from match_graph.io.files import write_text
from match_graph.io.progress import Reporter
from match_graph.metrics import Comparison
from match_graph.metrics.significance import FEWEST_SEEDS, NUM_RESAMPLES
from match_graph.report.plots import write_figure
from match_graph.report.summary import (
    RowSummary,
    Value,
    collect_notes,
    describe_dataset_twins,
    describe_policies,
    summarize,
)
from match_graph.report.tables import Table, fraction, number, rounded, signed, write_csv
from match_graph.runs.measures import SCORE_NAMES

TABLES = "tables"
#: Columns of a table after its measures: properties of the model, and its cost.
_MODEL = ("blend", "features", "start")
_COST = ("runs", "parameters", "train s", "s / epoch", "peak MiB")


def write_tables(
    folder: str | Path, results: Results, reporter: Reporter | None = None
) -> list[Path]:
    """Writes ``tables/DATASET.md``, ``.csv`` and ``.tex``, and the experiment's figure.

    Fractions are printed with 4 digits, as in the paper. In CSV an apostrophe precedes a name that
    a spreadsheet would evaluate, such as "=1+1". Without matplotlib there are tables only.

    Args:
        folder: Folder of the benchmark.
        results: Results, finished or not.
        reporter: Reporter, warned if there can be no figure.

    Returns:
        Paths of the written files.

    Raises:
        CheckpointError: A finished cell lacks a measure.
    """
    folder, written = Path(folder), []
    for record in results.datasets:
        rows = summarize(results, record.name, folder)
        measures = results.experiment.measures
        paths = [folder / TABLES / f"{record.name}{ending}" for ending in (".md", ".csv", ".tex")]
        write_text(paths[0], make_markdown(results, record, rows))
        write_csv(paths[1], make_csv(rows, measures))
        write_text(paths[2], make_latex(results, record, rows))
        written += [*paths, *write_figure(folder / TABLES, results, record, rows, reporter)]
    return written


def make_markdown(results: Results, record: DatasetRecord, rows: Sequence[RowSummary]) -> str:
    """Markdown table with provenance above, legend and notes below."""
    experiment = results.experiment
    parts = [
        f"## {escape_markdown(experiment.name)} on {escape_markdown(record.name)}",
        escape_markdown(experiment.question),
        escape_markdown(_describe_setting(results, record)),
        tabulate_rows(rows, experiment.measures).to_markdown(),
        "  \n".join(map(escape_markdown, make_legend(results, record, rows))),
    ]
    if (expected := tabulate_expected(rows, experiment.measures)) is not None:
        parts += ["Numbers of the paper, and ours minus them:", expected.to_markdown()]
    parts.append("\n".join(f"- {escape_markdown(note)}" for note in collect_notes(rows)))
    return "\n\n".join(part for part in parts if part) + "\n"


def make_latex(results: Results, record: DatasetRecord, rows: Sequence[RowSummary]) -> str:
    """LaTeX table, its legend and notes as comments above."""
    lines = [*make_legend(results, record, rows), *collect_notes(rows)]
    comments = [f"% {' '.join(line.split())}\n" for line in lines]
    return "".join(comments) + tabulate_rows(rows, results.experiment.measures).to_latex()


def make_csv(rows: Sequence[RowSummary], measures: Sequence[str]) -> pd.DataFrame:
    """CSV with a line per row and unrounded numbers; cells without a value are empty.

    Columns of each measure: itself (the mean) and ``_std``; ``_low`` and ``_high``, the 95 %
    interval over documents of the mean, for the reference or if there is none; ``_difference`` to
    the reference over documents, and its interval ``_difference_low`` and ``_difference_high``;
    ``_stars``; p-values of the two tests, ``_p_runs`` and ``_p_documents``, and after Holm's
    correction ``_p_runs_holm`` and ``_p_documents_holm``; ``_expected``, and ``_over_expected``,
    the mean minus that.
    """
    lines = []
    for row in rows:
        line: dict[str, object] = {"row": row.name, "runs": row.runs}
        for measure in measures:
            line |= _list_values(measure, row.measured.get(measure))
        line |= {
            "blend": row.blend,
            "features": ", ".join(row.features),
            "start": row.start,
            "parameters": row.parameters,
            "train_seconds": row.train_seconds,
            "seconds_per_epoch": row.seconds_per_epoch,
            "peak_mib": row.peak_mib,
            "notes": " ".join(row.notes),
        }
        lines.append(line)
    return pd.DataFrame(lines, dtype=object)


def _list_values(measure: str, value: Value | None) -> dict[str, object]:
    if value is None:
        return {measure: None}
    compared = value.documents
    of_mean, of_difference = (value.interval, None) if compared is None else (None, value.interval)
    return {
        measure: value.mean,
        f"{measure}_std": value.std,
        **_list_interval(measure, of_mean),
        f"{measure}_difference": None if compared is None else compared.difference,
        **_list_interval(f"{measure}_difference", of_difference),
        f"{measure}_stars": value.stars,
        **_list_p_values(f"{measure}_p_runs", value.runs),
        **_list_p_values(f"{measure}_p_documents", value.documents),
        f"{measure}_expected": value.expected[0] if value.expected else None,
        f"{measure}_over_expected": value.difference,
    }


def _list_interval(name: str, interval: tuple[float, float] | None) -> dict[str, object]:
    return dict(zip((f"{name}_low", f"{name}_high"), interval or (None, None), strict=True))


def _list_p_values(name: str, test: Comparison | None) -> dict[str, object]:
    p_values = (None, None) if test is None else (test.p_value, test.p_holm)
    return dict(zip((name, f"{name}_holm"), p_values, strict=True))


def _describe_setting(results: Results, record: DatasetRecord) -> str:
    experiment = results.experiment
    sizes = ", ".join(f"{number:,} {split}" for split, number in record.documents.items())
    budget = "" if record.epochs is None else f" Epochs of networks that set none: {record.epochs}."
    cells = [cell for cell in results.cells if cell.dataset == record.name]
    seeds = sorted({cell.seed for cell in cells})  # those of earlier calls too
    finished = [cell for cell in cells if cell.status == "done"]
    devices = [
        [str(cell.device[kind]) for kind in ("processor", "cuda") if kind in cell.device]
        for cell in finished
    ]
    versions = [cell.versions.get("torch", "") for cell in finished]
    return (
        f"{sizes} documents, {record.num_labels:,} labels; measured on {experiment.split}. "
        f"Seeds {', '.join(map(str, seeds))}; {len(finished)} runs are finished.{budget} "
        f"{results.updated}, processor {_count_names(map(' with '.join, devices))}, "
        f"torch {_count_names(versions)}, commit {_count_names(_list_commits(results, record))}, "
        f"data {record.checksum[:12]}."
    )


def _count_names(names: Iterable[str | None]) -> str:
    """Distinct names, the most frequent first, with their numbers if there are several."""
    counts = Counter(name or "unknown" for name in names).most_common()
    if len(counts) < 2:
        return counts[0][0] if counts else "unknown"
    return ", ".join(f"{name} ({number})" for name, number in counts)


def _list_commits(results: Results, record: DatasetRecord) -> list[str | None]:
    """Commit of the code of each finished run of a data set; None where it is not known."""
    return [
        cell.git for cell in results.cells if cell.dataset == record.name and cell.status == "done"
    ]


def make_legend(results: Results, record: DatasetRecord, rows: Sequence[RowSummary]) -> list[str]:
    """Sentences that explain a table: means, twins, intervals, stars, columns."""
    experiment = results.experiment
    reference = experiment.reference
    names = list(dict.fromkeys(name for row in rows for name in row.measured))
    lines = [f"Mean ± standard deviation over runs. {describe_policies(names)}"]
    if twins := describe_dataset_twins(record, experiment.split):
        lines.append(twins)
    if experiment.tuned_on:
        what = "among them" if record.name in experiment.tuned_on else "for reporting alone"
        chosen = ", ".join(experiment.tuned_on)
        lines.append(
            f"Settings and defaults were chosen on validation of {chosen}; this data set is {what}."
        )
    values = [value for row in rows for value in row.measured.values()]
    if not values:
        return lines
    if lacking := [name for name in experiment.measures if name not in names]:
        lines.append(f"No document or label of this data set counts for {', '.join(lacking)}.")
    if any(value.interval is not None for value in values):
        of = "the mean"
        if reference is not None:
            of = f"the difference to {reference}, or of {reference}'s mean"
        lines.append(
            f"In brackets the 95 % interval over documents of {of}: paired bootstrap of scores "
            f"averaged over seeds, {NUM_RESAMPLES:,} resamples."
        )
    if reference is not None:
        lines.append(
            f"Stars need both the bootstrap over documents and the t-test paired by seed, from "
            f"{FEWEST_SEEDS} common seeds on, after Holm's correction over the rows of this "
            f"table: * significantly worse than {reference} (p < 0.05), ** (p < 0.01); + and ++ "
            f"significantly better."
        )
    if without := [name for name in names if name not in SCORE_NAMES]:
        lines.append(
            f"No intervals and no stars of {', '.join(without)}: a run keeps no score of each "
            f"document for {'it' if len(without) == 1 else 'them'}."
        )
    lines.append(
        "blend: the network is blended with a linear classifier; features: node types with "
        "features; start: initialization of token embeddings (model.init); train s: with "
        "the classifier of a blend, without pre-training."
    )
    lines += _describe_commits(_list_commits(results, record))
    return lines


def _describe_commits(commits: Sequence[str | None]) -> Iterator[str]:
    """Sentence on runs of several commits, from the commit of each run; None is not known."""
    if len(known := set(commits)) > 1:
        unknown, number = commits.count(None), len(known - {None})
        yield (
            f"Runs are of {'one commit' if number == 1 else f'{number} commits'} of the code"
            f"{f', and {unknown} of one that is not known' * bool(unknown)}: differences between "
            f"them may be of the code."
        )


def tabulate_rows(rows: Sequence[RowSummary], measures: Sequence[str]) -> Table:
    """Table rows: measures with the best, stars and intervals, the model, its cost."""
    places = {
        (line, column): value
        for line, row in enumerate(rows)
        for column, measure in enumerate(measures, start=1)
        if (value := row.measured.get(measure)) is not None
    }
    lines = [
        [
            row.name,
            *(format_value(row.measured.get(measure)) for measure in measures),
            {None: "-", True: "yes", False: "no", "tree": "tree"}[row.blend],
            ", ".join(row.features) or "-",
            row.start or "-",
            str(row.runs),
            number(row.parameters),
            rounded(row.train_seconds, 4),
            rounded(row.seconds_per_epoch, 3),
            number(row.peak_mib, ",.0f"),
        ]
        for row in rows
    ]
    return Table(
        ["", *measures, *_MODEL, *_COST],
        lines,
        best=frozenset(place for place, value in places.items() if value.is_best),
        stars={place: value.stars for place, value in places.items() if value.stars},
        below={
            place: _format_interval(value)
            for place, value in places.items()
            if value.interval is not None
        },
    )


def tabulate_expected(rows: Sequence[RowSummary], measures: Sequence[str]) -> Table | None:
    """Table of published values and our differences to them; None without any."""
    lines = []
    for row in rows:
        values = [row.measured.get(measure) for measure in measures]
        if any(value is not None and value.expected for value in values):
            lines.append([row.name, *map(_format_expected, values)])
    caption = "What is published, and in brackets the difference of ours"
    return Table(["", *measures], lines, caption=caption) if lines else None


def tabulate_best(
    found: Mapping[str, Mapping[str, float]],
    columns: Sequence[str],
    name: str,
    lower_is_better: bool = False,
) -> Table:
    """Table of fractions, the best of each column marked; "-" for missing ones."""
    frame = pd.DataFrame([*found.values()], columns=[*columns], dtype=float)
    best = frame.min() if lower_is_better else frame.max()
    row, column = (frame == best).to_numpy().nonzero()
    lines = [
        [name, *(fraction(values.get(column)) for column in columns)]
        for name, values in found.items()
    ]
    places = zip(row.tolist(), (column + 1).tolist(), strict=True)
    return Table([name, *columns], lines, frozenset(places))


def tabulate_grid(
    points: pd.DataFrame, keys: Sequence[str], measures: Sequence[str]
) -> Iterator[Table]:
    """Table per measure of a grid: a row per value of the first setting, a column of the second."""
    if points.empty:
        return
    down, across = keys
    for measure in measures:
        of_measure = points[points["measure"] == measure]
        if of_measure.empty:  # the data set lacks it
            continue
        found: dict[str, dict[str, float]] = {}
        for first, second, mean in of_measure[[down, across, "mean"]].itertuples(index=False):
            found.setdefault(f"{down}={first}", {})[f"{across}={second}"] = mean
        columns = list(dict.fromkeys(name for values in found.values() for name in values))
        yield tabulate_best(found, columns, measure, measure in LOWER_IS_BETTER)


def format_value(value: Value | None, digits: int = 4) -> str:
    """Formats a mean with its deviation; "-" for None."""
    if value is None:
        return "-"
    spread = "" if value.std is None else f" ± {fraction(value.std, digits)}"
    return f"{fraction(value.mean, digits)}{spread}"


def _format_interval(value: Value) -> str:
    """Formats an interval; with signs if it is of a difference."""
    show = fraction if value.documents is None else signed
    return f"[{', '.join(map(show, value.interval or ()))}]"


def _format_expected(value: Value | None) -> str:
    if value is None or value.difference is None:
        return "-"
    return f"{fraction(value.expected[0])} ({signed(value.difference)})"
