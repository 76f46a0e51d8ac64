"""The measures of speed: what they count, and one JSON object per line."""

import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from match_graph.benchmark import SPEED_STAGES, measure_speed
from match_graph.benchmark.speed import MemoryPeak
from match_graph.cli import app
from match_graph.datasets import Synthetic
from match_graph.errors import ConfigError

CPU = torch.device("cpu")
KEYS = ["stage", "size", "device", "rate", "unit", "baseline", "ratio", "peak_mib"]


def test_pretrain_is_measured_against_independent_negatives(
    synthetic: Synthetic, small_settings
) -> None:
    (found,) = measure_speed("pretrain", synthetic, small_settings(), 0.3, CPU)
    content = found.to_dict()
    assert list(content) == [*KEYS, "comparisons_per_s"]
    assert content["comparisons_per_s"] == pytest.approx(32 * content["rate"], rel=1e-3)
    assert content["baseline"].startswith("independent negatives: ")
    assert content["ratio"] > 1
    assert content["peak_mib"] is None or content["peak_mib"] < 200


def test_all_measures_every_stage(synthetic: Synthetic, small_settings) -> None:
    stages = [found.stage for found in measure_speed("all", synthetic, small_settings(), 0.1, CPU)]
    assert set(stages) == set(SPEED_STAGES)


def test_an_unknown_stage_is_named(synthetic: Synthetic, small_settings) -> None:
    with pytest.raises(ConfigError) as caught:
        list(measure_speed("nap", synthetic, small_settings(), 0.1, CPU))
    assert str(caught.value) == "A stage must be one of ['pretrain'] or 'all', found 'nap'."


def test_memory_peaks_are_seen_though_they_are_gone() -> None:
    with MemoryPeak(CPU).watch() as memory:
        block = torch.ones(2**24)  # 64 MiB
        del block
    assert memory.mib is None or 32 < memory.mib < 500


def test_the_command_prints_one_json_object_per_line(tmp_path: Path) -> None:
    result = CliRunner().invoke(
        app,
        ["speed", "pretrain", "--json", "--dataset", "synthetic", "--seconds", "0.2",
         "--root", str(tmp_path), "--set", "data.options={num_documents: 200, num_labels: 12}",
         "--set", "train.accelerator=cpu"],
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    (line,) = result.stdout.splitlines()
    assert json.loads(line)["stage"] == "pretrain"
    assert json.loads(line)["peak_mib"] is None or json.loads(line)["peak_mib"] >= 0
