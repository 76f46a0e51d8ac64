"""Tables as files whose bytes depend on their rows alone."""

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from match_graph.io import tables
from match_graph.io.tables import map_arrow, text_schema, write_arrow, write_frame, write_table


def test_write_table_cuts_do_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bytes do not depend on how rows are divided into tables."""
    monkeypatch.setattr(tables, "ROW_GROUP", 7)
    depth = pd.array([None, *range(22)], dtype="Int16")
    frame = pd.DataFrame({"id": [f"é{n}" for n in range(23)], "depth": depth})
    write_frame(tmp_path / "whole", frame)
    schema = text_schema(frame)
    whole = pa.Table.from_pandas(frame, schema, preserve_index=False)
    for step in (1, 5, 9):
        pieces = (whole.slice(first, step) for first in range(0, 23, step))
        write_table(tmp_path / "pieces", schema, pieces)
        assert (tmp_path / "pieces").read_bytes() == (tmp_path / "whole").read_bytes()
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "pieces"), frame)
    groups = pq.ParquetFile(tmp_path / "whole").metadata
    assert [groups.row_group(n).num_rows for n in range(4)] == [7, 7, 7, 2]


def test_write_arrow_old_mapping_goes_on(tmp_path: Path) -> None:
    """A memory-mapped file can be replaced while another process reads it."""
    path = tmp_path / "a.arrow"
    write_arrow(path, pa.table({"n": np.arange(5)}))
    before = map_arrow(path)
    write_arrow(path, pa.table({"n": np.arange(2)}))
    assert before["n"].to_pylist() == [0, 1, 2, 3, 4]
    assert map_arrow(path)["n"].to_pylist() == [0, 1]
    assert [one.name for one in tmp_path.iterdir()] == ["a.arrow"]
