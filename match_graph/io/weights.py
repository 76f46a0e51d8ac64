"""Weights as safetensors: written in blocks, and loaded into a model."""

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from match_graph.errors import CheckpointError, format_command
from match_graph.io.files import has_file, read_tensors
from match_graph.io.run_folder import CONFIG, MODEL

#: Names of types in safetensors, in the order of its files; without float8, of which torch cannot
#: tell whether values are finite.
TYPES = {
    torch.uint64: "U64", torch.int64: "I64", torch.float64: "F64", torch.complex64: "C64",
    torch.float32: "F32", torch.uint32: "U32", torch.int32: "I32", torch.bfloat16: "BF16",
    torch.float16: "F16", torch.uint16: "U16", torch.int16: "I16", torch.int8: "I8",
    torch.uint8: "U8", torch.bool: "BOOL",
}  # fmt: skip


class Layout(NamedTuple):
    """Type and shape of a tensor."""

    dtype: torch.dtype
    shape: tuple[int, ...]

    @property
    def num_bytes(self) -> int:
        """Size in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize


def order_tensors(layouts: Mapping[str, Layout]) -> list[str]:
    """Names in the order of the file: wide types first, so that every tensor is aligned."""
    rank = {dtype: number for number, dtype in enumerate(TYPES)}
    return sorted(layouts, key=lambda name: (rank[layouts[name].dtype], name))


def write_blocks(place: Path, layouts: Mapping[str, Layout], blocks: Iterable[Tensor]) -> None:
    """Writes a safetensors file block by block, so that no tensor must fit into memory.

    The bytes equal those of `safetensors.torch.save_file`.

    Args:
        place: Output file, written in place.
        layouts: Types and shapes of the tensors.
        blocks: Consecutive rows of the tensors in the order of `order_tensors`.

    Raises:
        ValueError: The blocks do not fill the shapes.
    """
    header, end = {}, 0
    for name in order_tensors(layouts):
        dtype, shape = layouts[name]
        start, end = end, end + layouts[name].num_bytes
        header[name] = {"dtype": TYPES[dtype], "shape": shape, "data_offsets": (start, end)}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    with place.open("wb") as file:
        begin = file.write(len(text).to_bytes(8, "little") + text)
        for block in blocks:
            values = block.detach().cpu().contiguous().view(-1)
            file.write(values.view(torch.uint8).numpy().data)
        if file.tell() != begin + end:
            raise ValueError(
                f"the tensors {sorted(layouts)} must be written whole, {end:,} bytes, found "
                f"{file.tell() - begin:,}"
            )


def advise_training(dataset: str, folder: Path) -> str:
    """Command that trains a run, for messages."""
    return format_command("train", dataset, "--config", folder / CONFIG, "--out", folder)


def load_weights(model: nn.Module, folder: Path, dataset: str) -> None:
    """Loads the trained weights of a run folder into a model.

    Args:
        model: Model of the run's configuration.
        folder: Run folder.
        dataset: Name of the data set, for the message.

    Raises:
        CheckpointError: There are no weights, or those of another configuration.
    """
    path = folder / MODEL
    if not has_file(path):
        raise CheckpointError(
            f"A trained run holds {MODEL}, but '{folder}' has none; train it with "
            f"`{advise_training(dataset, folder)}`."
        )
    read_weights(model, path)


def read_weights(model: nn.Module, path: Path) -> None:
    """Loads the weights of a file into a model.

    Raises:
        CheckpointError: It is missing or broken, or of another configuration.
    """
    weights = read_tensors(path)
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        raise CheckpointError(
            f"'{path}' must hold the weights of this run's model, but names or shapes differ; "
            f"train the run again."
        ) from error
