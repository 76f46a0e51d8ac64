"""safetensors files of tables that come in blocks, none of which is in memory as a whole."""

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from torch import Tensor

#: Bytes to which safetensors fills up its header.
_ALIGNMENT = 8


def write_table_blocks(
    place: Path, shapes: Mapping[str, tuple[int, int]], read: Callable[[str], Iterable[Tensor]]
) -> None:
    """Writes float32 tables as safetensors, the same bytes as `safetensors.torch.save_file`.

    Args:
        place: Output file, written in place.
        shapes: Rows and columns of each table.
        read: Rows of a table in order, in blocks, float32; called for each in the order of names.

    Raises:
        ValueError: The blocks of a table are not of its shape.
    """
    header, end = {}, 0
    for name, (rows, columns) in sorted(shapes.items()):
        start, end = end, end + 4 * rows * columns
        header[name] = {"dtype": "F32", "shape": [rows, columns], "data_offsets": [start, end]}
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    with place.open("wb") as file:
        file.write(len(text).to_bytes(8, "little"))
        file.write(text)
        for name, (rows, columns) in sorted(shapes.items()):
            begin = file.tell()
            for block in read(name):
                file.write(block.detach().cpu().contiguous().numpy().astype("<f4", copy=False).data)
            if file.tell() - begin != 4 * rows * columns:
                raise ValueError(
                    f"the table '{name}' of {rows} x {columns} values must be written whole, found "
                    f"{file.tell() - begin} bytes of it"
                )
