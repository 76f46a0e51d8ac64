"""Sharded state: written by two processes, read by one, damaged, and cut off."""

from pathlib import Path

import pytest
import torch
from together import run_together

from match_graph.config import TrainConfig
from match_graph.io.exchange import RowShard
from match_graph.io.files import DamagedError, read_state, read_tensors, write_state
from match_graph.io.manifest import read_manifest, write_manifest
from match_graph.io.run_folder import CONFIG
from match_graph.training import parts as parts_module
from match_graph.training.device import make_fabric
from match_graph.training.parts import (
    PartsReader,
    Share,
    check_parts,
    remove_parts,
    write_parts,
    write_weights,
)

TABLE = torch.arange(600.0).reshape(200, 3)


def write_state_of_two(folder: Path) -> None:
    """Parts twice, weights once, and weights where no file can be."""
    fabric = make_fabric(TrainConfig(accelerator="cpu"))
    shard = RowShard.here(len(TABLE))
    row, local = shard.find_own(0, len(TABLE))
    share = Share(TABLE[row[local.argsort()]], shard)
    plain = torch.tensor([1, 2])
    for _ in range(2):
        content, parts = write_parts(
            fabric, folder / "checkpoint", {"model": [share, plain], "other": {"a": 1}}
        )
    assert parts is not None
    if fabric.is_global_zero:
        write_state(folder / "checkpoint/state.pt", {**content, "parts": parts})
    write_weights(fabric, folder / "model.safetensors", {"table": share, "plain": plain})
    (folder / f"file{fabric.global_rank}").touch()
    write_weights(fabric, folder / "file0/model.safetensors", {"table": share})


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_write_parts_one_process_reads_those_of_two(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the bit; a part that is damaged is found; what no checkpoint names goes."""
    monkeypatch.setattr(parts_module, "_BLOCK_BYTES", 70 * 12)  # three blocks of 200 rows
    write_manifest(tmp_path, {})
    (tmp_path / CONFIG).touch()
    assert run_together(write_state_of_two, tmp_path) == [1, 1]  # the disk refused the last file
    weights = read_tensors(tmp_path / "model.safetensors")
    assert torch.equal(weights["table"], TABLE)
    assert weights["plain"].tolist() == [1, 2]
    folder = tmp_path / "checkpoint"
    state = read_state(folder / "state.pt")
    assert state["model"][0] == {"part": "parts/model/0", "shape": [200, 3], "stacked": True}
    assert state["other"] == {"a": 1}
    check_parts(folder, state)
    assert len(state["parts"]["files"]) == 2
    reader = PartsReader(make_fabric(TrainConfig(accelerator="cpu")), folder, state["parts"])
    places = [(value, torch.empty(0), None) for value in state["model"]]
    for place in places:
        reader.ask(*place)
    reader.read()
    assert torch.equal(reader.take(*places[0]), TABLE)
    assert reader.take(*places[1]).tolist() == [1, 2]

    remove_parts(folder, [state["parts"], None])
    assert [path.name for path in folder.glob("parts-*")] == ["parts-2"]
    listed = {name for name in read_manifest(tmp_path) if "/parts-" in name}
    assert listed == {f"checkpoint/parts-2/{name}" for name in state["parts"]["files"]}
    file = folder / "parts-2" / state["parts"]["files"][1]
    content = file.read_bytes()
    file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(DamagedError, match="SHA-256"):
        check_parts(folder, state)
    file.unlink()
    with pytest.raises(DamagedError, match="missing"):
        check_parts(folder, state)
    remove_parts(folder)
    assert not list(folder.glob("parts-*"))


def test_write_parts_nothing_sharded_makes_no_folder(tmp_path: Path) -> None:
    """The content stays what it is."""
    content = {"model": [torch.ones(2)], "average": None}
    fabric = make_fabric(TrainConfig(accelerator="cpu"))
    assert write_parts(fabric, tmp_path, content) == (content, None)
    assert not list(tmp_path.iterdir())
