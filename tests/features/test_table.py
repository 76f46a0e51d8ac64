"""Feature files and arrays: what is read, what is refused."""

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import save_file

from match_graph.config import FeatureSource
from match_graph.errors import CorpusError
from match_graph.features.table import FeatureTable, find_dtype, make_table, open_table

VALUES = np.arange(12, dtype=np.float32).reshape(4, 3)
IDS = ["a", "b", "c", "d\u2028"]


def write(path: Path, values: np.ndarray = VALUES) -> FeatureSource:
    """A feature file of the kind that its ending says, with the ids as that kind has them."""
    ids = path.with_suffix(".txt")
    ids.write_bytes("\r\n".join(IDS).encode("utf-8-sig"))
    if path.suffix == ".npy":
        np.save(path, values)
    elif path.suffix == ".safetensors":
        save_file({"x": torch.from_numpy(values)}, path)
    else:
        pd.DataFrame({"id": IDS, "x": list(values)}).to_parquet(path)
        return FeatureSource(path=str(path))
    return FeatureSource(path=str(path), ids=str(ids))


def read(table: FeatureTable) -> np.ndarray:
    return np.concatenate(list(table.read()))


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64, np.int32, np.bool_])
@pytest.mark.parametrize("ending", [".npy", ".safetensors", ".parquet"])
def test_open_table_reads_every_kind(
    tmp_path: Path, ending: str, kind: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same values and ids, whatever the file, in blocks of two rows; float16 stays."""
    monkeypatch.setattr("match_graph.features.table._BLOCK_BYTES", 24)
    table = open_table(write(tmp_path / f"x{ending}", VALUES.astype(kind)))
    blocks = list(table.read())
    assert [len(block) for block in blocks] == [2, 2]
    assert np.array_equal(read(table), VALUES.astype(kind))
    assert {block.dtype for block in blocks} == {table.dtype} == {find_dtype(np.dtype(kind))}
    assert table.ids is not None
    assert table.ids.to_pylist() == IDS
    assert (table.num_rows, table.width) == (4, 3)


def test_open_table_reads_bfloat16(tmp_path: Path) -> None:
    """As float32."""
    save_file({"x": torch.from_numpy(VALUES).bfloat16()}, tmp_path / "x.safetensors")
    table = open_table(FeatureSource(path=str(tmp_path / "x.safetensors")))
    assert np.array_equal(read(table), VALUES)
    assert table.dtype == np.float32


def test_open_table_takes_numeric_columns(tmp_path: Path) -> None:
    """A Parquet file of one column per feature; a missing value is NaN."""
    frame = pd.DataFrame(VALUES, columns=["f0", "f1", "f2"])
    frame.insert(0, "id", [1, 2, 3, 4])
    frame["is_open"] = pd.array([True, False, None, True], dtype="boolean")
    frame.to_parquet(tmp_path / "x.parquet")
    table = open_table(FeatureSource(path=str(tmp_path / "x.parquet")))
    expected = np.column_stack([VALUES, [1, 0, np.nan, 1]])
    assert np.array_equal(read(table), expected, equal_nan=True)
    assert table.ids is not None
    assert table.ids.to_pylist() == ["1", "2", "3", "4"]


@pytest.mark.parametrize("name", [None, "row"])
def test_open_table_leaves_out_the_index_of_pandas(tmp_path: Path, name: str | None) -> None:
    """The index that pandas writes as a column of the Parquet file is no feature."""
    frame = (
        pd.DataFrame(VALUES, columns=["a", "b", "c"]).assign(id=IDS).iloc[::-1].rename_axis(name)
    )
    frame.to_parquet(tmp_path / "x.parquet")
    table = open_table(FeatureSource(path=str(tmp_path / "x.parquet")))
    assert np.array_equal(read(table), VALUES[::-1])
    frame[["id"]].assign(x=list(VALUES)).to_parquet(tmp_path / "lists.parquet")
    assert open_table(FeatureSource(path=str(tmp_path / "lists.parquet"))).width == 3


def test_make_table_takes_arrays_tensors_and_frames() -> None:
    """All but float16 become float32; ids are a frame's index or column. Every value and id counts
    in the digest."""
    assert make_table(torch.ones(2, 3, dtype=torch.bfloat16)).dtype == np.float32
    assert make_table(np.ones((2, 3))).dtype == np.float32
    assert make_table(np.ones((2, 3), np.float16)).dtype == np.float16
    assert read(make_table(np.array([[4097]], np.int16))).tolist() == [[4097]]  # 4096 in float16
    mixed = pd.DataFrame({"x": np.ones(1, np.float16), "y": [4097.0]})
    assert read(make_table(mixed)).tolist() == [[1, 4097]]
    frames = [
        pd.DataFrame(VALUES, index=IDS),
        pd.DataFrame({"id": IDS, "x": list(VALUES)}),
        pd.DataFrame({"x": list(VALUES)}, index=pd.Index(IDS, name="paper")),
    ]
    for table in map(make_table, frames):
        assert np.array_equal(read(table), VALUES)
        assert table.ids is not None
        assert table.ids.to_pylist() == IDS
    assert len({make_table(frame).compute_digest() for frame in frames}) == 1
    others = [VALUES, VALUES.astype(np.float16), VALUES[:, :2], pd.DataFrame(VALUES, IDS[::-1])]
    others += [VALUES + (VALUES == 11), pd.DataFrame(VALUES, ["a b", "c", "d", "e"])]
    others += [pd.DataFrame(VALUES, ["a", "b c", "d", "e"])]
    assert len({make_table(one).compute_digest() for one in [frames[0], *others]}) == 8


def refuse(values: object) -> str:
    """Sentence with which values are refused."""
    with pytest.raises(CorpusError) as caught:
        list(make_table(values).read())
    return str(caught.value)


def test_make_table_refuses_what_is_no_matrix() -> None:
    """One dimension, text, two widths, no values, no ids."""
    assert refuse(np.ones(3)) == (
        "Features must be a matrix of numbers, a row per node, but the given array is [3] of "
        "float64; reshape or convert it."
    )
    assert "is [1, 1] of <U1;" in refuse(np.array([["a"]]))
    assert "the given array is none (setting an array element" in refuse([[1.0], [1.0, 2.0]])
    assert "the given array is none (can't convert Sparse" in refuse(torch.eye(2).to_sparse())
    assert "the given array is none (Cannot copy out" in refuse(torch.ones(2, 2, device="meta"))
    assert refuse(pd.DataFrame({"x": [[1.0], [1.0, 2.0]]})) == (
        "Features must be readable, but the given data frame is not (the lists of 'x' must have "
        "one length, found 1 and 2); check what it holds, and that it is whole."
    )
    assert "found 2 and 1)" in refuse(pd.DataFrame({"x": [[1.0, 2.0], [1.0]]}))
    assert "(it has no column but 'id')" in refuse(pd.DataFrame({"id": ["a"]}))
    assert "the columns ['name'] are neither numbers nor lists of numbers" in refuse(
        pd.DataFrame({"name": ["a"], "x": [1.0]})
    )
    assert refuse(pd.DataFrame({"x": [1.0, 2.0], "id": ["a", None]})) == (
        "Features must have an id for every row, but the given data frame has 1 rows without; "
        "leave them out."
    )


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("x.npy", b"", "EOF"),
        ("x.npy", b"\x80\x04]", "magic string"),
        ("x.safetensors", b"12345678", ""),
        ("x.parquet", b"PAR1", ""),
        ("x.csv", b"", "must be in a file that ends with one of .npy, .safetensors, .parquet"),
    ],
)
def test_open_table_refuses_damaged_files(
    tmp_path: Path, name: str, content: bytes, reason: str
) -> None:
    """One sentence that names the file."""
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(CorpusError) as caught:
        open_table(FeatureSource(path=str(path)))
    assert str(path) in str(caught.value)
    assert reason in str(caught.value)


def test_open_table_unpickles_nothing(tmp_path: Path) -> None:
    """An array of objects is refused."""
    np.save(tmp_path / "x.npy", np.array([["a", None]], dtype=object))
    with pytest.raises(CorpusError, match=r"x\.npy' is not \(Array can't be memory-mapped"):
        open_table(FeatureSource(path=str(tmp_path / "x.npy")))


def test_open_table_refuses_what_it_cannot_find(tmp_path: Path) -> None:
    """A file, a key, ids that are too few, ids and keys where there are none."""
    parquet, npy = write(tmp_path / "x.parquet"), write(tmp_path / "x.npy")
    tensors = write(tmp_path / "x.safetensors")
    (tmp_path / "few.txt").write_text("a\nb\n")
    pq.write_table(pa.table({"x": [1.0]}), tmp_path / "anonymous.parquet")
    cases = {
        "No such file": FeatureSource(path=str(tmp_path / "none.npy")),
        r"must name one of its columns of lists \['x'\], found y": parquet.model_copy(
            update={"key": "y"}
        ),
        r"key must name one of its tensors \['x'\], found y": tensors.model_copy(
            update={"key": "y"}
        ),
        "has 2 ids and 4 rows; write both from one": npy.model_copy(
            update={"ids": str(tmp_path / "few.txt")}
        ),
        r"it has the columns \['x'\] and no 'id'": FeatureSource(
            path=str(tmp_path / "anonymous.parquet")
        ),
        "must be its column 'id', but ids are given": parquet.model_copy(update={"ids": npy.ids}),
        "holds one array without a name, but a key": npy.model_copy(update={"key": "x"}),
    }
    for sentence, source in cases.items():
        with pytest.raises(CorpusError, match=sentence):
            open_table(source)
