"""Features in the order of the nodes: aligned once, checked, mapped."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file

from match_graph.config import FeatureSource
from match_graph.datasets import Synthetic
from match_graph.errors import CorpusError
from match_graph.features import identify_features, make_features, open_features
from match_graph.features import table as table_module
from match_graph.features.store import _Store, find_nodes
from match_graph.features.table import make_table
from match_graph.io import Reporter


def save(path: Path, values: np.ndarray, ids: Sequence[str] | None = None) -> FeatureSource:
    np.save(path, values)
    if ids is None:
        return FeatureSource(path=str(path))
    path.with_suffix(".txt").write_text("".join(f"{name}\n" for name in ids))
    return FeatureSource(path=str(path), ids=str(path.with_suffix(".txt")))


def test_open_features_follows_ids(
    synthetic: Synthetic,
    ids: list[str],
    vectors: np.ndarray,
    tmp_path: Path,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Shuffled rows with their ids give the same bytes as rows in the order of the nodes."""
    monkeypatch.setattr(table_module, "_BLOCK_BYTES", 4 * vectors.shape[1] * 7)  # 7 rows
    order = np.random.default_rng(1).permutation(len(ids))
    plain = open_features(save(tmp_path / "x.npy", vectors), synthetic, "document")
    shuffled = save(tmp_path / "y.npy", vectors[order], [ids[row] for row in order])
    other = open_features(shuffled, synthetic, "document")
    assert torch.equal(plain.x, torch.from_numpy(vectors))
    assert plain.digest != other.digest
    first, second = sorted((home / "features").glob("document-*/x.npy"))
    assert first.read_bytes() == second.read_bytes()


