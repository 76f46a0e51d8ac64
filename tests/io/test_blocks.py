"""Tables written block by block: the bytes of safetensors."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from match_graph.io.blocks import write_table_blocks


def test_write_table_blocks_same_bytes_as_save_file(tmp_path: Path) -> None:
    """Whatever the blocks, also of a table without rows and of names beyond ASCII."""
    tables = {"word": torch.randn(7, 3), "autor_ü": torch.randn(5, 3), "none": torch.empty(0, 3)}
    shapes = {name: tuple(table.shape) for name, table in tables.items()}
    write_table_blocks(tmp_path / "blocks", shapes, lambda name: tables[name].split(2))
    save_file(tables, tmp_path / "whole")
    assert (tmp_path / "blocks").read_bytes() == (tmp_path / "whole").read_bytes()
    assert torch.equal(load_file(tmp_path / "blocks")["word"], tables["word"])


def test_write_table_blocks_missing_rows_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'word' of 7 x 3 values must be written whole, found 48"):
        write_table_blocks(tmp_path / "blocks", {"word": (7, 3)}, lambda _: [torch.ones(4, 3)])
