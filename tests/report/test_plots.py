"""Figures: what is drawn, read back from the axes, and files that are whole."""

import sys
from pathlib import Path

import pandas as pd
import pytest

from match_graph.errors import MatchGraphError
from match_graph.report import plots, time_to_quality
from match_graph.report.figures import save_figure

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture
def drawn(monkeypatch):
    """Figures that were saved, which are kept besides their files."""
    pytest.importorskip("matplotlib", reason="figures need the extra 'report'")
    kept = []

    def keep(figure, path):
        kept.append(figure)
        save_figure(figure, path)

    monkeypatch.setattr(plots, "save_figure", keep)
    monkeypatch.setattr(time_to_quality, "save_figure", keep)
    return kept


def test_draw_training_curves(tmp_path: Path, drawn) -> None:
    """The mean of losses 4, 2 and 2, 0 is 3, 1; each variant has a line style.

    It ends with the seed that stops first.
    """
    lines = [
        ("with", 1, 4.0, 0.1), ("with", 2, 2.0, 0.3), ("with", 1, 2.0, 0.1), ("with", 2, 0.0, 0.3),
        ("with", 3, 9.0, 0.9),
        ("without", 1, 4.0, 0.1), ("without", 2, 2.0, 0.3),
    ]  # fmt: skip
    table = pd.DataFrame(lines, columns=["row", "epoch", "loss_recent", "NDCG@5"])
    path = tmp_path / "new" / "curves.png"
    plots.draw_training_curves(path, table, ["NDCG@5"])
    assert path.read_bytes().startswith(PNG)
    assert [file.name for file in path.parent.iterdir()] == ["curves.png"]
    left, right = drawn[0].axes
    assert [list(line.get_ydata()) for line in left.lines] == [[3.0, 1.0], [4.0, 2.0]]
    assert [line.get_linestyle() for line in left.lines] == ["-", "--"]
    assert [line.get_label() for line in right.lines] == ["NDCG@5, with", "NDCG@5, without"]


def test_draw_time_to_quality(tmp_path: Path, drawn) -> None:
    """Seconds are on a logarithmic axis; curves are in the order of modes in the table."""
    table = pd.DataFrame(
        {
            "mode": ["shared", "shared", "alone", "alone"] * 2,
            "seconds": [1.0, 2.0] * 4,
            "type": ["author"] * 4 + ["mean"] * 4,
            "mrr": [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8],
        }
    )
    path = tmp_path / "quality.png"
    time_to_quality.draw_time_to_quality(path, table)
    assert path.read_bytes().startswith(PNG)
    mean, author = drawn[0].axes
    assert (mean.get_title(), author.get_title()) == ("mean", "author")
    assert mean.get_xscale() == "log"
    assert [line.get_label() for line in mean.lines] == ["shared", "alone"]
    assert [list(line.get_ydata()) for line in mean.lines] == [[0.5, 0.6], [0.7, 0.8]]


def test_draw_bars(tmp_path: Path, drawn) -> None:
    """Heights and deviations are those of the table; the axis starts below the lowest."""
    table = pd.DataFrame(
        {
            "row": ["MATCH", "MATCH", "No-venue", "No-venue"],
            "measure": ["P@1", "P@3"] * 2,
            "mean": [0.9, 0.7, 0.8, 0.6],
            "std": [0.01, 0.02, None, None],
        }
    )
    plots.draw_bars(tmp_path / "bars.png", table)
    assert (tmp_path / "bars.png").read_bytes().startswith(PNG)
    (axis,) = drawn[0].axes
    heights = [bar.get_height() for bar in axis.patches]
    assert heights == [0.9, 0.7, 0.8, 0.6]
    places = [bar.get_center()[0] for bar in axis.patches]
    assert places == pytest.approx([-0.2, 0.8, 0.2, 1.2])
    assert [text.get_text() for text in axis.get_xticklabels()] == ["P@1", "P@3"]
    assert [text.get_text() for text in drawn[0].legends[0].get_texts()] == ["MATCH", "No-venue"]
    assert 0.0 < axis.get_ylim()[0] < 0.6


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (r"cost $\frac$ of $x$", r"cost \$\frac\$ of \$x\$"),
        ("_private", "\u200b_private"),
        ("two\nlines", "two lines"),
        ("x" * 60, f"{'x' * 40}\n{'x' * 20}"),
    ],
)
def test_draw_bars_and_other_figures_show_names_as_they_are(
    tmp_path: Path, drawn, name: str, shown: str
) -> None:
    """Names are no formulas, are in every legend, and leave room for bars."""
    lines = [{"row": row, "measure": "P@1", "mean": 0.5, "std": 0.1} for row in ("M", name)]
    plots.draw_bars(tmp_path / "bars.png", pd.DataFrame(lines))
    [legend] = drawn[0].legends
    assert [text.get_text() for text in legend.get_texts()] == ["M", shown]
    assert drawn[0].axes[0].get_position().width > 0.2
    table = pd.DataFrame([{"row": name, "epoch": 1, "loss_recent": 1.0, "P@1": 0.5}])
    plots.draw_training_curves(tmp_path / "curves.png", table, ["P@1"])
    left, right = (axis.get_legend().get_texts()[0].get_text() for axis in drawn[1].axes)
    assert (left, right.split()[0]) == (shown, "P@1,")
    points = pd.DataFrame([{"a": 1, "b": name, "measure": "P@1", "mean": 0.5}])
    plots.draw_grid(tmp_path / "grid.png", points, ["a", "b"])
    assert [text.get_text() for text in drawn[2].axes[0].get_xticklabels()] == [shown]


