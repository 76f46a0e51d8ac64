"""Profile of training steps."""

import json
from pathlib import Path

from match_graph.io.run_folder import CONFIG, MODEL, PROFILE
from match_graph.training.profiling import ACTIVE, WAIT, WARMUP, profile_steps


def test_profile_steps_none_writes_nothing(tmp_path: Path) -> None:
    """Without a folder nothing is recorded."""
    with profile_steps(None) as tick:
        tick()
    assert not list(tmp_path.iterdir())


def test_profile_steps_of_a_run(call, tmp_path: Path) -> None:
    """--profile writes trace and table; settings and weights are those of a run without it."""
    line = [
        "train", "synthetic", "--root", tmp_path / "root", "--quiet", "--logger", "none",
        "--set", "data.options={num_documents: 400, num_labels: 24, num_layers: 3}",
        "--set", "train.epochs=1", "--set", "model.init=random", "--set", "train.batch_size=16",
        "--set", "train.precision=32-true",
    ]  # fmt: skip
    code, _, printed = call(*line, "--out", tmp_path / "with", "--profile")
    assert (code, printed) == (0, "")
    assert call(*line, "--out", tmp_path / "without")[0] == 0
    for name in (CONFIG, MODEL):
        assert (tmp_path / "with" / name).read_bytes() == (tmp_path / "without" / name).read_bytes()
    trace = json.loads((tmp_path / "with" / PROFILE / "trace.json").read_text())
    steps = {e["name"] for e in trace["traceEvents"] if e["name"].startswith("ProfilerStep#")}
    first = WAIT + WARMUP
    assert steps == {f"ProfilerStep#{number}" for number in range(first, first + ACTIVE)}
    assert "aten::addmm" in (tmp_path / "with" / PROFILE / "operations.txt").read_text()
    assert not (tmp_path / "without" / PROFILE).exists()
