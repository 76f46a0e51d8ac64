"""Builds by the processes of a Dask cluster, of which some are killed."""

import json
import os
import signal
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from match_graph.datasets import Custom, open_dataset
from match_graph.datasets import assemble as module
from match_graph.datasets.assemble import assemble
from match_graph.datasets.custom import CustomReader
from match_graph.errors import CorpusError, ProcessError
from match_graph.io.cluster import Cluster, Run, run_here

FATAL = "kills its process"


class FatalReader(CustomReader):
    """Kills the process that reads a partition with a certain line, but once."""

    def read(self, partition, builder, sources) -> None:
        marker = partition.path.with_suffix(".killed")
        text = partition.path.read_bytes()[partition.start : partition.end]
        if FATAL.encode() in text and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        super().read(partition, builder, sources)


class Opened:
    """A cluster that is already open."""

    def __init__(self, run: Run) -> None:
        self.run = run

    def open(self) -> Any:
        return nullcontext(self.run)


def write_rows(path: Path, first: int, **more: Any) -> None:
    rows = (
        {"id": f"d{n}", "text": f"a w{n % 7}", "label": [f"l{n % 3}"], "author": [f"x{n % 5}"]}
        for n in range(first, first + 60)
    )
    path.write_text("".join(f"{json.dumps({**row, **more})}\n" for row in rows))


def content(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


@pytest.mark.slow
def test_assemble_two_workers_one_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two workers give the bytes of one process, also if one is killed; faults are equal."""
    pytest.importorskip("distributed", reason="no Dask (extra: scale)")
    import dask

    monkeypatch.setattr(module, "BLOCK_BYTES", 1500)
    # its processes import this module
    monkeypatch.syspath_prepend(Path(__file__).resolve().parents[2])
    for number in range(3):
        write_rows(tmp_path / f"{number}.jsonl", 60 * number)
    config, files = Custom.Config(fields=["author"]), sorted(tmp_path.glob("*.jsonl"))
    about = {"name": "it", "tokenizer": "regex", "source": {}}
    assemble(tmp_path / "here", CustomReader(files, config), about, lambda: None)

    lines: list[str] = []
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 1}),
        Cluster(workers=2, memory="2GiB", tell=lines.append).open() as run,
    ):
        cluster: Any = Opened(run)
        lost = tmp_path / "lost.jsonl"
        write_rows(lost, 60)
        lost.write_text(lost.read_text().replace("w3", f"w3 {FATAL}"))
        assert lines[0].startswith("dashboard: http://")

        def build(name: str, reader: CustomReader) -> None:
            assemble(tmp_path / name, reader, about, lambda: None, cluster=cluster)

        build("there", CustomReader(files, config))
        assert content(tmp_path / "there") == content(tmp_path / "here")
        some = [files[0], lost, files[2]]
        assemble(tmp_path / "some", CustomReader(some, config), about, lambda: None)
        build("killed", FatalReader(some, config))
        assert lost.with_suffix(".killed").exists()
        assert content(tmp_path / "killed") == content(tmp_path / "some")

        files[1].write_text("{\n")
        with pytest.raises(CorpusError, match=r"1.jsonl:1: a line must be one JSON object"):
            build("faulty", CustomReader(files, config))
        with pytest.raises(ProcessError, match=r"2 processes ended over .*--worker-memory"):
            run(os._exit, [1])


def test_assemble_one_worker_reads_each_corpus_by_its_reader(tmp_path: Path) -> None:
    """A worker reads a second corpus with that one's own reader."""
    write_rows(tmp_path / "a.jsonl", 0, title="another text")
    about = {"name": "it", "tokenizer": "regex", "source": {}}
    cluster: Any = Opened(run_here)
    for column in ("text", "title"):
        reader = CustomReader([tmp_path / "a.jsonl"], Custom.Config(columns={"text": column}))
        here, there = tmp_path / f"{column}.here", tmp_path / f"{column}.there"
        assemble(here, reader, about, lambda: None)
        assemble(there, reader, about, lambda: None, cluster=cluster)
        assert content(there) == content(here)


def test_open_dataset_cluster_unused_where_built(tmp_path: Path) -> None:
    """A built data set is opened without starting the cluster."""
    write_rows(tmp_path / "a.jsonl", 0)
    options = {"path": str(tmp_path / "a.jsonl"), "root": tmp_path}
    open_dataset("custom", **options)
    opened = open_dataset("custom", cluster=Cluster(scheduler="nothing://here"), **options)
    assert opened.cluster is None
