"""Lists by target: compared with a slow loop, also where edges are spread over files."""

from pathlib import Path

import numpy as np
import pytest

from match_graph.graph import reverse
from match_graph.graph.reverse import reverse_lists


@pytest.mark.parametrize("block", [2**23, 50])
@pytest.mark.parametrize("keys", ["", "train", "time", "train time", "sorted"])
def test_reverse_lists_equals_a_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys: str, block: int
) -> None:
    """Training first, then time, then the source; a source twice keeps the order of its edges."""
    monkeypatch.setattr(reverse, "_BLOCK", block)
    random = np.random.default_rng(1)
    num_sources, num_targets = 40, 30
    degree = random.integers(0, 20, num_sources) * (random.random(num_sources) < 0.7)
    ptr = np.concatenate([[0], np.cumsum(degree)])
    index = (random.random(ptr[-1]) ** 3 * num_targets).astype(np.int32)  # some have most
    np.save(tmp_path / "ptr.npy", ptr)
    np.save(tmp_path / "index.npy", index)
    train = random.random(num_sources) < 0.5 if "train" in keys else None
    if keys == "sorted":
        train = np.arange(num_sources) < 9
    time = random.integers(0, 4, num_sources) if "time" in keys else None
    sources: list[np.ndarray] = []
    edges: list[np.ndarray] = []
    new_ptr, stop = reverse_lists(tmp_path, num_targets, train, time, sources.append, edges.append)
    found = [
        part.tolist() for part in np.split(np.concatenate(edges), new_ptr[1:-1])
    ]  # fmt: skip
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
    assert np.concatenate(sources).tolist() == row[np.concatenate(edges)].tolist()
    assert (stop is None) == (train is None)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["index.npy", "ptr.npy"]
