"""The labels around a document: each below its parents, edges between, violations in them."""

from hypothesis import given
from hypothesis import strategies as st
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure

from match_graph.predict.case_study import CaseLabel, CaseStudy
from match_graph.report.charts import WIDTH
from match_graph.report.figures import PALETTE
from match_graph.report.label_rows import LabelRows, arrange


def test_LabelRows_diamond(case_study: CaseStudy, hostile: str) -> None:
    """It has five labels and edges; a child more probable than its parent is a violation."""
    figure = LabelRows(case_study.labels, case_study.variants[0])
    place = {row.label.label: row for row in figure.rows}
    assert list(place) == ["a", "b", "c", "d", hostile]
    assert [row.rank for row in figure.rows] == [0, 0, 0, 0, 1]
    assert place["a"].x < place["b"].x == place["c"].x < place["d"].x
    assert [row.y for row in figure.rows] == sorted({row.y for row in figure.rows})
    assert figure.rows[-1].y < figure.height
    assert figure.about == "2 of 5 edges violated"
    drawn = Figure()
    figure.draw(drawn)
    violated = {
        edge.get_gid().removeprefix("tooltip: ").replace(hostile, "h"): edge.get_edgecolor()
        == to_rgba(PALETTE["bad"])
        for edge in drawn.axes[0].patches
    }
    assert violated == {
        "b 0.250 below a 0.500": False,
        "c 0.031 below a 0.500": False,
        "h (d) 0.062 below b 0.250": False,
        "h (d) 0.062 below c 0.031": True,
        "h (h) 0.750 below a 0.500": True,
    }
    assert figure.data.rows[3] == [f"{hostile} (d)", "0.0625", "gold", "", "b, c"]
    assert figure.data.rows[4] == [f"{hostile} ({hostile})", "0.7500", "gold", "1", "a"]


def test_LabelRows_deep(case_study: CaseStudy) -> None:
    """A chain of 300 labels and its edges stay on the canvas."""
    labels = [
        CaseLabel(
            label=str(row),
            name=None,
            is_gold=False,
            depth=row,
            parents=[str(row - 1)] if row else [],
        )
        for row in range(300)
    ]
    probability = {label.label: 0.5 for label in labels}
    variant = case_study.variants[0].model_copy(
        update={"probability": probability, "predictions": []}
    )
    figure = LabelRows(labels, variant)
    x = [row.x for row in figure.rows]
    assert x == sorted(set(x)) and x[-1] < WIDTH
    assert figure.svg.count("<path") >= 2 * 300 - 1


@st.composite
def hierarchies(draw) -> list[CaseLabel]:
    number = draw(st.integers(1, 8))
    parents = [
        sorted(draw(st.sets(st.integers(0, row - 1), max_size=3))) if row else []
        for row in range(number)
    ]
    return [
        CaseLabel(
            label=str(row), name=None, is_gold=False, depth=0, parents=[str(one) for one in above]
        )
        for row, above in enumerate(parents)
    ]


@given(hierarchies())
def test_arrange_parents_first(labels: list[CaseLabel]) -> None:
    """Each label comes once; roots have level 0, others one more than a parent."""
    found = arrange(labels)
    order = [label.label for label, _ in found]
    level = {label.label: number for label, number in found}
    assert sorted(order) == sorted(label.label for label in labels)
    for label in labels:
        assert all(order.index(parent) < order.index(label.label) for parent in label.parents)
        expected = {level[parent] + 1 for parent in label.parents} or {0}
        assert level[label.label] in expected
