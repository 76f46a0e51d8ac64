"""Measures build, pre-training, training and prediction; each command adds a row to measured.json.

    python experiments/scale/write_planted.py FOLDER --scale 4
    python experiments/scale/measure.py build FOLDER --root ROOT --workers 2 --memory 3GiB
    python experiments/scale/measure.py pretrain FOLDER --root ROOT
    python experiments/scale/measure.py train FOLDER --root ROOT
    python experiments/scale/measure.py predict FOLDER --root ROOT

Memory is anonymous memory (RssAnon) at its peak, in MiB, of the process that needs most; pages of
mapped files, which the system takes back when it needs them, stand apart (RssFile).
"""

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import psutil
import torch
import typer

from match_graph.config import Config
from match_graph.datasets import Custom
from match_graph.graph import MappedGraph
from match_graph.graph.view import GraphView, view_graph
from match_graph.predict.classifier import Classifier
from match_graph.pretrain import SphericalTrainer
from match_graph.runs.configure import resolve_config
from match_graph.runs.vocabulary import read_vocabulary, write_vocabulary
from match_graph.speed.batches import open_bench
from match_graph.speed.measure import Bench, MemoryPeak, count_mib, read_status
from match_graph.speed.step import Trainer
from match_graph.training.allocator import keep_freed_memory
from match_graph.training.device import make_fabric
from match_graph.typing import CONTAINS, DOCUMENT, MASKS

MEASURED = Path(__file__).with_name("measured.json")
_CPU = torch.device("cpu")
_STEPS = 100

app = typer.Typer()
Root = Annotated[Path, typer.Option(help="Root of built data.")]


@app.command()
def build(
    folder: Path,
    root: Root,
    workers: int = 0,
    memory: str | None = None,
    parts: int = 0,
) -> None:
    """Builds the first parts, or all, with a number of workers; the build is kept."""
    files = sorted((folder / "parts").iterdir())
    if parts:
        chosen = folder / f"first-{parts}"
        chosen.mkdir(exist_ok=True)
        for file in files[:parts]:
            if not (chosen / file.name).exists():
                (chosen / file.name).hardlink_to(file)
        files = sorted(chosen.iterdir())
    options = json.dumps(find_options(folder, parts))
    command = [sys.executable, "-m", "match_graph.cli", "build", "custom", "--root", str(root)]
    command += ["--set", f"data.options={options}"]
    command += ["--workers", str(workers)] * (workers > 0)
    command += [] if memory is None else ["--worker-memory", memory]
    with watch_processes() as peaks:
        start = time.perf_counter()
        subprocess.run(command, check=True)  # noqa: S603 - a command of ours
        seconds = time.perf_counter() - start
    dataset = open_built(folder, root, parts)
    add_row(
        "build",
        documents=dataset.graph.num_nodes(DOCUMENT),
        edges=count_edges(dataset.graph),
        workers=workers,
        memory=memory,
        seconds=seconds,
        peak_mib=peaks,
        raw_mb=count_mb(files),
        built_mb=count_mb(dataset.built.rglob("*")),
    )


@app.command()
def pretrain(
    folder: Path, root: Root, parts: int = 0, pairs: int = 10_000_000, in_memory: bool = False
) -> None:
    """Pre-trains on a number of pairs."""
    keep_freed_memory()
    config, dataset = Config(), open_built(folder, root, parts)
    graph = open_graph(dataset, in_memory)
    with MemoryPeak(_CPU).watch() as memory:
        space = dataset.token_space(config.data.min_count, config.data.min_word_count)
        rows = space.kept_by_type
        trainer = SphericalTrainer(graph, config.pretrain, config.seed, rows)
        start = time.perf_counter()
        trainer.fit(2 * pairs, stop=pairs)
        seconds = time.perf_counter() - start
    add_row(
        "pretrain", documents=graph.num_nodes(DOCUMENT), edges=count_edges(graph),
        words=graph.num_edges(CONTAINS), in_memory=in_memory,
        pairs=trainer.num_seen, seconds=seconds,
        vectors=sum(len(table) for table in trainer.tables.values()),
        tables_mib=count_mib(trainer.tables.values()),
        peak_mib=memory.mib, mapped_mib=read_status("RssFile"),
    )  # fmt: skip


