"""Tensors of a baseline: read back as written, refused otherwise."""

import pickle
from pathlib import Path

import pytest
import torch

from match_graph.baselines.tensors import TENSORS, read_table, write_table
from match_graph.errors import CheckpointError

TABLE = {"a": torch.arange(6).view(2, 3), "b": torch.ones(0)}
KINDS = {"a": torch.int64}


def test_read_table_tensors_read_back(tmp_path: Path) -> None:
    """Also where any shape will do, and of a view."""
    write_table(tmp_path, {**TABLE, "a": TABLE["a"].t()})
    found = read_table(tmp_path, {"a": [3, 2], "b": [None]}, KINDS)
    assert torch.equal(found["a"], TABLE["a"].t())
    assert found["b"].numel() == 0


def test_read_table_refuses_broken_and_pickled_files(tmp_path: Path) -> None:
    """Nothing is unpickled."""
    for content in (None, b"", pickle.dumps(TABLE)):
        if content is not None:
            (tmp_path / TENSORS).write_bytes(content)
        with pytest.raises(CheckpointError) as caught:
            read_table(tmp_path, {"a": [None]}, KINDS)
        text = str(caught.value)
        start = f"A fitted baseline must be a safetensors file, but '{tmp_path / TENSORS}' cannot"
        assert text.startswith(f"{start} be read (")
        assert text.endswith("); fit the baseline again.")


def test_write_table_other_names_and_shapes_are_refused(tmp_path: Path) -> None:
    """Too few, too many, of another shape or type; numbers that are not finite."""
    write_table(tmp_path, TABLE)
    right = {"a": [None, None], "b": [None]}
    for shapes, kinds in (
        ({"a": [None, None]}, KINDS),
        ({**right, "c": [None]}, KINDS),
        ({**right, "a": [3, 2]}, KINDS),
        ({**right, "b": [None, None]}, KINDS),
        (right, {}),
    ):
        with pytest.raises(CheckpointError, match="must hold the tensors"):
            read_table(tmp_path, shapes, kinds)
    assert read_table(tmp_path, right, KINDS).keys() == TABLE.keys()
    write_table(tmp_path, {**TABLE, "b": torch.tensor([1.0, torch.inf])})
    with pytest.raises(CheckpointError) as caught:
        read_table(tmp_path, right, KINDS)
    assert str(caught.value) == (
        f"'{tmp_path / TENSORS}' must hold what fitting the baseline wrote, but 'b' holds values "
        f"that are not finite; delete the folder '{tmp_path}' and train again."
    )
