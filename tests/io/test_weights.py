"""Tensors written block by block: the bytes of safetensors."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from match_graph.io.weights import TYPES, Layout, advise_training, order_tensors, write_blocks


def test_write_blocks_same_bytes_as_save_file(tmp_path: Path) -> None:
    """Bytes equal those of safetensors for any blocks, empty tables, types and names."""
    tables = {
        "word": torch.randn(7, 3),
        "autor_ü": torch.randn(5, 3),
        "none": torch.empty(0, 3),
        "count": torch.arange(4),
        **{str(dtype): torch.ones(3, 3).to(dtype) for dtype in TYPES},
    }
    layouts = {name: Layout(table.dtype, (*table.shape,)) for name, table in tables.items()}
    blocks = (block for name in order_tensors(layouts) for block in tables[name].split(2))
    write_blocks(tmp_path / "blocks", layouts, blocks)
    save_file(tables, tmp_path / "whole")
    assert (tmp_path / "blocks").read_bytes() == (tmp_path / "whole").read_bytes()
    assert torch.equal(load_file(tmp_path / "blocks")["word"], tables["word"])


def test_advise_training_is_for_a_shell() -> None:
    """A folder with blanks is quoted."""
    assert advise_training("toy", Path("a b")) == (
        "match-graph train toy --config 'a b/config.yaml' --out 'a b'"
    )


def test_write_blocks_missing_rows_are_an_error(tmp_path: Path) -> None:
    layouts = {"word": Layout(torch.float32, (7, 3))}
    with pytest.raises(ValueError, match=r"\['word'\] must be written whole, 84 bytes, found 48"):
        write_blocks(tmp_path / "blocks", layouts, [torch.ones(4, 3)])
