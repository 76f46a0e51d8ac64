"""Transposed neighbour lists against a slow loop, also in several blocks of edges."""

from pathlib import Path

import numpy as np
import pytest

from match_graph.graph import reverse
from match_graph.graph.reverse import Reversal


@pytest.mark.parametrize("block", [2**23, 50])
@pytest.mark.parametrize("keys", ["", "train", "time", "train time", "sorted"])
def test_Reversal_equals_a_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys: str, block: int
) -> None:
    """Training first, then time, then the source; a source twice keeps the order of its edges."""
    monkeypatch.setattr(reverse, "_BLOCK", block)
    random = np.random.default_rng(1)
    num_sources, num_targets = 40, 30
    degree = random.integers(0, 20, num_sources) * (random.random(num_sources) < 0.7)
    ptr = np.concatenate([[0], np.cumsum(degree)])
    index = (random.random(ptr[-1]) ** 3 * num_targets).astype(np.int32)  # some have most
    (tmp_path / "edges").mkdir()
    np.save(tmp_path / "edges/ptr.npy", ptr)
    np.save(tmp_path / "edges/index.npy", index)
    train = random.random(num_sources) < 0.5 if "train" in keys else None
    if keys == "sorted":
        train = np.arange(num_sources) < 9
    time = random.integers(0, 4, num_sources) if "time" in keys else None
    paths: list[Path | None] = [None, None]
    for number, values in enumerate((train, time)):
        if values is not None:
            paths[number] = tmp_path / f"{number}.npy"
            np.save(tmp_path / f"{number}.npy", values)
    folder = tmp_path / "edges"
    reversal = Reversal(folder, num_targets, (np.dtype(np.int32), np.dtype(np.int64)), *paths)
    for task in reversed([*reversal.begin(), *reversal.begin()]):  # a lost one's are done again
        task.write()
    for bucket in reversed(reversal.list_buckets()):
        bucket.write()
    reversal.end()
    new_ptr, edges, sources = (np.load(folder / f"back/{n}.npy") for n in ("ptr", "edge", "index"))
    stop = np.load(folder / "back/stop.npy") if train is not None else None
    assert (edges.dtype, sources.dtype) == (np.int64, np.int32)
    found = [part.tolist() for part in np.split(edges, new_ptr[1:-1])]
    row = np.repeat(np.arange(num_sources), degree)
    for target in range(num_targets):
        expected = sorted(
            np.flatnonzero(index == target).tolist(),
            key=lambda edge: (
                train is not None and not train[row[edge]],
                0 if time is None else time[row[edge]],
                edge,
            ),
        )
        assert found[target] == expected
        if stop is not None and train is not None:
            assert stop[target] - new_ptr[target] == train[row[expected]].sum()
    assert sources.tolist() == row[edges].tolist()
    assert (folder / "back/stop.npy").exists() == (train is not None)
    assert sorted(path.name for path in folder.iterdir()) == ["back", "index.npy", "ptr.npy"]
