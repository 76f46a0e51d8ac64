"""Tables and figures of README and of the pages of experiments, written from the results there.

    python experiments/tables/write_tables.py                           writes them
    python experiments/tables/write_tables.py --take FOLDER --as NAME   takes results first

A table stands between two comments. The first one names a data set and measures, which stand behind
NDCG@5 on validation where they are of another split; data sets, and a measure by which some rows
differ from the reference; or experiments and a measure of some rows on all of their data sets:

    <!-- table: encoders/cacm NDCG@5 P@1 -->
    <!-- differences: encoders/cacm encoders/biotools NDCG@5: MATCH-NoBlend | Omikuji -->
    <!-- differences: defaults/cacm_1130 NDCG@5 less bare: only blend | only LSA -->
    <!-- summary: encoders encoders/sigma NDCG@5: MATCH | TF-IDF + linear -->
    <!-- search: encoders/tuned_3000 -->
    <!-- speed: step predict -->
    <!-- speed summary: step predict -->
    <!-- end -->

A search is the trials.csv of `match-graph tune`. The last two name stages of speed/measured.jsonl,
the output of `match-graph speed all --json`.
"""

import argparse
import json
import math
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pandas as pd

from match_graph.benchmark import Results, read_results
from match_graph.benchmark.experiment import LOWER_IS_BETTER
from match_graph.errors import MatchGraphError
from match_graph.report.benchmark_tables import format_value, make_legend, tabulate_rows
from match_graph.report.plots import write_figure
from match_graph.report.summary import Value, collect_notes, publish, summarize
from match_graph.report.tables import Table, fraction, signed

HERE = Path(__file__).resolve().parents[1]
FILES = [HERE.parent / "README.md", *sorted(HERE.glob("*/*.md"))]
#: Heading of the measure by which epochs and defaults are chosen.
VALIDATION = "validation NDCG@5"
#: Stars of a summary after a mean, and their meaning.
_MARKS = {"\\*": "worse", "+": "better"}
#: What the comment of a table holds after its kind: for a message, and as an expression.
FORMS = {
    "table": ("EXPERIMENT/DATASET MEASURE ...", r"\S+/\S+( \S+)+"),
    "differences": ("EXPERIMENT/DATASET ... MEASURE: ROW | ROW", r"(\S+/\S+ )+\S+( less .+)?: .+"),
    "summary": ("EXPERIMENT ... MEASURE: ROW | ROW", r"(\S+ )+\S+: .+"),
    "search": ("EXPERIMENT/SEARCH", r"\S+"),
    "speed": ("STAGE ...", r"\S+( \S+)*"),
}
#: A written table: the comment before it, with its kind and what it shows, and the one after it.
WRITTEN = re.compile(
    r"(<!-- (table|differences|summary|search|speed|speed summary): ([^\n]+) -->\n)"
    r".*?(<!-- end -->)",
    re.DOTALL,
)


def make_table(experiment: str, dataset: str, measures: list[str]) -> str:
    """Table, legend and notes of a data set in Markdown."""
    results = read(experiment, measures)
    record = next((one for one in results.datasets if one.name == dataset), None)
    if record is None:
        names = ", ".join(one.name for one in results.datasets)
        raise MatchGraphError(
            f"A table must be of a data set of its experiment, found '{dataset}' of {experiment}; "
            f"take one of {names}."
        )
    rows = [row for row in summarize(results, dataset) if row.runs]
    lines = [*make_legend(results, record, rows), *collect_notes(rows)]
    table = tabulate_rows(rows, measures)
    if results.experiment.split != "valid" and "valid" in record.documents:
        table = add_validation(table, results, dataset)
        number = record.documents["valid"]
        rest = f"the other measures of {results.experiment.split}"
        lines.insert(1, f"{VALIDATION} is of {number:,} documents, {rest}.")
    return f"\n{table.to_markdown()}\n\n" + "".join(f"- {line}\n" for line in lines) + "\n"


def read(experiment: str, measures: list[str]) -> Results:
    """Results of an experiment with some measures."""
    results = read_results(HERE / experiment / "results.json")
    if unknown := [one for one in measures if one not in results.experiment.measures]:
        raise MatchGraphError(
            f"The measures of a table must be among those of its experiment, "
            f"{results.experiment.measures}, found '{unknown[0]}' of {experiment}; take another."
        )
    return results