@app.command()
def train(folder: Path, root: Root, parts: int = 0, in_memory: bool = False) -> None:
    """Trains a hundred steps, including sampling, after some to warm up.

    States are the optimizer's moments, gradients, and averaged weights.
    """
    keep_freed_memory()
    config, dataset = Config(), open_built(folder, root, parts)
    if in_memory:
        dataset.transform = lambda data: data  # makes the data set a HeteroData
        assert dataset[0] is not None
    graph = dataset.graph
    with MemoryPeak(_CPU).watch() as memory:
        bench = Bench(dataset, resolve_config(config, dataset), 0.0, _CPU)
        batches = iter(open_bench(bench).loader("train", training=True))
        trainer = Trainer(bench)
        for batch in islice(batches, 20):
            trainer.step(batch)
        start = time.perf_counter()
        sizes = [trainer.step(batch) for batch in islice(batches, _STEPS)]
        seconds = time.perf_counter() - start
    learner, weights = trainer.learner, [*trainer.model.parameters()]
    held = [
        value
        for state in learner.optimizer.state.values()
        for value in state.values()
        if isinstance(value, torch.Tensor)
    ]
    held += [weight.grad for weight in weights if weight.grad is not None]
    held += [] if learner.average is None else learner.average.values
    add_row(
        "train", documents=graph.num_nodes(DOCUMENT), edges=count_edges(graph),
        in_memory=in_memory, steps=len(sizes), batch=sum(sizes) / len(sizes), seconds=seconds,
        tables_mib=count_mib(weights), states_mib=count_mib(held),
        peak_mib=memory.mib, mapped_mib=read_status("RssFile"),
    )  # fmt: skip


@app.command()
def predict(folder: Path, root: Root, parts: int = 0) -> None:
    """Predicts 2,048 test documents by an untrained model, three times."""
    dataset = open_built(folder, root, parts)
    bench = Bench(dataset, resolve_config(Config(), dataset), 0.0, _CPU)
    run = open_bench(bench)
    documents = dataset.documents(MASKS["test"])[:2048]
    records = dataset.as_json(documents.tolist())
    with tempfile.TemporaryDirectory() as place:
        write_vocabulary(Path(place), dataset, run.space, dataset.hierarchy)
        vocabulary = read_vocabulary(Path(place))
    classifier = Classifier(
        vocabulary, run.make_model(), bench.config, make_fabric(bench.config.train)
    )
    times = []
    for _ in range(3):
        start = time.perf_counter()
        number = sum(1 for _ in classifier.predict(records))
        times.append(time.perf_counter() - start)
    add_row("predict", documents=number, labels=dataset.num_labels, seconds=sorted(times)[1])


def find_options(folder: Path, parts: int) -> dict[str, Any]:
    """Options of `Custom` to read the files of write_planted.py."""
    return {
        "path": str((folder / (f"first-{parts}" if parts else "parts")).resolve()),
        "taxonomy": str((folder / "taxonomy.txt").resolve()),
        "fields": ["venue", "author", "reference"],
        "columns": {"split": "split"},
        "tokenizer": "whitespace",
    }


def open_built(folder: Path, root: Path, parts: int) -> Custom:
    """The built data set."""
    return Custom(root=root, **find_options(folder, parts))


def open_graph(dataset: Custom, in_memory: bool) -> GraphView:
    """The memory-mapped graph, or a copy of it in memory."""
    graph = MappedGraph(dataset.built)
    return view_graph(graph.to_hetero()) if in_memory else graph


def count_edges(graph: GraphView) -> int:
    """Number of edges of all types."""
    return sum(map(graph.num_edges, graph.edge_types))


def count_mb(files: Iterable[Path]) -> float:
    """Size of files in megabytes."""
    return sum(file.stat().st_size for file in files if file.is_file()) / 1e6


@contextmanager
def watch_processes() -> Iterator[dict[str, float]]:
    """Peak memory of the command that runs in the block, and of its largest worker, in MiB."""
    done = threading.Event()
    by_process: dict[tuple[str, int], float] = defaultdict(float)
    peaks: dict[str, float] = {}

    def look() -> None:
        me = psutil.Process(os.getpid())
        while not done.wait(0.05):
            for process in me.children(recursive=True):
                try:
                    depth = "command" if process.ppid() == me.pid else "worker"
                    anonymous = read_status("RssAnon", process.pid) or 0.0
                except (psutil.Error, OSError):
                    continue  # it has ended
                key = depth, process.pid
                by_process[key] = max(by_process[key], anonymous)

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield peaks
    finally:
        done.set()
        thread.join()
        for (depth, _), peak in by_process.items():
            peaks[depth] = max(peaks.get(depth, 0.0), peak)


def add_row(stage: str, **row: Any) -> None:
    """Adds a row to the file, and prints it."""
    rows = json.loads(MEASURED.read_text()) if MEASURED.is_file() else []
    row = {
        name: round(value, 1) if isinstance(value, float) else value for name, value in row.items()
    }
    rows.append({"stage": stage, **row})
    MEASURED.write_text("[\n" + ",\n".join(f"  {json.dumps(one)}" for one in rows) + "\n]\n")
    typer.echo(json.dumps(rows[-1]))


if __name__ == "__main__":
    app()