def test_open_features_writes_once(
    synthetic: Synthetic, vectors: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two at once write one folder, and a later call opens it; another file gets another."""
    written = []
    write = _Store._write
    monkeypatch.setattr(_Store, "_write", lambda *args: written.append(1) or write(*args))
    source = save(tmp_path / "x.npy", vectors.astype(np.float16))
    with ThreadPoolExecutor(2) as pool:
        both = list(pool.map(lambda _: open_features(source, synthetic, "document"), range(2)))
    again = open_features(source, synthetic, "document")
    assert {one.digest for one in [*both, again]} == {again.digest}
    assert again.x.dtype == torch.float16
    assert written == [1]
    changed = open_features(save(tmp_path / "x.npy", vectors + 1), synthetic, "document")
    assert changed.digest != again.digest
    assert torch.equal(changed.x, torch.from_numpy(vectors + 1))


def test_open_features_tells_keys_ids_and_data_apart(
    synthetic: Synthetic, ids: list[str], vectors: np.ndarray, tmp_path: Path, home: Path
) -> None:
    """One file has other features by another key, by other ids, and for another data set."""
    x = torch.from_numpy(vectors)
    path = tmp_path / "x.safetensors"
    save_file({"x": x, "y": x + 1}, path)
    for key, expected in (("x", x), ("y", x + 1)):
        source = FeatureSource(path=str(path), key=key)
        assert torch.equal(open_features(source, synthetic, "document").x, expected)
    for order, expected in ((ids, x), (ids[::-1], x.flip(0))):
        found = open_features(save(tmp_path / "x.npy", vectors, order), synthetic, "document")
        assert torch.equal(found.x, expected)
    digest = open_features(source, synthetic, "document").digest
    assert identify_features(source, "document", synthetic.checksum) == digest
    assert identify_features(source, "document", "another") != digest


def test_open_features_counts_ids_of_no_node(
    synthetic: Synthetic, ids: list[str], vectors: np.ndarray, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """Their values do not matter."""
    more = np.vstack([vectors, np.full((2, 5), np.nan, np.float32)])
    source = save(tmp_path / "x.npy", more, [*ids, "other", "other"])
    assert torch.equal(
        open_features(source, synthetic, "document", tmp_path, Reporter()).x,
        torch.from_numpy(vectors),
    )
    assert "2 of 402 rows are of no document in the graph" in capsys.readouterr().err


def test_make_features_takes_every_node_type(synthetic: Synthetic, tmp_path: Path) -> None:
    """By name; a type that the graph lacks is named."""
    for node_type in ("word", "label", "author"):
        names = synthetic.names(node_type)
        values = np.arange(2 * len(names), dtype=np.float64).reshape(-1, 2)
        frame = pd.DataFrame(values[::-1], index=names[::-1])
        x = make_features(frame, synthetic, node_type, tmp_path).x
        assert torch.equal(x, torch.from_numpy(values).float())
    with pytest.raises(
        CorpusError, match=r"^A node type must be one of .*, found 'editor'; check the name\.$"
    ):
        make_features(values, synthetic, "editor")


@given(st.permutations(range(4)), st.integers(0, 4))
def test_find_nodes_is_the_inverse_of_ids(order: list[int], others: int) -> None:
    """Each row has the node of its id, or -1."""
    names = [f"n{row}" for row in order] + [f"o{row}" for row in range(others)]
    table = make_table(pd.DataFrame({"id": names, "x": 1.0}))
    graph = make_table(pd.DataFrame({"id": [f"n{row}" for row in range(4)], "x": 1.0})).ids
    assert graph is not None
    found = find_nodes(table, graph.combine_chunks(), "document")
    assert found.tolist() == [*order, *[-1] * others]


def test_open_features_stores_once_what_was_in_memory(
    synthetic: Synthetic, ids: list[str], vectors: np.ndarray, tmp_path: Path
) -> None:
    """Features given in memory are hard-linked, unless ids reorder them; a file is copied."""
    kept = make_features(vectors, synthetic, "document", tmp_path).path
    again = open_features(FeatureSource(path=str(kept)), synthetic, "document", tmp_path)
    assert again.path != kept
    assert again.path.samefile(kept)
    assert np.array_equal(again.x.numpy(), vectors)
    (tmp_path / "ids.txt").write_text("".join(f"{name}\n" for name in reversed(ids)))
    turned = FeatureSource(path=str(kept), ids=str(tmp_path / "ids.txt"))
    found = open_features(turned, synthetic, "document", tmp_path).x
    assert np.array_equal(found.numpy(), vectors[::-1])
    other = save(tmp_path / "x.npy", vectors + 1)
    copy = open_features(other, synthetic, "document", tmp_path).path
    assert not copy.samefile(str(other.path))


def refuse(dataset: Synthetic, source: FeatureSource) -> str:
    """Sentence with which features are refused; nothing is left."""
    with pytest.raises(CorpusError) as caught:
        open_features(source, dataset, "document")
    return str(caught.value)


def test_open_features_refuses_wrong_rows(
    synthetic: Synthetic, ids: list[str], vectors: np.ndarray, tmp_path: Path, home: Path
) -> None:
    """Too few rows, an id twice, ids that are missing, NaN, what float16 cannot hold."""
    path = tmp_path / "x.npy"
    assert refuse(synthetic, save(path, vectors[1:])) == (
        f"Features without ids must have a row per node, but '{path}' has 399 rows and the graph "
        f"400 nodes of type 'document'; give ids beside them."
    )
    twice = [*ids[:3], ids[0], *ids[4:]]
    assert refuse(synthetic, save(path, vectors, twice)) == (
        f"Features must have each id once, but '{path}' has '{ids[0]}' 2 times; keep one of its "
        f"rows."
    )
    other = [*[f"W{name}" for name in ids[:5]], *ids[5:]]
    assert refuse(synthetic, save(path, vectors, other)) == (
        f"Every node of type 'document' must have features, but '{path}' has none of '{ids[0]}', "
        f"'{ids[1]}', '{ids[2]}' and 2 more; add rows for these ids (its first are 'W{ids[0]}', "
        f"'W{ids[1]}', 'W{ids[2]}')."
    )
    broken = vectors.astype(np.float64)
    for value in (np.nan, 1e300):
        broken[7, 2] = value
        assert refuse(synthetic, save(path, broken)) == (
            f"Features must be finite in float32, but '{path}' has a value that is not for the "
            f"document '{ids[7]}'; replace it."
        )
    assert f"is not for the document '{ids[-8]}';" in refuse(
        synthetic, save(path, broken, ids[::-1])
    )
    assert "(No such file or directory); check the path." in refuse(
        synthetic, FeatureSource(path=str(tmp_path / "no.npy"))
    )
    assert not [one for one in (home / "features").iterdir() if one.suffix != ".lock"]


def test_open_features_refuses_a_damaged_store(
    synthetic: Synthetic, vectors: np.ndarray, tmp_path: Path, home: Path
) -> None:
    """A byte of the kept file is flipped; a root that cannot be written."""
    source = save(tmp_path / "x.npy", vectors)
    open_features(source, synthetic, "document")
    [path] = (home / "features").glob("document-*/x.npy")
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    fault = refuse(synthetic, source)
    assert fault.startswith(f"Built data must be what match-graph wrote, but '{path}' is not (its")
    assert fault.endswith(
        "; delete this folder, and give the features again where they were in memory."
    )
    (tmp_path / "file").touch()
    with pytest.raises(CorpusError, match=r"could not be written \(Not a directory\)"):
        open_features(source, synthetic, "document", tmp_path / "file")


def test_open_features_refuses_a_file_that_changes(
    synthetic: Synthetic, vectors: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it is read."""
    source = save(tmp_path / "x.npy", vectors)
    write = _Store._write

    def change(store: _Store, *args: object) -> None:
        write(store, *args)
        save(tmp_path / "x.npy", vectors + 1)

    monkeypatch.setattr(_Store, "_write", change)
    assert "x.npy' changed; build again when nothing writes there" in refuse(synthetic, source)