def check_rows(what: str, names: Iterable[str], known: Iterable[str], where: str) -> None:
    """Checks that the rows that a comment asks for are there, run or not."""
    known = [*known]
    if unknown := [name for name in names if name not in known]:
        raise MatchGraphError(
            f"{what} must be of rows of {where}, found '{unknown[0]}'; take some of "
            f"{', '.join(known)}."
        )


def name_reference(references: set[str], experiments: list[str]) -> str:
    """The row that all columns of a table are compared with."""
    if len(references) != 1 or "None" in references:
        raise MatchGraphError(
            f"The columns of a table must have one row of reference, found "
            f"{', '.join(sorted(references))} in {', '.join(experiments)}; take them apart."
        )
    return references.pop()


def add_validation(table: Table, results: Results, dataset: str) -> Table:
    """The table with NDCG@5 on validation, by which settings are chosen, after the names."""
    chosen = take_validation(results, "NDCG@5")
    found = {row.name: row.measured.get("NDCG@5") for row in summarize(chosen, dataset)}
    best = {
        (row, 1)
        for row, (name, *_) in enumerate(table.rows)
        if (value := found[name]) is not None and value.is_best
    }
    places = {
        place: (place[0], place[1] + 1) for place in (*table.best, *table.stars, *table.below)
    }
    return replace(
        table,
        columns=[table.columns[0], VALIDATION, *table.columns[1:]],
        rows=[[name, format_value(found[name]), *cells] for name, *cells in table.rows],
        best=frozenset({places[place] for place in table.best} | best),
        stars={places[place]: stars for place, stars in table.stars.items()},
        below={places[place]: text for place, text in table.below.items()},
    )


def take_validation(results: Results, measure: str) -> Results:
    """The same results by one measure on validation, which has no published tests."""
    update = {"split": "valid", "measures": [measure]}
    experiment = results.experiment.model_copy(update=update)
    datasets = [record.model_copy(update={"tests": []}) for record in results.datasets]
    return results.model_copy(update={"experiment": experiment, "datasets": datasets})


