"""The measures of speed: what they count, and one JSON object per line."""

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from typer.testing import CliRunner

from match_graph.cli import app
from match_graph.datasets import DATASETS, Synthetic
from match_graph.errors import ConfigError
from match_graph.graph import EgoBatch, Hierarchy
from match_graph.io import Reporter
from match_graph.speed import (
    SPEED_SIZES,
    SPEED_STAGES,
    Bench,
    measure,
    measure_speed,
    predict,
    pretrain,
    sample,
    scaling,
)
from match_graph.speed.batches import open_bench
from match_graph.speed.measure import MemoryPeak, busy_processes, take_turns
from match_graph.speed.pretrain import measure_pretrain
from match_graph.speed.sample import LoopSampler
from match_graph.speed.step import measure_step
from match_graph.typing import MASKS

CPU = torch.device("cpu")
KEYS = ["stage", "size", "device", "rate", "unit", "baseline", "ratio", "peak_mib"]


#: Numbers that a stage has beside the common ones.
MORE = {
    "build": [],
    "sample": ["tokens_per_s"],
    "pretrain": ["comparisons_per_s"],
    "step": ["share_loading", "epoch_seconds"],
    "targets": [],
    "hypernymy": ["share_of_step", "milliseconds"],
    "predict": [],
}
BASELINES = {
    "build": ["a row for each token"],
    "sample": ["a loop over documents"],
    "pretrain": ["independent negatives", "5 independent negatives"],
    "step": [
        "padded to 500",
        "padded to the batch",
        "padded to the batch, sorted by length",
        "ours, all rows of the embedding",
    ],
    "targets": ["dense targets"],
    "hypernymy": ["a loop over the edges"],
    "predict": ["padded to 500", "padded to the batch, 32-true"],
}


@pytest.mark.parametrize("stage", sorted(BASELINES))
def test_SPEED_STAGES_stage_is_measured_against_its_baselines(bench: Bench, stage: str) -> None:
    """There is one measure per baseline, with the common keys and those of the stage."""
    found = list(SPEED_STAGES[stage](bench))
    assert [speed.baseline.split(":")[0] for speed in found] == BASELINES[stage]
    for speed in found:
        content = speed.to_dict()
        assert list(content) == [*KEYS, *MORE[stage], "cpu_share"]
        assert content["stage"] == stage
        assert content["size"].startswith("synthetic: ")
        assert content["device"] == "cpu, 1 threads"
        rate = float(speed.baseline.split()[-2].replace(",", ""))
        assert content["ratio"] == pytest.approx(content["rate"] / rate, rel=1e-2)
        assert content["baseline"].endswith(content["unit"])
        assert content["peak_mib"] is None or 0 <= content["peak_mib"] < 500


@pytest.mark.parametrize("stage", ["build", "sample", "sharding"])
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_SPEED_STAGES_stage_of_the_cpu_says_so_beside_a_gpu(bench: Bench, stage: str) -> None:
    """Device and memory are those of the CPU, though the settings choose a GPU."""
    for found in SPEED_STAGES[stage](replace(bench, device=torch.device("cuda"))):
        assert found.device == "cpu, 1 threads"
        assert found.peak_mib is None or found.peak_mib >= 0


def test_measure_step_has_a_baseline_of_our_precision(bench: Bench) -> None:
    """With bf16-mixed, the last one of the padded baselines is computed in bf16-mixed too."""
    train = bench.config.train.model_copy(update={"precision": "bf16-mixed"})
    config = bench.config.model_copy(update={"train": train})
    *_, found, _ = measure_step(replace(bench, config=config, seconds=0.1))
    assert found.baseline.startswith("padded to the batch, sorted by length, bf16-mixed: ")


def test_measure_pretrain_shared_negatives_compare_more(bench: Bench) -> None:
    """Comparisons are positives times negatives, and shared ones are faster."""
    for found in measure_pretrain(bench):
        assert found.more["comparisons_per_s"] == pytest.approx(32 * found.rate, rel=1e-3)
        assert found.ratio > 1


@pytest.mark.parametrize("stage", ["targets", "hypernymy"])
def test_SPEED_STAGES_first_batch_may_be_the_smallest(bench: Bench, stage: str) -> None:
    """Logits have the size of a full batch, though the first one has a single document."""
    config = bench.config.change("train", batch_size=319)
    for seed in range(20):
        rest_first = replace(bench, config=config.model_copy(update={"seed": seed}))
        loader = open_bench(rest_first).loader("train", training=True)
        if next(iter(loader)).num_documents == 1:
            break
    (found,) = SPEED_STAGES[stage](rest_first)
    assert found.size.startswith("synthetic: batches of 319, 25 labels")


