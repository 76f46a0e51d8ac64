"""Values of documents in JSON or from Python: what is read, what is named."""

from typing import Any

import numpy as np
import pytest
import torch

from match_graph.io.json_lines import read_values, read_vector


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, []),
        ("a", ["a"]),
        (["a", 7, ""], ["a", "7"]),
        (2005.0, ["2005"]),
        (["a", 2005.0], ["a", "2005"]),
        (2005.5, None),
        (float("nan"), None),
        ([True], None),
        ([["a"]], None),
    ],
)
def test_read_values_are_strings(value: Any, expected: list[str] | None) -> None:
    """Whole numbers are read as their digits; other types are None."""
    assert read_values(value) == expected


@pytest.mark.parametrize(
    "x",
    [
        [0.5, 1],
        np.array([0.5, 1], np.float32),
        [np.float16(0.5), np.int64(1)],
        torch.tensor([0.5, 1]),
        [torch.tensor(0.5), 1],
    ],
)
def test_read_vector_takes_numbers_of_python_and_numpy(x: Any) -> None:
    found = read_vector({"x": x}, 2, "document 1", pytest.fail)
    assert found == [0.5, 1.0]
    assert {type(one) for one in found} == {float}


@pytest.mark.parametrize(
    ("x", "fault"),
    [
        ([1, True], "document 1: 'x' must hold finite numbers of 32 bits, found the truth value"),
        ([1, np.float64("nan")], "document 1: 'x' must hold finite numbers of 32 bits, found the"),
        ([np.zeros(2), np.zeros(2)], "document 1: 'x' must hold finite numbers of 32 bits, found"),
        ([1], "document 1: 'x' must be a list of 2 numbers, found 1."),
        (torch.ones(2).to_sparse(), "document 1: 'x' must be a list of 2 numbers, found a Tensor."),
    ],
)
def test_read_vector_names_what_is_none(x: Any, fault: str) -> None:
    """Malformed vectors are one sentence each."""
    faults: list[str] = []
    assert read_vector({"x": x}, 2, "document 1", faults.append) is None
    assert len(faults) == 1
    assert faults[0].startswith(fault)
