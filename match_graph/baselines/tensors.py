"""The tensors of a baseline as one safetensors file."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from safetensors.torch import load_file, save_file
from torch import Tensor

from match_graph.errors import CheckpointError

TENSORS = "tensors.safetensors"


def write_table(folder: Path, tensors: Mapping[str, Tensor]) -> None:
    """Writes tensors into a folder."""
    save_file({name: value.contiguous() for name, value in tensors.items()}, folder / TENSORS)


def read_table(folder: Path, shapes: Mapping[str, Sequence[int] | None]) -> dict[str, Tensor]:
    """Reads what `write_table` wrote.

    Args:
        folder: Holds the file.
        shapes: The names that must be there, each with the shape that it must have; None for any.

    Raises:
        CheckpointError: The file is missing, broken, or holds something else.
    """
    path = folder / TENSORS
    try:
        tensors = load_file(path)
    except Exception as error:
        raise CheckpointError(
            f"A fitted baseline must be a safetensors file, but '{path}' cannot be read "
            f"({' '.join(str(error).split())}); fit the baseline again."
        ) from error
    expected = {name: None if shape is None else list(shape) for name, shape in shapes.items()}
    found = {
        name: None if expected.get(name) is None else list(value.shape)
        for name, value in tensors.items()
    }
    if found != expected:
        raise CheckpointError(
            f"'{path}' must hold the tensors {expected} of this run's tokens and labels, found "
            f"{found}; fit the baseline again."
        )
    return tensors
