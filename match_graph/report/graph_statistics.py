"""Statistics of a built graph as Markdown and figures: ``build --report``."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from match_graph.datasets import CorpusDataset
from match_graph.errors import MatchGraphError
from match_graph.graph import describe_graph
from match_graph.graph.statistics import (
    count_degrees,
    count_duplicates,
    describe_coverage,
    describe_degrees,
    describe_depths,
    describe_parents,
)
from match_graph.io.files import write_text
from match_graph.io.progress import Reporter
from match_graph.report.figures import make_figure, save_figure
from match_graph.report.tables import Table
from match_graph.typing import SPLITS

REPORT = "REPORT.md"
_DOCUMENT_ENDS = ("document", "training document", "citing document")
#: Columns that are fractions.
_SHARES = {"without", "with a value", "values unseen in training", "only unseen values", "share"}


@dataclass(frozen=True)
class _Part:
    """Section of the report: a table, and for some a figure."""

    title: str
    about: str
    describe: Callable[[CorpusDataset], pd.DataFrame]
    picture: str = ""
    draw: Callable[[Any, CorpusDataset, pd.DataFrame], None] | None = None


def write_graph_report(
    dataset: CorpusDataset, folder: str | Path, reporter: Reporter | None = None
) -> list[Path]:
    """Writes ``REPORT.md`` and, where matplotlib is installed, its figures.

    Args:
        dataset: Built data set.
        folder: Target folder, made if need be; files of the same names are replaced.
        reporter: Reporter, warned if there can be no figures; None prints nothing.

    Returns:
        Paths of the written files, the Markdown first.
    """
    path = Path(folder) / REPORT
    rows = {**describe_graph(dataset.graph, dataset.targets), **dataset.notes}
    values = pd.Series(
        {name.replace("_", " "): value for name, value in rows.items()}, dtype=object
    )
    text = [
        f"# {dataset.name}",
        f"SHA-256 of inputs and options: `{dataset.checksum[:16]}...`",
        _tabulate(values.to_frame("")).to_markdown(),
    ]
    fault, pictures = _find_fault(), []
    if fault and reporter is not None:
        reporter.warn(fault)
    text += [fault] if fault else []
    for part in _PARTS:
        table = part.describe(dataset)
        text += [f"## {part.title}", part.about]
        if part.draw is not None and not fault:
            figure = make_figure(8, 4.5, layout="constrained")
            part.draw(figure, dataset, table)
            pictures.append(path.with_name(part.picture))
            save_figure(figure, pictures[-1], dpi=120)
            text.append(f"![{part.title}]({part.picture})")
        text.append(_tabulate(table).to_markdown())
    write_text(path, "\n\n".join(text) + "\n")
    return [path, *pictures]


def _find_fault() -> str:
    """Sentence on why there can be no figures; empty if there can."""
    try:
        make_figure(1, 1)
    except MatchGraphError as error:
        return str(error)
    return ""


def _tabulate(frame: pd.DataFrame) -> Table:
    """Table of a frame, with a column of names for each level of its index."""
    columns = frame.columns
    rows = [
        [*map(str, index), *map(_format, row, columns.isin(_SHARES).tolist())]
        for index, row in zip(
            frame.index.to_frame().to_numpy(), frame.astype(object).to_numpy(), strict=True
        )
    ]
    heads = [str(name or "") for name in (*frame.index.names, *columns)]
    return Table(heads, rows, num_names=frame.index.nlevels)


def _format(value: Any, is_share: bool) -> str:
    if isinstance(value, float) and np.isnan(value):
        return "-"
    if is_share:
        return f"{value:.4f}"
    return f"{value:,.2f}" if isinstance(value, float) else f"{value:,}"


def _draw_degrees(figure: Any, dataset: CorpusDataset, _: pd.DataFrame) -> None:
    """Complementary distribution of degrees, on logarithmic axes; a colour per edge type."""
    axes = figure.subplots(1, 2, sharey=True)
    edge_types = [" ".join(edge_type) for edge_type in dataset.graph.edge_types]
    for name, degree in count_degrees(dataset.graph).items():
        values = np.sort(degree.numpy()[degree.numpy() > 0])
        if not len(values):
            continue
        unique, first = np.unique(values, return_index=True)
        edge_type, end = name.split(", per ")
        axes[0 if end in _DOCUMENT_ENDS else 1].step(
            unique,
            1 - first / len(values),
            where="post",
            color=f"C{edge_types.index(edge_type) % 10}",
            linestyle="--" if end == "parent" else "-",
            label=f"{edge_type}, per {end}" if end in ("child", "parent") else edge_type,
        )
    for axis, title in zip(axes, ("per document", "per node at the other end"), strict=True):
        axis.set(xscale="log", yscale="log", xlabel="edges, at least", title=title)
    axes[0].set_ylabel("share of the nodes with edges")
    lines = {line.get_label(): line for axis in axes for line in axis.get_lines()}
    figure.legend(lines.values(), lines, loc="outside lower center", ncols=3, fontsize="x-small")


def _draw_labels(figure: Any, dataset: CorpusDataset, _: pd.DataFrame) -> None:
    """Training documents per label by rank, and labels by depth."""
    train = dataset.documents("train_mask")
    count = np.sort(dataset.targets.count(train).numpy())[::-1]
    frequency, depths = figure.subplots(1, 2)
    seen = count[count > 0]
    if len(seen):  # a logarithmic axis needs a value
        frequency.loglog(np.arange(1, len(seen) + 1), seen)
    frequency.set(xlabel="rank of the label", ylabel="training documents")
    depth = np.bincount(dataset.hierarchy.depth.numpy())
    depths.bar(np.arange(len(depth)), depth)
    depths.set(xlabel="depth", ylabel="labels", xticks=np.arange(len(depth)))


def _draw_coverage(figure: Any, _: CorpusDataset, table: pd.DataFrame) -> None:
    """Shares of documents with a value, and of values unseen in training, by field and split."""
    axes = figure.subplots(1, 2, sharey=True)
    for axis, column in zip(axes, ("with a value", "values unseen in training"), strict=True):
        fields = table.index.unique("field")
        places = np.arange(len(fields))
        for number, split in enumerate(SPLITS):
            shares = table[column].xs(split, level="split").fillna(0)
            axis.barh(places + (number - 1) * 0.27, shares, 0.25, label=split)
        axis.set(xlim=(0, 1), xlabel=column, yticks=places)
        axis.set_yticklabels(fields)
    axes[0].invert_yaxis()  # shared by both panels
    axes[0].legend(fontsize="small")


def _draw_parents(figure: Any, _: CorpusDataset, table: pd.DataFrame) -> None:
    """Hierarchy edges by tenths of P(parent | child)."""
    axis = figure.subplots()
    counts = table["edges"].iloc[1:]
    axis.bar(np.arange(10) / 10 + 0.05, counts, 0.09)
    axis.set(xlabel="P(parent | child) in training", ylabel="hierarchy edges", xlim=(0, 1))


_PARTS = (
    _Part(
        "Degrees",
        "Edges per node. A document `contains` a word once per occurrence; `tagged` edges are gold "
        "labels of training.",
        lambda dataset: describe_degrees(dataset.graph),
        "degrees.png",
        _draw_degrees,
    ),
    _Part(
        "Labels by depth",
        "Depth counts edges on the longest path to a root; labels outside the hierarchy have 0.",
        lambda dataset: describe_depths(dataset.graph, dataset.targets),
        "labels.png",
        _draw_labels,
    ),
    _Part(
        "Metadata and words by split",
        "How many documents have a value, and how much of it training never saw.",
        lambda dataset: describe_coverage(dataset.graph),
        "coverage.png",
        _draw_coverage,
    ),
    _Part(
        "P(parent | child) in training",
        "Of the training documents with the child, the share with the parent: near 1 where labels "
        "are closed upwards, near 0 where documents carry the most specific label alone. It "
        "decides whether hypernymy regularization can help.",
        lambda dataset: describe_parents(dataset.graph, dataset.targets),
        "parents.png",
        _draw_parents,
    ),
    _Part(
        "Equal texts",
        "Documents whose word sequence another document has. Those of test or valid that stand in "
        "train make measures too good.",
        lambda dataset: count_duplicates(dataset.graph),
    ),
)
