"""Pre-training and training steps of two processes with sharded tables, against one process."""

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from torch import distributed

from match_graph.errors import ConfigError, MatchGraphError
from match_graph.pretrain import ShardedTrainer, SphericalTrainer
from match_graph.speed.batches import repeat, sample_batches
from match_graph.speed.measure import CPU, Bench, MemoryPeak, Speed, compare, count_mib
from match_graph.speed.pretrain import train_chunks
from match_graph.speed.step import NUM_BATCHES, Trainer

_NUM_PROCESSES = 2
#: Chunks of each process per work item.
_CHUNKS = 64
#: Requests to the processes: pre-training, steps with a sharded embedding, and with a whole one.
_PRETRAIN, _SHARED, _WHOLE = "pretrain", "shared", "whole"


def measure_sharding(bench: Bench) -> Iterator[Speed]:
    """Measures two processes on the CPU, of one thread each, in turns with one process.

    Pre-training: ``tables_mib`` is the size of the vectors that a process holds, ``tables_share``
    their share of all vectors; memory is the larger peak of the processes while they make their
    trainers and begin, less those vectors. Training steps, with the same global batch size: the
    second baseline is two processes that hold the whole embedding each, and whose gradients DDP
    reduces.

    Raises:
        ConfigError: There is a GPU, whose driver cannot be used in forked processes.
    """
    if torch.cuda.is_available():
        raise ConfigError(
            "Two processes on the CPU are forked, which takes a machine without a GPU or with none "
            "visible, but torch finds one; set CUDA_VISIBLE_DEVICES to nothing for this command."
        )
    alone = SphericalTrainer(**_find_arguments(bench))
    whole = count_mib(alone.tables.values())
    with _start_pair(bench) as (ask, memory):
        tables = max(mib for mib, _ in memory)
        peaks = [peak - mib for mib, peak in memory if peak is not None]
        config = bench.config.pretrain
        yield from compare(
            bench.on_cpu, "sharding",
            f"{len(alone.tables)} tables of {whole:,.1f} MiB, chunks of {config.chunk_size}, "
            f"{config.channels} channels",
            "positives/s",
            {
                "two processes": lambda: ask(_PRETRAIN),
                "one process": lambda: train_chunks(alone, _CHUNKS),
            },
            max(0.0, *peaks) if peaks else None,
            more=lambda _: {"tables_mib": tables, "tables_share": tables / whole},
        )  # fmt: skip
        steps = _make_steps(_on_cpu(bench, 1))
        yield from compare(
            bench.on_cpu, "sharding: step",
            f"batches of {bench.config.train.batch_size} in all, {bench.space.num_tokens:,} tokens",
            "documents/s",
            {
                "two processes": lambda: ask(_SHARED),
                "one process": steps,
                "two processes, a table each": lambda: ask(_WHOLE),
            },
            None, baselines=2,
        )  # fmt: skip


def _on_cpu(bench: Bench, processes: int, shares: bool = True) -> Bench:
    """The bench on the CPU, with the settings of training by a number of processes."""
    update = {
        "accelerator": "cpu", "devices": processes, "strategy": "ddp", "shard_embeddings": shares,
    }  # fmt: skip
    train = bench.config.train.model_copy(update=update)
    return replace(bench.on_cpu, config=bench.config.model_copy(update={"train": train}))


def _make_steps(bench: Bench) -> Callable[[], float]:
    """Work item of one training step, which counts the documents of this process."""
    trainer = Trainer(bench, alone=bench.config.train.devices == 1)
    loader = trainer.run.loader("train", training=True)
    return repeat(trainer.step, sample_batches(loader, NUM_BATCHES))


def _find_arguments(bench: Bench) -> dict[str, Any]:
    """Arguments of a pre-training trainer."""
    return {
        "data": bench.dataset.graph,
        "config": bench.config.pretrain,
        "seed": bench.config.seed,
        "num_rows": bench.space.kept_by_type,
    }


@contextmanager
def _start_pair(
    bench: Bench,
) -> Iterator[tuple[Callable[[str], float], list[tuple[float, float | None]]]]:
    """Runs two processes during the block, forked so that they share the graph.

    Gives the function that sends both a request and sums their answers, and of each process the
    size of its vectors and its peak memory, in MiB.

    Raises:
        MatchGraphError: One of them ended.
    """
    context = get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        pipes: list[Connection] = []
        processes = []
        for rank in range(_NUM_PROCESSES):
            own, other = context.Pipe()
            process = context.Process(
                target=_serve,
                args=(bench, rank, other, [*pipes, own], Path(folder) / "meeting"),
                daemon=True,
            )
            process.start()
            other.close()
            pipes.append(own)
            processes.append(process)

        def receive() -> list[Any]:
            try:
                return [pipe.recv() for pipe in pipes]
            except EOFError as error:
                raise MatchGraphError(
                    "Both processes of a measurement must come to its end, but one of them ended "
                    "before, as happens where memory runs out; choose a smaller data set."
                ) from error

        def ask(what: str) -> float:
            for pipe in pipes:
                pipe.send(what)
            return float(sum(receive()))

        try:
            yield ask, receive()
        finally:
            for pipe in pipes:
                pipe.close()
            for process in processes:
                process.join(5)
                process.kill()


def _serve(
    bench: Bench, rank: int, pipe: Connection, inherited: Sequence[Connection], meeting: Path
) -> None:
    """Main function of a process: answers requests until the pipe is closed."""
    for end in inherited:
        end.close()  # else this process, which holds them too, would never see the pipe closed
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo", init_method=f"file://{meeting}", rank=rank, world_size=_NUM_PROCESSES
    )
    assert distributed.group.WORLD is not None
    with MemoryPeak(CPU).watch() as memory:
        trainer = ShardedTrainer(**_find_arguments(bench), group=distributed.group.WORLD)
        train_chunks(trainer, _CHUNKS)
    pipe.send((count_mib(trainer.tables.values()), memory.mib))
    os.environ["LOCAL_RANK"] = str(rank)  # so that Fabric launches no further processes

    @cache
    def make(what: str) -> Callable[[], float]:
        if what == _PRETRAIN:
            return lambda: train_chunks(trainer, _CHUNKS)
        return _make_steps(_on_cpu(bench, _NUM_PROCESSES, shares=what == _SHARED))

    try:
        while True:
            pipe.send(make(pipe.recv())())
    except EOFError:
        return
