"""Parts of pages: bins of a reliability diagram, records as rows."""

from pathlib import Path

import pandas as pd
import pytest

from match_graph.io.run_folder import RELIABILITY
from match_graph.report.charts import Series
from match_graph.report.page_parts import (
    ABOUT_SLICES,
    average_histories,
    cut,
    draw_reliability,
    list_record,
    select_bins,
)


def test_select_bins_are_read_by_split_and_kind(tmp_path: Path) -> None:
    """Empty bins are left out; each named kind is a line of the diagram."""
    table = pd.DataFrame(
        [
            ("valid", "ranked", 1, 9, 0.1, 0.2),
            ("test", "ranked", 1, 1000, 0.1, 0.25),
            ("test", "ranked", 2, 0, None, None),
            ("test", "all", 1, 4000, 0.05, 0.0625),
        ],
        columns=["split", "labels", "bin", "pairs", "probability", "gold"],
    )
    table.to_csv(tmp_path / RELIABILITY, index=False)
    bins = select_bins(tmp_path, "test", {"ranked": "best", "all": "every"})
    chart = draw_reliability(bins)
    assert [(one.name, one.x, one.y) for one in chart.series] == [
        ("best", [0.1], [0.25]), ("every", [0.05], [0.0625]),
    ]  # fmt: skip
    assert [list(row) for row in chart.data.rows] == [
        ["best", "1", "1,000", "0.1000", "0.2500"], ["every", "1", "4,000", "0.0500", "0.0625"],
    ]  # fmt: skip
    assert chart.is_square
    only = draw_reliability(select_bins(tmp_path, "test", {"all": "every"}))
    assert [one.name for one in only.series] == ["every"]


def test_slices_are_described_as_they_are_cut() -> None:
    """The description has the cuts of `metrics.slices`."""
    assert ABOUT_SLICES.startswith("Head: more than 100 training documents; torso: 20 to 100;")


def test_list_record_records_become_rows() -> None:
    """Nested names are joined, and durations are formatted."""
    record = {"seed": 0, "git": None, "seconds": {"train": 90.0}, "device": {"threads": 1}}
    assert list_record(record) == [
        ["seed", "0"], ["git", "-"], ["seconds train", "2 min"], ["device threads", "1"],
    ]  # fmt: skip


def test_average_histories_are_averaged_by_epoch() -> None:
    """Means end where the first run stops; a single run has no band."""
    lines = [
        ("a", 0, 1, 1.0),
        ("a", 0, 2, 0.5),
        ("a", 1, 1, 2.0),
        ("b", 0, 1, 1.0),
        ("c", 0, 1, None),
    ]
    histories = pd.DataFrame(lines, columns=["row", "seed", "epoch", "loss"])
    [several, single] = average_histories(histories, "loss")
    assert (several.x, several.y) == ([1], [1.5])
    assert several.spread == pytest.approx([0.5**0.5])
    assert (single.name, single.spread) == ("b", [])
    assert average_histories(histories, "other") == []


def test_cut_figure_has_no_more_lines_than_styles() -> None:
    """Seven lines become two figures."""
    lines = [Series(str(number), [1], [1]) for number in range(7)]
    assert [len(part) for part in cut(lines)] == [6, 1]
    assert cut([]) == []
