"""Exchange of the rows of a sharded table between three processes."""

import multiprocessing
from datetime import timedelta
from pathlib import Path

import pytest
import torch
from torch import Tensor, distributed

from match_graph.io.exchange import RowRoute, RowShard

NUM_PROCESSES = 3


def list_own(shard: RowShard) -> Tensor:
    """Rows of a shard, in its order."""
    rows, local = shard.find_own(0, shard.num_rows)
    return rows[local.argsort()]


@pytest.mark.parametrize("num_rows", [0, 1, 63, 64, 65, 200, 70_000])
@pytest.mark.parametrize("num_processes", [1, 2, 3, 100])
def test_RowShard_every_row_has_one_place_and_owner(num_rows: int, num_processes: int) -> None:
    """The bucket order is the same for any number of processes."""
    shards = [RowShard(num_rows, rank, num_processes) for rank in range(num_processes)]
    row = torch.arange(num_rows)
    place = shards[0].place(row)
    assert torch.equal(place.sort().values, row)
    own = [list_own(shard) for shard in shards]
    assert [len(rows) for rows in own] == [shard.size for shard in shards]
    assert torch.equal(shards[0].place(torch.cat(own)), row)
    for shard in shards:
        rows, local = shard.find_own(num_rows // 3, num_rows)
        assert torch.equal(shard.place(rows) - shard.span[0], local)


def test_RowShard_spreads_frequent_rows() -> None:
    """Of the first 128 of 10,000 rows each of four processes owns 32."""
    shard = RowShard(10_000, 0, 4)
    place = shard.place(torch.arange(128))
    owner = torch.searchsorted(torch.tensor(shard.stops), place, right=True)
    assert torch.bincount(owner).tolist() == [32] * 4


def exchange(rank: int, folder: Path) -> None:
    """Fetches and sends rows; the second process requests none."""
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=NUM_PROCESSES,
        timeout=timedelta(seconds=60),
    )  # fmt: skip
    table = torch.arange(400.0).reshape(200, 2)
    shard = RowShard.here(200)
    own = list_own(shard)
    named = torch.tensor([[7, 199, 0, 64, 130], [], [64, 7]][rank], dtype=torch.int64)
    route = RowRoute(shard, named)
    assert torch.equal(route.fetch(table[own]), table[named])
    sums = torch.zeros(shard.size).index_add_(0, route.local, route.send(named.float() + rank))
    expected = torch.zeros(200)
    expected[[0, 199, 130]] = torch.tensor([0.0, 199, 130])
    expected[[7, 64]] = torch.tensor([7.0 + 7 + 2, 64 + 64 + 2])
    assert torch.equal(sums, expected[own])
    empty = RowRoute(shard, named[:0])  # by all: nobody waits
    assert empty.fetch(table[own]).shape == (0, 2)
    assert not empty.send(table[:0]).numel()
    distributed.destroy_process_group()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_RowRoute_three_processes_fetch_and_send(tmp_path: Path) -> None:
    """A process that requests no row takes part, too."""
    context = multiprocessing.get_context("fork")
    processes = [
        context.Process(target=exchange, args=(rank, tmp_path)) for rank in range(NUM_PROCESSES)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(90)
        process.kill()
    assert [process.exitcode for process in processes] == [0, 0, 0]
