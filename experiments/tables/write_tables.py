"""Tables of README and RESULTS.md, written from the results that lie beside the experiments.

    python experiments/tables/write_tables.py                           writes them
    python experiments/tables/write_tables.py --take FOLDER --as NAME   takes results first

A table stands between two comments. The first one names a data set and measures, or a measure of
some rows on all data sets:

    <!-- table: encoders/cacm NDCG@5 P@1 -->
    <!-- summary: encoders NDCG@5: MATCH | TF-IDF + linear -->
    <!-- end -->
"""

import argparse
import re
import sys
from pathlib import Path

from match_graph.benchmark import read_results
from match_graph.errors import MatchGraphError
from match_graph.report.benchmark_tables import collect_notes, make_legend, tabulate_rows
from match_graph.report.summary import Value, publish, summarize

HERE = Path(__file__).resolve().parents[1]
FILES = [HERE.parent / "README.md", *sorted(HERE.glob("*/RESULTS.md"))]
TABLE = re.compile(r"(<!-- table: (\S+)/(\S+)((?: \S+)+) -->\n).*?(<!-- end -->)", re.DOTALL)
SUMMARY = re.compile(r"(<!-- summary: (\S+) (\S+): ([^\n]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def make_table(experiment: str, dataset: str, measures: list[str]) -> str:
    """Table, legend and notes of a data set in Markdown."""
    results = read_results(HERE / experiment / "results.json")
    [record] = [one for one in results.datasets if one.name == dataset]
    rows = [row for row in summarize(results, dataset) if row.runs]
    lines = [*make_legend(results, record, rows), *collect_notes(rows)]
    table = tabulate_rows(rows, measures).to_markdown()
    return f"\n{table}\n\n" + "".join(f"- {line}\n" for line in lines) + "\n"


def make_summary(experiment: str, measure: str, names: list[str]) -> str:
    """A measure of some rows on every data set: mean and 95 % interval over documents."""
    results = read_results(HERE / experiment / "results.json")
    reference = results.experiment.reference
    lines = [
        f"| | training documents, labels | {' | '.join(names)} |",
        f"|---|--:|{'--:|' * len(names)}",
    ]
    runs = set()
    for record in results.datasets:
        rows = {row.name: row for row in summarize(results, record.name)}
        found = {name: rows[name] for name in names if name in rows and rows[name].runs}
        runs |= {row.runs for row in found.values()}
        cells = [
            _show(found[name].measured[measure], name == reference) if name in found else "-"
            for name in names
        ]
        size = f"{record.documents['train']:,}, {record.num_labels:,}"
        lines.append(f"| {record.name} | {size} | {' | '.join(cells)} |")
    *first, last = map(str, sorted(runs) or [0])
    seeds = f"{', '.join(first)} or {last}" if first else last
    kind = "one seed" if seeds == "1" else f"mean of {seeds} seeds"
    about = (
        f"{measure} on {results.experiment.split}, {kind} [95 % interval over documents of the "
        f"difference to {reference}, for it of the mean]."
    )
    return "\n" + "\n".join(lines) + f"\n\n{about}\n\n"


def _show(value: Value, is_reference: bool) -> str:
    mean = f"{value.mean:.3f}".lstrip("0")
    if value.interval is None:
        return mean
    low, high = value.interval
    if is_reference:
        return f"{mean} [{low:.3f}, {high:.3f}]".replace("0.", ".")
    return f"{mean} [{low:+.3f}, {high:+.3f}]".replace("0.", ".")


def fill(text: str) -> str:
    """The text with all of its tables as the results give them."""
    text = TABLE.sub(
        lambda found: found[1] + make_table(found[2], found[3], found[4].split()) + found[5], text
    )
    return SUMMARY.sub(
        lambda found: found[1] + make_summary(found[2], found[3], found[4].split(" | ")) + found[5],
        text,
    )


def take(folder: Path, name: str) -> None:
    """Publishes the results of a benchmark beside the experiment of that name."""
    publish(read_results(folder), folder, HERE / name)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--take", type=Path, help="folder of a benchmark")
    parser.add_argument("--as", dest="name", help="name of the experiment")
    given = parser.parse_args()
    if (given.take is None) != (given.name is None):
        parser.error("--take and --as belong together")
    if given.take:
        if not (HERE / given.name).is_dir():
            parser.error(f"--as must name a folder of {HERE}, found '{given.name}'")
        try:
            take(given.take, given.name)
        except MatchGraphError as error:
            sys.exit(f"Error: {error}")
    for path in FILES:
        path.write_text(fill(path.read_text(encoding="utf-8")), encoding="utf-8")
