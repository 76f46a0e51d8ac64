"""Layout of a label's neighbourhood in the hierarchy, parents above children."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from match_graph.predict.case_study import CaseLabel, Variant
from match_graph.report.page.charts import WIDTH, shorten
from match_graph.report.tables import Table

#: Height of a row, width of a level, where rows begin, and where probabilities do.
_ROW, _LEVEL, _LEFT, _SHARES = 22, 16, 22, 270
#: Width of a letter, rather too much.
_LETTER = 6.4


@dataclass(frozen=True)
class Row:
    """Label on the canvas.

    Args:
        label: Label of the case study.
        text: Id and name of the label as far as they fit.
        x: Horizontal position of its dot.
        y: Vertical position of its dot.
        probability: Probability by the variant, in 0..1.
        rank: Rank among the variant's predicted labels, from 1; 0 if it is none of these.
    """

    label: CaseLabel
    text: str
    x: float
    y: float
    probability: float
    rank: int


@dataclass(frozen=True)
class Edge:
    """Edge from child to parent, as a path between their dots.

    Args:
        path: Path in the syntax of SVG's ``d``.
        is_violated: Whether the child is more probable than the parent.
        text: Text of both labels with their probabilities.
    """

    path: str
    is_violated: bool
    text: str


@dataclass(frozen=True)
class LabelRows:
    """Hierarchy around a document with the probabilities of one variant.

    Args:
        labels: Labels of the case study, parents before children.
        variant: Variant whose probabilities are shown.
    """

    kind: ClassVar[str] = "labels"
    width: ClassVar[int] = WIDTH
    labels: Sequence[CaseLabel]
    variant: Variant

    @property
    def title(self) -> str:
        """Title that names the shown labels."""
        return "Labels around the document"

    @property
    def height(self) -> int:
        """Height of the canvas."""
        return _ROW * len(self.labels) + 6

    @cached_property
    def rows(self) -> list[Row]:
        """Labels from top to bottom."""
        rank = {one.label: place for place, one in enumerate(self.variant.predictions, start=1)}
        rows = []
        for number, (label, level) in enumerate(arrange(self.labels)):
            x = _LEFT + _LEVEL * level
            name = label.label if label.name is None else f"{label.label} {label.name}"
            text = shorten(name, max(4, int((_SHARES - x - 14) / _LETTER)))
            share = self.variant.probability[label.label]
            y = number * _ROW + _ROW / 2 + 2
            rows.append(Row(label, text, x, y, share, rank.get(label.label, 0)))
        return rows

    @cached_property
    def edges(self) -> list[Edge]:
        """Edges from every child to each of its parents."""
        place = {row.label.label: row for row in self.rows}
        return [
            _draw_edge(child, place[parent])
            for child in self.rows
            for parent in child.label.parents
        ]

    @property
    def num_violated(self) -> int:
        """Number of edges whose child is more probable than the parent."""
        return sum(edge.is_violated for edge in self.edges)

    @property
    def data(self) -> Table:
        """Data table of all labels with their parents."""
        rows = [
            [
                row.label.label,
                f"{row.probability:.4f}",
                "gold" if row.label.is_gold else "",
                str(row.rank or ""),
                ", ".join(row.label.parents),
            ]
            for row in self.rows
        ]
        return Table(["label", "probability", "gold", "rank", "parents"], rows)


def arrange(labels: Sequence[CaseLabel]) -> list[tuple[CaseLabel, int]]:
    """Order of labels in which each follows all of its parents, the last of them closely.

    Args:
        labels: Labels with all of their parents; siblings stay in their order.

    Returns:
        Each label with its level: one more than that of the parent that it follows.
    """
    known = {label.label: label for label in labels}
    waiting = {label.label: len(label.parents) for label in labels}
    below: dict[str, list[str]] = {name: [] for name in known}
    for label in labels:
        for parent in label.parents:
            below[parent].append(label.label)
    stack = [(name, 0) for name in reversed(known) if not waiting[name]]
    found = []
    while stack:
        name, level = stack.pop()
        found.append((known[name], level))
        for child in below[name]:
            waiting[child] -= 1
        ready = [child for child in below[name] if not waiting[child]]
        stack += [(child, level + 1) for child in reversed(ready)]
    return found


def _draw_edge(child: Row, parent: Row) -> Edge:
    if child.x > parent.x:
        path = f"M{parent.x:g} {parent.y + 5:g}V{child.y:g}H{child.x - 5:g}"
    else:  # a parent that lies deeper: around on the left
        left = min(child.x, parent.x) - 14
        path = (
            f"M{parent.x - 5:g} {parent.y:g}C{left:g} {parent.y:g} {left:g} {child.y:g} "
            f"{child.x - 5:g} {child.y:g}"
        )
    text = (
        f"{child.label.label} {child.probability:.3f} below {parent.label.label} "
        f"{parent.probability:.3f}"
    )
    return Edge(path, child.probability > parent.probability, text)