def join_rows(columns: list[str], rows: Iterable[Sequence[str]]) -> str:
    """Markdown table of rows that begin with a name; cells are Markdown already."""
    lines = [f"| | {' | '.join(columns)} |", f"|---|{'--:|' * len(columns)}"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def make_differences(
    places: list[str], measure: str, names: list[str], base: str | None = None
) -> str:
    """Table of a measure of the reference, and of differences of some rows to it.

    Each data set has a column for validation and one for the split of the experiment. ``base`` is
    another row to compare with, for which there are no tests.
    """
    head, columns, references = list[str](), list[list[str]](), set[str]()
    for place in places:
        experiment, _, dataset = place.rpartition("/")
        results = read(experiment, [measure])
        references.add(base or str(results.experiment.reference))
        by_split = {"validation": take_validation(results, measure)}
        if results.experiment.split != "valid":
            by_split[results.experiment.split] = results
        for split, of_split in by_split.items():
            head.append(f"{dataset},<br>{split}")
            columns.append(_compare(of_split, dataset, measure, names, base))
    reference = name_reference(references, places)
    text = join_rows(head, zip((reference, *names), *columns, strict=True))
    about = f"{measure} of {reference}, and the difference of every other row to it"
    if " of " in text:
        about += "; (k of n): mean over the n common seeds; in k of them the row is worse"
    if "[" in text:
        about += (
            "; [95 % interval over documents]: mean over all seeds of each; stars as in the full "
            "tables"
        )
    return f"\n{text}\n\n{about}.\n\n"


def _compare(
    results: Results, dataset: str, measure: str, names: list[str], base: str | None
) -> list[str]:
    """Cells of a column of differences, that of the reference first."""
    reference = base or str(results.experiment.reference)
    rows = {row.name: row.measured.get(measure) for row in summarize(results, dataset)}
    check_rows("Differences", [reference, *names], rows, dataset)
    of_reference = results.find_values(dataset, reference, measure)
    if not of_reference:
        raise MatchGraphError(
            f"Differences must be to a row that was run, but {reference} on {dataset} has no "
            f"{results.experiment.split} {measure}; take the data set out."
        )
    cells = [_shorten(f"{fmean(of_reference.values()):.4f}")]
    for name in names:
        value, by_seed = rows[name], results.find_values(dataset, name, measure)
        if value is None:
            cells.append("-")
        elif base or value.documents is None or value.interval is None:
            found = [by_seed[seed] - of_reference[seed] for seed in by_seed if seed in of_reference]
            signs = [(one > 0) if measure in LOWER_IS_BETTER else (one < 0) for one in found]
            if not found:
                cells.append("-")
                continue
            cells.append(_shorten(f"{signed(fmean(found))} ({sum(signs)} of {len(found)})"))
        else:
            low, high = value.interval
            difference = f"{signed(value.documents.difference)}{value.stars}".replace("*", "\\*")
            cells.append(_shorten(f"{difference}<br>[{signed(low)}, {signed(high)}]"))
    return cells


def make_summary(experiments: list[str], measure: str, names: list[str]) -> str:
    """Table of a measure of some rows on every data set of some experiments.

    It has means, 95 % intervals over documents, and stars.
    """
    head, splits, references = list[str](), set[str](), set[str]()
    cells: dict[str, list[str]] = {name: [] for name in names}
    runs: dict[int, dict[str, list[str]]] = {}
    known: dict[str, None] = {}  # names of rows, in order
    for experiment in experiments:
        results = read(experiment, [measure])
        reference = str(results.experiment.reference)
        references.add(reference)
        splits.add(results.experiment.split)
        for record in results.datasets:
            rows = {row.name: row for row in summarize(results, record.name)}
            known |= dict.fromkeys(rows)
            documents, labels = record.documents["train"], record.num_labels
            head.append(f"{record.name}<br>{documents:,} documents<br>{labels:,} labels")
            for name in names:
                row = rows.get(name)
                if row is None or not row.runs:
                    cells[name].append("-")
                    continue
                runs.setdefault(row.runs, {}).setdefault(name, []).append(record.name)
                cells[name].append(_show(row.measured[measure], name == reference))
    check_rows("A summary", names, known, " or ".join(experiments))
    reference = name_reference(references, experiments)
    text = join_rows(head, ([name, *found] for name, found in cells.items()))
    kind = _describe_runs(runs)
    about = f"{measure} on {' and '.join(sorted(splits))}, {kind}"
    if "<br>[" in text:
        of = f"the difference to {reference}, or of {reference}'s mean"
        about += f" [95 % interval over documents of {of}]"
    for mark, word in _MARKS.items():
        if f"{mark}<br>" in text:
            about += (
                f"; {mark} significantly {word} than {reference} (p < .05), {mark * 2} (p < .01)"
            )
    return f"\n{text}\n\n{about}.\n\n"


def _describe_runs(runs: dict[int, dict[str, list[str]]]) -> str:
    """Number of seeds of most cells, and the rows and data sets with another number."""
    sizes = {number: sum(map(len, rows.values())) for number, rows in runs.items()}
    most = max(sizes, key=lambda number: sizes[number], default=0)
    others = []
    for number, rows in sorted(runs.items()):
        if number != most:
            places: dict[str, list[str]] = {}
            for name, where in rows.items():
                places.setdefault(" and ".join(where), []).append(name)
            found = [f"{', '.join(names)} on {where}" for where, names in places.items()]
            others.append(f"{number}: {'; '.join(found)}")
    kind = "one seed" if most == 1 else f"mean of {most} seeds"
    return f"{kind} ({'; '.join(others)})" if others else kind


def make_search(name: str) -> str:
    """Table of a search: the first trial of each row, at its defaults, and the best one."""
    path = HERE / name / "trials.csv"
    if not path.is_file():
        raise MatchGraphError(
            f"A table of a search must have its trials, but there is no {path}; name a folder with "
            f"the trials.csv of `match-graph tune`."
        )
    trials = pd.read_csv(path)
    keys = [column for column in trials.columns if "." in column]
    lines: list[tuple[float, list[str]]] = []
    for row, of_row in trials.groupby("row", sort=False):
        some = of_row.to_dict("records")
        best = max(some, key=lambda one: -math.inf if pd.isna(one["value"]) else one["value"])
        values = [_show_setting(one["value"], ".4f") for one in (some[0], best)]
        counts = [f"{best['trial'] + 1} of {len(some)}", str(sum(of_row["state"] == "pruned"))]
        settings = [_show_setting(best[key], ".2g") for key in keys]
        lines.append((best["value"], [str(row), *values, *counts, *settings]))
    lines.sort(key=lambda line: -line[0])
    short = [key.rpartition(".")[2].replace("_", " ") for key in keys]
    columns = ["", "first trial", "best", "which", "pruned", *short]
    return f"\n{Table(columns, [line for _, line in lines]).to_markdown()}\n\n"


def _show_setting(value: object, form: str) -> str:
    """A formatted number, or a choice as it is; "-" for none, as in a failed trial."""
    if pd.isna(value):
        return "-"
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return _shorten(format(value, form)) if is_number else str(value)


def make_speed(stages: list[str], is_summary: bool) -> str:
    """Measured rates of some stages, beside their baselines.

    A summary has a row for each stage, and leaves out what was measured on, the rates of the
    baselines, and other ways of ours among these.
    """
    path = HERE / "speed" / "measured.jsonl"
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    if unknown := [one for one in stages if one not in {line["stage"] for line in lines}]:
        raise MatchGraphError(
            f"The stages of a table must be measured in {path}, found '{unknown[0]}'; add it with "
            f"`match-graph speed {unknown[0]} --json`."
        )
    rows, summary = list[list[str]](), list[list[str]]()
    for stage in stages:
        beside = []
        for line in (line for line in lines if line["stage"] == stage):
            name, _, told = line["baseline"].rpartition(": ")
            baseline = float(told.removesuffix(line["unit"]).replace(",", ""))
            digits = 1 - math.floor(math.log10(line["ratio"]))
            ratio = f"{round(line['ratio'], digits):g}"  # two digits: no third one is stable
            ours, theirs = (f"{rate:,.0f} {line['unit']}" for rate in (line["rate"], baseline))
            rows.append([stage, line["size"], ours, name, theirs, ratio])
            beside += [] if name.startswith("ours") else [f"{ratio} {name}"]
        summary.append([stage, ours, "; ".join(beside)])
    if is_summary:
        table = Table(["", "ours", "times as fast as"], summary)
    else:
        columns = ["", "size", "ours", "baseline", "its rate", "times as fast"]
        table = Table(columns, rows, num_names=2)
    return f"\n{table.to_markdown()}\n\n"


def _shorten(text: str) -> str:
    """Fractions without the 0 before their point."""
    return re.sub(r"(?<!\d)0\.", ".", text)


def _show(value: Value, is_reference: bool) -> str:
    mean = f"{value.mean:.3f}{value.stars}".replace("*", "\\*")
    if value.interval is None:
        return _shorten(mean)
    show = fraction if is_reference else signed
    low, high = (show(bound, 3) for bound in value.interval)
    return _shorten(f"{mean}<br>[{low}, {high}]")


def fill(text: str) -> str:
    """The text with all of its tables written anew from the results."""
    return WRITTEN.sub(lambda found: found[1] + make(found[2], found[3]) + found[4], text)


def make(kind: str, wanted: str) -> str:
    """Table of a kind, for what its comment asks for."""
    form, pattern = FORMS[kind.removesuffix(" summary")]
    if not re.fullmatch(pattern, wanted):
        raise MatchGraphError(
            f"The comment of a table must be '<!-- {kind}: {form} -->', found "
            f"'<!-- {kind}: {wanted} -->'; complete it."
        )
    head, _, names = wanted.partition(": ")
    rows = names.split(" | ")
    if kind == "table":
        place, *measures = wanted.split()
        experiment, _, dataset = place.rpartition("/")
        return make_table(experiment, dataset, measures)
    if kind == "differences":
        head, _, base = head.partition(" less ")
        *places, measure = head.split()
        return make_differences(places, measure, rows, base or None)
    if kind == "summary":
        *experiments, measure = head.split()
        return make_summary(experiments, measure, rows)
    if kind == "search":
        return make_search(wanted)
    return make_speed(wanted.split(), kind == "speed summary")


def write_figures(target: Path = HERE) -> None:
    """Writes grids and bars beside their results; curves have none, as no history is published."""
    for path in sorted(HERE.rglob("results.json")):
        results = read_results(path)
        if results.experiment.figure == "none":
            continue
        for record in results.datasets:
            rows = summarize(results, record.name)
            write_figure(target / path.parent.relative_to(HERE), results, record, rows)


def take(folder: Path, name: str) -> None:
    """Publishes the results of a benchmark in the folder of an experiment."""
    publish(read_results(folder), folder, HERE / name)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--take", type=Path, help="folder of a benchmark")
    parser.add_argument("--as", dest="name", help="name of the experiment")
    given = parser.parse_args()
    if (given.take is None) != (given.name is None):
        parser.error("--take and --as belong together")
    if given.take and not (HERE / given.name).is_dir():
        parser.error(f"--as must name a folder of {HERE}, found '{given.name}'")
    try:
        if given.take:
            take(given.take, given.name)
        for path in FILES:
            path.write_text(fill(path.read_text(encoding="utf-8")), encoding="utf-8")
        write_figures()
    except MatchGraphError as error:
        sys.exit(f"Error: {error}")