def test_draw_bars_legend_of_many_rows_is_whole(tmp_path: Path, drawn) -> None:
    """Thirty rows have a legend of two columns within the figure."""
    lines = [
        {"row": f"MATCH without field {number}", "measure": "P@1", "mean": 0.5, "std": 0.1}
        for number in range(30)
    ]
    plots.draw_bars(tmp_path / "bars.png", pd.DataFrame(lines))
    box = drawn[0].legends[0].get_window_extent()
    assert box.y0 >= 0


def test_draw_training_curves_without_validation_measures(tmp_path: Path, drawn) -> None:
    """Without validation measures the loss is drawn, with a legend."""
    table = pd.DataFrame([{"row": "M", "epoch": 1, "loss_recent": 1.0}])
    plots.draw_training_curves(tmp_path / "curves.png", table, [])
    left, right = drawn[0].axes
    assert [text.get_text() for text in left.get_legend().get_texts()] == ["M"]
    assert right.get_legend() is None


def test_draw_grid(tmp_path: Path, drawn) -> None:
    """Values are in their cells; a missing point has an empty one."""
    table = pd.DataFrame(
        {
            "a": [0.0, 0.0, 1.0, 0.0, 0.0, 1.0],
            "b": [1, 2, 1, 1, 2, 1],
            "measure": ["NDCG@5"] * 3 + ["violation_rate"] * 3,
            "mean": [0.5, 0.6, 0.7, 0.3, 0.2, 0.1],
        }
    )
    plots.draw_grid(tmp_path / "grid.png", table, ["a", "b"])
    assert (tmp_path / "grid.png").read_bytes().startswith(PNG)
    first, second = drawn[0].axes[:2]
    assert (first.get_title(), second.get_title()) == ("NDCG@5", "violation_rate")
    assert (first.get_xlabel(), first.get_ylabel()) == ("b", "a")
    shown = {text.get_position(): text.get_text() for text in first.texts}
    assert shown == {(0, 0): "0.5000", (1, 0): "0.6000", (0, 1): "0.7000"}
    table["b"] = [[2, 4] if one == 1 else [8] for one in table["b"]]
    plots.draw_grid(tmp_path / "grid.png", table, ["a", "b"])
    labels = [text.get_text() for text in drawn[1].axes[0].get_xticklabels()]
    assert labels == ["[2, 4]", "[8]"]
    table["b"] = pd.Series([10 if one == [8] else None for one in table["b"]], dtype=object)
    plots.draw_grid(tmp_path / "grid.png", table, ["a", "b"])
    labels = [text.get_text() for text in drawn[2].axes[0].get_xticklabels()]
    assert labels == ["None", "10"]


def test_make_figure_without_matplotlib(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MatchGraphError) as caught:
        plots.draw_training_curves(tmp_path / "x.png", pd.DataFrame(), [])
    assert str(caught.value) == (
        "A figure needs the package matplotlib, which is not installed; run: "
        "pip install 'match-graph[report]'"
    )
    assert list(tmp_path.iterdir()) == []
