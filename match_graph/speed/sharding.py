"""Pre-training and training steps of two processes that share the tables, against one."""

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
#: Chunks of each process per piece of work.
_CHUNKS = 64
#: What the processes are asked for: pre-training, steps with tables by rows, and with whole ones.
_PRETRAIN, _SHARED, _WHOLE = "pretrain", "shared", "whole"


def measure_sharding(bench: Bench) -> Iterator[Speed]:
    """Measures two processes on the CPU, one thread each, in turns with one.

    Pre-training: ``tables_mib`` are the vectors that each process holds, ``tables_share`` is their
    part of all; the memory is the larger peak of a process while it makes its trainer and begins,
    less these. Training steps, of batches of the same size in all: the second baseline is two
    processes with all rows of the embedding each, whose gradients DDP sums.

    Raises:
        ConfigError: There is a GPU, whose driver no forked process can ask for anything.
    """
    if torch.cuda.is_available():
        raise ConfigError(
            "Two processes on the CPU are forked, which takes a machine without a GPU or with none "
            "visible, but torch finds one; set CUDA_VISIBLE_DEVICES to nothing for this command."
        )
    alone = SphericalTrainer(**_find_arguments(bench))
    whole = count_mib(alone.tables.values())
    with _start_pair(bench) as (ask, told):
        tables = max(mib for mib, _ in told)
        peaks = [peak - mib for mib, peak in told if peak is not None]
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
    """The bench with the settings of so many processes of this machine."""
    update = {
        "accelerator": "cpu", "devices": processes, "strategy": "ddp", "shard_embeddings": shares,
    }  # fmt: skip
    train = bench.config.train.model_copy(update=update)
    return replace(bench.on_cpu, config=bench.config.model_copy(update={"train": train}))


def _make_steps(bench: Bench) -> Callable[[], float]:
    """A training step of this process for each call; the documents of its part of the batch."""
    trainer = Trainer(bench, alone=bench.config.train.devices == 1)
    loader = trainer.run.loader("train", training=True)
    return repeat(trainer.step, sample_batches(loader, NUM_BATCHES))


def _find_arguments(bench: Bench) -> dict[str, Any]:
    """Arguments of a trainer."""
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
    """Two processes for the block: what asks both for a piece, and MiB of vectors and peak of each.

    They are forked, so that they share the graph.

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
    """One of the processes: does a piece of what it is asked for, until nothing is asked for."""
    for end in inherited:
        end.close()  # or this process would wait for ever for an end that it holds itself
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo", init_method=f"file://{meeting}", rank=rank, world_size=_NUM_PROCESSES
    )
    assert distributed.group.WORLD is not None
    with MemoryPeak(CPU).watch() as memory:
        trainer = ShardedTrainer(**_find_arguments(bench), group=distributed.group.WORLD)
        train_chunks(trainer, _CHUNKS)
    pipe.send((count_mib(trainer.tables.values()), memory.mib))
    os.environ["LOCAL_RANK"] = str(rank)  # so that it starts no others

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
