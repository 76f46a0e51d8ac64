"""Tables of README and RESULTS.md, written from the results that lie beside the experiments.

    python experiments/write_tables.py                              writes them
    python experiments/write_tables.py --take runs/NAME --as NAME   with a benchmark's results

A table stands between two comments, the first of which names results and measures:

    <!-- table: encoders/cacm NDCG@5 P@1 -->
    <!-- end -->
"""

import argparse
import re
from pathlib import Path

from match_graph.benchmark import read_results
from match_graph.report.benchmark_tables import collect_notes, make_legend, tabulate_rows
from match_graph.report.summary import publish, summarize

HERE = Path(__file__).resolve().parent
FILES = [HERE.parent / "README.md", *sorted(HERE.glob("*/RESULTS.md"))]
BLOCK = re.compile(r"(<!-- table: (\S+)/(\S+)((?: \S+)+) -->\n).*?(<!-- end -->)", re.DOTALL)


def make_table(experiment: str, dataset: str, measures: list[str]) -> str:
    """Table, legend and notes of a data set in Markdown."""
    results = read_results(HERE / experiment / "results.json")
    [record] = [one for one in results.datasets if one.name == dataset]
    rows = [row for row in summarize(results, dataset) if row.runs]
    lines = [*make_legend(results, record, rows), *collect_notes(rows)]
    table = tabulate_rows(rows, measures).to_markdown()
    return f"\n{table}\n\n" + "".join(f"- {line}\n" for line in lines) + "\n"


def fill(text: str) -> str:
    """The text with all of its tables as the results give them."""
    return BLOCK.sub(
        lambda found: found[1] + make_table(found[2], found[3], found[4].split()) + found[5], text
    )


def take(folder: Path, name: str) -> None:
    """Publishes the results of a benchmark beside the experiment of that name."""
    text = publish(read_results(folder), folder).model_dump_json(indent=1)
    (HERE / name / "results.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--take", type=Path, help="folder of a benchmark")
    parser.add_argument("--as", dest="name", help="name of the experiment")
    given = parser.parse_args()
    if given.take:
        take(given.take, given.name)
    for path in FILES:
        path.write_text(fill(path.read_text(encoding="utf-8")), encoding="utf-8")
