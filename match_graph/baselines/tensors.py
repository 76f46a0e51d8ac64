"""Tensors of a fitted baseline in one safetensors file."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from match_graph.errors import CheckpointError

TENSORS = "tensors.safetensors"


def write_table(folder: Path, tensors: Mapping[str, Tensor]) -> None:
    """Writes tensors into a folder."""
    save_file({name: value.contiguous() for name, value in tensors.items()}, folder / TENSORS)


def check_table(folder: Path, holds: bool, found: str) -> None:
    """Checks a condition on the content of the file of tensors.

    Args:
        folder: Folder of the file.
        holds: Whether the condition holds.
        found: What was found otherwise, a clause of the message.

    Raises:
        CheckpointError: The condition does not hold.
    """
    if not holds:
        raise CheckpointError(
            f"'{folder / TENSORS}' must hold what fitting the baseline wrote, but {found}; delete "
            f"the folder '{folder}' and train again."
        )


def read_table(
    folder: Path,
    shapes: Mapping[str, Sequence[int | None]],
    dtypes: Mapping[str, torch.dtype] | None = None,
) -> dict[str, Tensor]:
    """Reads what `write_table` wrote.

    Args:
        folder: Folder of the file.
        shapes: Shape of each tensor that must be there, by name; None is any number.
        dtypes: Dtypes of the tensors that are not float32, by name.

    Raises:
        CheckpointError: The file is missing, broken, or holds something else, or a number that is
            not finite.
    """
    path = folder / TENSORS
    try:
        tensors = load_file(path)
    except Exception as error:
        raise CheckpointError(
            f"A fitted baseline must be a safetensors file, but '{path}' cannot be read "
            f"({' '.join(str(error).split())}); fit the baseline again."
        ) from error
    kinds = {name: (dtypes or {}).get(name, torch.float32) for name in shapes}
    expected = {name: [*shape, str(kinds[name])] for name, shape in shapes.items()}
    found = {name: [*value.shape, str(value.dtype)] for name, value in tensors.items()}
    for name in found.keys() & expected.keys():  # what may be any number is what it is
        if len(expected[name]) == len(found[name]):
            pairs = zip(expected[name], found[name], strict=True)
            expected[name] = [there if here is None else here for here, there in pairs]
    if found != expected:
        raise CheckpointError(
            f"'{path}' must hold the tensors {expected} of this run's tokens and labels, found "
            f"{found}; fit the baseline again."
        )
    for name, value in tensors.items():
        is_finite = not value.is_floating_point() or bool(value.isfinite().all())
        check_table(folder, is_finite, f"'{name}' holds values that are not finite")
    return tensors
