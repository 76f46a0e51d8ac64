"""Layout of a label's neighbourhood in the hierarchy, parents above children."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from match_graph.predict.case_study import CaseLabel, Variant
from match_graph.report.page.charts import WIDTH, shorten
from match_graph.report.page.tables import Table

#: Height of a row, width of a level, where rows begin, and where probabilities do.
_ROW, _LEVEL, _LEFT, _SHARES = 22, 16, 22, 270
#: Width of a letter, rather too much.
_LETTER = 6.4


@dataclass(frozen=True)
class Row:
    """A label on the canvas.

    Args:
        label: What it is.
        text: Its id and name as far as they fit.
        x: Of its dot.
        y: Likewise.
        probability: By the variant.
        rank: Among its best labels, from 1; 0 for none of these.
    """

    label: CaseLabel
    text: str
    x: float
    y: float
    probability: float
    rank: int


@dataclass(frozen=True)
class Edge:
    """A child and a parent: the path between their dots.

    Args:
        path: What SVG's ``d`` takes.
        is_violated: Whether the child is more probable than the parent.
        text: Both with their probabilities.
    """

    path: str
    is_violated: bool
    text: str


@dataclass(frozen=True)
class LabelRows:
    """The hierarchy around a document with the probabilities of one variant.

    Args:
        labels: Those of the case study, parents before children.
        variant: Whose probabilities these are.
    """

    kind: ClassVar[str] = "labels"
    width: ClassVar[int] = WIDTH
    labels: Sequence[CaseLabel]
    variant: Variant

    @property
    def title(self) -> str:
        """The shown labels."""
        return "Labels around the document"

    @property
    def height(self) -> int:
        """Of the canvas."""
        return _ROW * len(self.labels) + 6

    @cached_property
    def rows(self) -> list[Row]:
        """The labels from top to bottom."""
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
        """From every child to each of its parents."""
        place = {row.label.label: row for row in self.rows}
        return [
            _draw_edge(child, place[parent])
            for child in self.rows
            for parent in child.label.parents
        ]

    @property
    def num_violated(self) -> int:
        """Edges whose child is more probable than the parent."""
        return sum(edge.is_violated for edge in self.edges)

    @property
    def data(self) -> Table:
        """All labels with their parents."""
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
    """Labels in an order in which each follows all of its parents, the last of them closely.

    Args:
        labels: With all of their parents; siblings stay in their order.

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
