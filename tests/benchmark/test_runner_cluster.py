"""Cells in the processes of a Dask cluster: the same results, whoever runs them or is lost."""

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from filelock import FileLock

from match_graph.benchmark import Experiment, run_benchmark
from match_graph.io.cluster import Cluster

pytest.importorskip("distributed", reason="no Dask (extra: scale)")
pytestmark = pytest.mark.slow

#: What differs from one run of a cell to the next one.
MEASURED = {
    *("started", "updated", "finished", "seconds", "seconds_per_epoch", "peak_mib"),
    "resumed",
}
MATCH = {"model.encoder_config": {"num_layers": 1, "num_cls": 1, "position_channels": 4}}


def strip(content: Any) -> Any:
    """Results without times and memory, which differ between calls."""
    if isinstance(content, dict):
        return {key: strip(value) for key, value in content.items() if key not in MEASURED}
    return [*map(strip, content)] if isinstance(content, list) else content


@pytest.fixture
def experiment(make_experiment) -> Experiment:
    """Experiment with rows that share vectors."""
    rows = [
        {"name": "prior", "encoder": "prior"},
        {"name": "MATCH", "settings": MATCH},
        {"name": "flat", "settings": MATCH, "ablation": ["no-hierarchy"]},
    ]
    return make_experiment(rows=rows, runs=1)


@pytest.fixture
def scheduler(
    tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """Address of a scheduler of the shell's ``dask``, and its workers, which nobody revives."""
    place, dask = tmp_path / "scheduler.json", [sys.executable, "-m", "dask"]
    options: dict[str, Any] = {"cwd": tmp_path, "stderr": subprocess.DEVNULL}
    address = ["--host", "127.0.0.1", "--port", "0", "--scheduler-file", str(place)]
    main = subprocess.Popen([*dask, "scheduler", *address, "--no-dashboard"], **options)
    join = [*dask, "worker", "--scheduler-file", str(place), "--nthreads", "1"]
    join += ["--no-dashboard", "--no-nanny"]
    workers = [subprocess.Popen(join, **options) for _ in range(request.param)]
    while not place.is_file() or not place.stat().st_size:
        time.sleep(0.05)
    yield yaml.safe_load(place.read_text())["address"], workers
    for process in (*workers, main):
        process.kill()  # a worker asked to end while its scheduler does can wait for ever
        process.wait()


def test_run_benchmark_on_cluster_gives_the_same_results(
    experiment: Experiment, tmp_path: Path
) -> None:
    """Results by two workers are those of one process, except for times."""
    root = tmp_path / "root"
    first = run_benchmark(experiment, tmp_path / "one", root)
    second = run_benchmark(experiment, tmp_path / "two", root, Cluster(workers=2))
    assert {cell.status for cell in first.cells} == {"done"}
    assert strip(first.model_dump()) == strip(second.model_dump())


def wait_for(path: Path, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not path.is_file() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert path.is_file(), path


@pytest.fixture
def long_experiment(make_experiment) -> Experiment:
    """Experiment of one row that trains for a second or more."""
    overrides = {"train.epochs": 60, "train.patience": 60}
    return make_experiment(rows=[{"name": "MATCH", "settings": MATCH}], runs=1, overrides=overrides)


CELL = Path("cells", "toy", "MATCH", "seed0")


@pytest.mark.parametrize("scheduler", [2], indirect=True, ids=["two_workers"])
def test_run_benchmark_lost_worker_cell_goes_on_elsewhere(
    long_experiment: Experiment, scheduler, tmp_path: Path
) -> None:
    """After `kill -9` of a worker the other one resumes its cell."""
    address, workers = scheduler
    out = tmp_path / "out"

    def kill() -> None:
        wait_for(out / CELL / "checkpoint/state.pt")
        for worker in workers:
            if psutil.Process(worker.pid).children():  # the fork server of a cell
                worker.kill()
                return

    thread = threading.Thread(target=kill)
    thread.start()
    (cell,) = run_benchmark(
        long_experiment, out, tmp_path / "root", Cluster(scheduler=address)
    ).cells
    thread.join()
    assert cell.status == "done"
    assert sum(worker.poll() is not None for worker in workers) == 1
    assert "resumed after" in (out / f"{CELL}.log").read_text()


@pytest.mark.parametrize("scheduler", [1], indirect=True, ids=["one_worker"])
def test_run_benchmark_killed_planner_ends_cells_of_a_cluster(
    long_experiment: Experiment, scheduler, tmp_path: Path
) -> None:
    """After `kill -9` of the command the cell ends, and the command can be repeated."""
    path, out = tmp_path / "e.yaml", tmp_path / "out"
    path.write_text(yaml.safe_dump(long_experiment.model_dump(), sort_keys=False))
    call = f"run_benchmark(load_experiment({str(path)!r}), {str(out)!r}, {str(tmp_path / 'root')!r}"
    script = (
        "from match_graph.benchmark import load_experiment, run_benchmark\n"
        "from match_graph.io.cluster import Cluster\n"
        f"{call}, Cluster(scheduler={scheduler[0]!r}))\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script])
    wait_for(out / CELL / "checkpoint/state.pt")
    process.kill()
    process.wait()
    lock = FileLock(out / CELL.with_suffix(".lock"))
    with lock.acquire(timeout=30):  # the cell's process held it
        assert not (out / CELL / "metrics.json").exists()
    (cell,) = run_benchmark(
        long_experiment, out, tmp_path / "root", Cluster(scheduler=scheduler[0])
    ).cells
    assert (cell.status, cell.resumed) == ("done", True)
