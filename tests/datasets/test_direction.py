"""Hierarchies that are closed upwards, and those whose parents look like children."""

from pathlib import Path

import pytest
import torch

from match_graph.datasets import open_dataset
from match_graph.datasets.direction import measure_closure
from match_graph.graph import Hierarchy
from match_graph.testing import write_match_folder

LABELS = [["top", leaf] for leaf in "abcd"] * 3
DOCUMENTS = [
    {"paper": f"p{row}", "text": f"text {row}", "label": labels}
    for row, labels in enumerate(LABELS)
]


def find_warnings(folder: Path, taxonomy: list[str]) -> list[str]:
    splits = {"train": DOCUMENTS[:8], "valid": DOCUMENTS[8:10], "test": DOCUMENTS[10:]}
    write_match_folder(folder, splits, taxonomy, [])
    return open_dataset(folder, root=folder / "root").warnings


def test_measure_closure_leaves_out_labels_without_documents() -> None:
    """Edges whose child is on no document do not count; without any the closure is 1."""
    hierarchy = Hierarchy(torch.tensor([[1, 2, 3], [0, 0, 1]]), 4)
    share = torch.tensor([0.5, 0.25, 1.0])
    assert measure_closure(hierarchy, share, torch.tensor([9, 4, 4, 0])) == pytest.approx(0.375)
    assert measure_closure(hierarchy, share, torch.zeros(4, dtype=torch.int64)) == 1


def test_describe_reversal_lines_with_the_child_first(tmp_path: Path) -> None:
    """A reversed taxonomy is warned of, with both shares and an edge."""
    assert find_warnings(tmp_path / "right", ["top a b c d"]) == []
    assert find_warnings(tmp_path / "reversed", ["a top", "b top", "c top", "d top"]) == [
        "parents of the hierarchy look like children, such as 'a', the parent of 'top': of the "
        "training documents with a parent 100% have its child, of those with a child only 25% have "
        "its parent (means of 4 edges); is each line parent first, and each edge a child and its "
        "parent?"
    ]


def test_describe_reversal_of_synthetic_documents(tmp_path: Path) -> None:
    """The synthetic corpus, closed upwards, gives no warning."""
    assert open_dataset("synthetic", root=tmp_path, num_documents=200).warnings == []