def test_measure_sample_loop_goes_through_batches_of_all_sizes(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both sample the same mean number of tokens per document."""
    drawn: list[int] = []
    works: list[Mapping[str, Callable[[], float]]] = []
    draw = LoopSampler.sample

    def count(self: LoopSampler, documents: Tensor) -> EgoBatch:
        batch = draw(self, documents)
        drawn.append(batch.token_id.numel())
        return batch

    monkeypatch.setattr(LoopSampler, "sample", count)
    monkeypatch.setattr(sample, "compare", lambda *given, **_: iter(works.append(given[4]) or ()))
    assert list(SPEED_STAGES["sample"](bench)) == []
    loader = open_bench(bench).loader("train", training=True)
    expected = [batch.token_id.numel() for batch in loader]
    for _ in expected:
        works[0]["a loop over documents"]()
    assert sum(drawn) == pytest.approx(sum(expected), rel=0.05)


def test_measure_pretrain_pieces_of_work_have_as_many_positives(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call trains as many positives by ours as by the baselines."""
    works: list[Mapping[str, Callable[[], float]]] = []
    monkeypatch.setattr(pretrain, "compare", lambda *given, **_: iter(works.append(given[4]) or ()))
    assert list(measure_pretrain(bench)) == []
    assert len({work() for work in works[0].values()}) == 1


def test_measure_predict_without_test_documents(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All documents are predicted instead; their labels are not read."""
    given: list[Any] = []
    monkeypatch.setattr(predict, "compare", lambda *parts, **_: iter(given.extend(parts) or ()))
    documents = type(bench.dataset).documents
    monkeypatch.setattr(
        type(bench.dataset),
        "documents",
        lambda self, mask: documents(self, mask)[: 0 if mask == MASKS["test"] else None],
    )
    assert list(SPEED_STAGES["predict"](bench)) == []
    _, _, size, _, work, *_ = given
    assert size.startswith("400 documents")
    assert work["ours"]() == 400


def test_measure_speed_all_measures_every_stage_of_the_data_set(
    synthetic: Synthetic, small_settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stages on other corpora or of minutes run only if named."""
    called: list[str] = []
    for name in SPEED_STAGES:
        monkeypatch.setitem(
            SPEED_STAGES, name, lambda _bench, name=name: iter(called.append(name) or ())
        )
    assert list(measure_speed("all", synthetic, small_settings(), 0.1, CPU)) == []
    assert called == list(BASELINES)


def test_measure_speed_all_goes_on_behind_a_refused_stage(
    synthetic: Synthetic, small_settings, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    """Without label edges `all` leaves out hypernymy and measures all other stages."""
    called: list[str] = []
    for name in {*SPEED_STAGES} - {"hypernymy"}:
        monkeypatch.setitem(
            SPEED_STAGES, name, lambda _bench, name=name: iter(called.append(name) or ())
        )
    flat = Hierarchy.without_edges(synthetic.num_labels)
    monkeypatch.setattr(synthetic, "hierarchy", flat)
    given = "all", synthetic, small_settings(), 0.1, CPU
    assert list(measure_speed(*given, reporter=Reporter(quiet=True))) == []
    assert called == [name for name in BASELINES if name != "hypernymy"]
    error = " ".join(capsys.readouterr().err.split())
    assert error.startswith("warning: 'hypernymy' is left out: The speed of hypernymy is measured")


def test_SPEED_STAGES_every_stage_is_tested() -> None:
    """Every registered stage has a test here or in a file of its own."""
    for name in set(SPEED_STAGES) - set(BASELINES) - {"scaling"}:
        assert (Path(__file__).parent / f"test_{name}.py").is_file()


def test_scaling_gives_slopes(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each size has a build and a step; the first is the baseline of the others."""
    monkeypatch.setattr(scaling, "FACTORS", ((1, 1), (4, 1)))
    monkeypatch.setattr(scaling, "_BASE", 1 / 256)
    found = list(scaling.measure_scaling(bench))
    assert [speed.stage for speed in found] == ["scaling: build", "scaling: step"] * 2
    assert [speed.ratio for speed in found[:2]] == [1.0, 1.0]
    assert ["slope" in speed.more for speed in found] == [False, False, True, True]
    assert found[2].size == "documents x 4, labels x 1: 11,022 documents, 62 labels"
    for first, later in zip(found[:2], found[2:], strict=True):
        slope = math.log(later.more["seconds"] / first.more["seconds"]) / math.log(4)
        assert later.more["slope"] == pytest.approx(slope, abs=1e-2)


def test_take_turns_give_the_median_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each item is called once to warm up, then in turns; one slow turn does not count."""
    calls = []

    def work(name: str, *pauses: float):
        left = [0.0, *pauses]

        def run() -> float:
            calls.append(name)
            time.sleep(left.pop(0))
            return 10

        return run

    rates = take_turns(
        {"a": work("a", 0.02, 0.2, 0.02), "b": work("b", 0.04, 0.04, 0.04)}, 1e-9, CPU
    )
    assert calls == ["a", "b"] * 4
    assert 100 < rates.per_second["a"] <= 500
    assert 50 < rates.per_second["b"] <= 250
    assert 0 <= rates.cpu_share < 0.9


def is_alive(process: int) -> bool:
    """Whether a process runs and is no zombie."""
    try:
        os.kill(process, 0)
        state = Path(f"/proc/{process}/stat")
        return not state.is_file() or state.read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False


def wait_for_end(processes: list[int]) -> bool:
    """Whether all of some processes end within ten seconds."""
    for _ in range(100):
        if not any(map(is_alive, processes)):
            return True
        time.sleep(0.1)
    return False


def test_busy_processes_end_with_the_block() -> None:
    """They end also if the block raises."""
    with pytest.raises(ValueError, match="no"), busy_processes(2) as processes:
        assert len(set(processes)) == 2
        assert all(map(is_alive, processes))
        raise ValueError("no")
    assert not any(map(is_alive, processes))


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no kill -9 here")
def test_busy_processes_end_with_a_killed_parent() -> None:
    """They end by themselves, as the killed parent cannot end them."""
    code = (
        "from match_graph.speed.measure import busy_processes as busy\n"
        "with busy(2) as found: print(*found, flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        processes = [int(number) for number in parent.stdout.readline().split()]
        assert len(processes) == 2
        parent.kill()
    assert wait_for_end(processes)


def test_take_turns_beside_busy_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours is measured under load after each quiet round, the baseline is not."""
    calls: list[str] = []

    def enter(number: int):
        calls.append(f"busy {number}")
        return nullcontext()

    def work(name: str):
        return lambda: calls.append(name) or 10

    monkeypatch.setattr(measure, "busy_processes", enter)
    rates = take_turns({"a": work("a"), "b": work("b")}, 1e-9, CPU, 2)
    assert calls == ["a", "b", *["a", "b", "busy 2", "a"] * 3]
    assert rates.loaded is not None
    assert rates.busy == 2


def test_measure_speed_beside_busy_processes(synthetic: Synthetic, small_settings) -> None:
    """The measure has the number of busy processes and the rate beside them."""
    (found,) = measure_speed("targets", synthetic, small_settings(), 0.1, CPU, busy=1)
    content = found.to_dict()
    assert list(content) == [*KEYS, "busy", "loaded_rate", "cpu_share"]
    assert content["busy"] == 1
    assert content["loaded_rate"] > 0


def test_measure_speed_refuses_busy_processes_beside_scaling(
    synthetic: Synthetic, small_settings
) -> None:
    with pytest.raises(ConfigError) as caught:
        list(measure_speed("scaling", synthetic, small_settings(), 0.1, CPU, busy=1))
    assert str(caught.value) == (
        "A stage that is measured beside busy processes must take turns with a baseline, but "
        "'scaling' does not; leave out --busy."
    )


@pytest.mark.parametrize(
    "change", [{"encoder": "rgcn", "encoder_config": {}}, {"head": "label_graph"}]
)
def test_SPEED_STAGES_step_another_model_measured_against(
    bench: Bench, change: dict[str, object]
) -> None:
    """Steps of another encoder or head are compared with those of MATCH.

    In steps, and in epochs, which draw the batches too.
    """
    model = bench.config.model.model_copy(update=change)
    config = bench.config.model_copy(update={"model": model})
    (found,) = SPEED_STAGES["step"](replace(bench, config=config))
    assert found.baseline.startswith("MATCH: ")
    assert list(found.more) == ["share_loading", "epoch_seconds", "epochs_of_match", "cpu_share"]
    assert found.more["epochs_of_match"] > 0


@pytest.mark.parametrize(("encoder", "head"), [("rgcn", "linear"), ("match", "label_graph")])
def test_SPEED_STAGES_predict_of_another_model_is_refused(
    bench: Bench, encoder: str, head: str
) -> None:
    model = bench.config.model.model_copy(update={"encoder": encoder, "head": head})
    config = bench.config.model_copy(update={"model": model})
    with pytest.raises(ConfigError) as caught:
        list(SPEED_STAGES["predict"](replace(bench, config=config)))
    assert str(caught.value) == (
        "The speed of prediction is measured against the network of MATCH over padded documents, "
        f"found model.encoder={encoder} and model.head={head}; leave them out."
    )


def test_measure_speed_unknown_stage_is_named(synthetic: Synthetic, small_settings) -> None:
    with pytest.raises(ConfigError) as caught:
        list(measure_speed("nap", synthetic, small_settings(), 0.1, CPU))
    assert str(caught.value) == (
        "A stage must be one of ['build', 'export', 'hypernymy', 'predict', 'pretrain', 'read', "
        "'sample', 'scaling', 'sharding', 'step', 'targets'] or 'all', found 'nap'."
    )


def test_SPEED_STAGES_hypernymy_needs_a_hierarchy(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    flat = Hierarchy.without_edges(bench.dataset.num_labels)
    monkeypatch.setattr(bench.dataset, "hierarchy", flat)
    with pytest.raises(ConfigError) as caught:
        list(SPEED_STAGES["hypernymy"](bench))
    assert str(caught.value) == (
        "The speed of hypernymy is measured on label edges, but 'synthetic' has none; choose "
        "another data set."
    )


@pytest.mark.parametrize("size", sorted(SPEED_SIZES))
def test_SPEED_SIZES_sizes_are_data_sets_with_their_options(size: str) -> None:
    """Each size is a registered data set with valid options."""
    name, options = SPEED_SIZES[size]
    DATASETS[name].Config(**options)


def test_MemoryPeak_memory_peaks_are_seen_though_they_are_gone() -> None:
    freed = [torch.ones(2**20) for _ in range(40)]  # 4 MiB each, of the heap
    del freed  # what was freed before does not hide what follows
    with MemoryPeak(CPU).watch() as memory:
        block = torch.ones(2**24)  # 64 MiB
        time.sleep(0.1)
        del block
    assert memory.mib is None or 32 < memory.mib < 500


def test_measure_speed_command_checks_before_it_builds(call, tmp_path: Path) -> None:
    """An unknown stage, and a curve as JSON, are refused before a data set is built."""
    command = ("speed", "--dataset", "synthetic", "--root", tmp_path / "root")
    code, _, error = call(*command, "steps")
    assert code == 1
    assert error.startswith("Error: A stage must be one of ['build', ")
    code, _, error = call(*command, "pretrain", "--curve", tmp_path / "curve", "--json")
    assert code == 2
    assert "a curve is measured without --busy and --json" in error
    code, _, error = call(*command, "step", "--curve", tmp_path / "curve")
    assert code == 1
    assert error.startswith("Error: Only the stage 'pretrain' has a quality against seconds")
    code, _, error = call(*command, "scaling")
    assert code == 2
    assert "'scaling' measures corpora of its own" in error
    assert not [*tmp_path.iterdir()]


def test_measure_speed_command_scaling_needs_no_download(
    call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The default data set, debtags, is neither downloaded nor built."""
    opened = []
    monkeypatch.setattr(
        "match_graph.speed.measure_speed", lambda stage, dataset, *_: opened.append(dataset) or []
    )
    code, _, _ = call("speed", "scaling", "--root", tmp_path)
    assert code == 0
    assert [dataset.name for dataset in opened] == ["synthetic"]


def test_measure_speed_command_prints_json_lines(tmp_path: Path) -> None:
    """Each measure is one line of JSON."""
    result = CliRunner().invoke(
        app,
        ["speed", "pretrain", "--json", "--dataset", "synthetic", "--seconds", "0.2",
         "--root", str(tmp_path), "--set", "data.options={num_documents: 200, num_labels: 12}",
         "--set", "train.accelerator=cpu"],
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert [line["stage"] for line in lines] == ["pretrain"] * 2
    assert all(line["peak_mib"] is None or line["peak_mib"] >= 0 for line in lines)
