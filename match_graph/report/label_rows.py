"""Figure of the labels around a document in the hierarchy, parents above children."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

from match_graph.predict.case_study import CaseLabel, Variant
from match_graph.report.charts import TICK_SIZE, WIDTH, Chart, add_canvas, add_text, shorten
from match_graph.report.figures import PALETTE, tooltip
from match_graph.report.tables import Table

#: Height of a row, indentation of a level, and left ends of rows and of probabilities.
_ROW, _LEVEL, _LEFT, _SHARES = 22, 16, 22, 270
#: Largest position of the dot of the deepest level, which leaves room for its name.
_RIGHT = 200
#: Width of a letter, rather over- than underestimated.
_LETTER = 6.4


@dataclass(frozen=True)
class Row:
    """Label on the canvas.

    Args:
        label: Label of the case study.
        x: Horizontal position of its dot.
        y: Vertical position of its dot.
        probability: Probability by the variant, in 0..1.
        rank: Rank among the variant's predicted labels, from 1; 0 if it is not predicted.
    """

    label: CaseLabel
    x: float
    y: float
    probability: float
    rank: int

    @property
    def name(self) -> str:
        """Name and id of the label."""
        return self.label.shown


@dataclass(frozen=True)
class LabelRows(Chart):
    """Hierarchy around a document with the probabilities of one variant.

    Args:
        labels: Labels of the case study, parents before children.
        variant: Variant whose probabilities are shown.
    """

    labels: Sequence[CaseLabel]
    variant: Variant
    title: str = "Labels around the document"
    about: str = field(init=False)
    note: ClassVar[str] = " \u00a0 ".join(
        ("● gold", "○ other", "# rank", "red: the child is more probable than its parent")
    )

    def __post_init__(self) -> None:
        violated = sum(child.probability > parent.probability for child, parent in self.edges)
        object.__setattr__(self, "about", f"{violated} of {len(self.edges)} edges violated")

    @property
    def height(self) -> float:
        """Height of the canvas."""
        return _ROW * len(self.labels) + 6

    @cached_property
    def rows(self) -> list[Row]:
        """Labels from top to bottom."""
        rank = {one.label: place for place, one in enumerate(self.variant.predictions, start=1)}
        arranged = arrange(self.labels)
        deepest = max((level for _, level in arranged), default=0)
        width = min(_LEVEL, (_RIGHT - _LEFT) / max(1, deepest))
        return [
            Row(
                label,
                x=_LEFT + width * level,
                y=number * _ROW + _ROW / 2 + 2,
                probability=self.variant.probability[label.label],
                rank=rank.get(label.label, 0),
            )
            for number, (label, level) in enumerate(arranged)
        ]

    @cached_property
    def edges(self) -> list[tuple[Row, Row]]:
        """Edges from every child to each of its parents."""
        place = {row.label.label: row for row in self.rows}
        return [(child, place[name]) for child in self.rows for name in child.label.parents]

    @property
    def data(self) -> Table:
        """Data table of all labels with their parents."""
        shown = {row.label.label: row.name for row in self.rows}
        rows = [
            [
                row.name,
                f"{row.probability:.4f}",
                "gold" if row.label.is_gold else "",
                str(row.rank or ""),
                ", ".join(shown[parent] for parent in row.label.parents),
            ]
            for row in self.rows
        ]
        return Table(["label", "probability", "gold", "rank", "parents"], rows)

    def draw(self, figure: Any) -> None:
        """Draws edges, then a row per label: its dot, its name, its probability, its rank."""
        axis = add_canvas(figure, self.height)
        for child, parent in self.edges:
            _draw_edge(axis, child, parent)
        for row in self.rows:
            gold, gid = row.label.is_gold, tooltip(row.name)
            edge, face = ("c2", "c2") if gold else ("muted", "ground")
            axis.plot(
                [row.x], [row.y], "o", markersize=9, markeredgewidth=1.5, gid=gid,
                markeredgecolor=PALETTE[edge], markerfacecolor=PALETTE[face],
            )  # fmt: skip
            letters = max(4, int((_SHARES - row.x - 14) / _LETTER))
            weight = "bold" if gold else "normal"
            add_text(
                axis, row.x + 10, row.y + 4, shorten(row.name, letters), weight=weight, gid=gid
            )
            numbers = [(WIDTH - 24, f"{row.probability:.3f}")]
            numbers += [(WIDTH - 2, f"#{row.rank}")] if row.rank else []
            for x, text in numbers:
                add_text(axis, x, row.y + 4, text, "muted", TICK_SIZE, ha="right", gid=gid)


def arrange(labels: Sequence[CaseLabel]) -> list[tuple[CaseLabel, int]]:
    """Topological order of labels; each follows all of its parents, and as soon as possible.

    Args:
        labels: Labels with all of their parents; siblings keep their order.

    Returns:
        Each label with its level: one more than that of its last parent.
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


def _draw_edge(axis: Any, child: Row, parent: Row) -> None:
    """Edge from below a parent to the left of its child, or a curve around both on the left."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    if child.x > parent.x:
        corners = [(parent.x, parent.y + 5), (parent.x, child.y), (child.x - 5, child.y)]
        path = Path(corners)
    else:
        left = min(child.x, parent.x) - 14
        ends = (parent.x - 5, parent.y), (child.x - 5, child.y)
        curve = [ends[0], (left, parent.y), (left, child.y), ends[1]]
        path = Path(curve, [Path.MOVETO, *[Path.CURVE4] * 3])
    colour, width = ("bad", 2) if child.probability > parent.probability else ("muted", 1.2)
    text = tooltip(
        f"{child.name} {child.probability:.3f} below {parent.name} {parent.probability:.3f}"
    )
    axis.add_patch(
        PathPatch(path, facecolor="none", edgecolor=PALETTE[colour], linewidth=width, gid=text)
    )
