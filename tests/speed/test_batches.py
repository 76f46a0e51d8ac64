"""The batches that stages of the network are measured on."""

from dataclasses import replace

import pytest

from match_graph.speed.batches import (
    count_tokens,
    find_batch_size,
    open_bench,
    sample_batches,
    shuffle_batches,
)
from match_graph.speed.measure import Bench
from match_graph.training import device


def test_open_bench_is_one_process(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings for several processes are ignored, as each would measure a part."""
    started: list[int] = []
    monkeypatch.setattr(device, "launch", lambda fabric, _: started.append(fabric.world_size))
    config = bench.config.change("train", devices=2)
    assert open_bench(replace(bench, config=config)).fabric.world_size == 1
    assert started == [1]


def test_draw_batches_drawn_batches_are_like_the_mean_of_epoch(bench: Bench) -> None:
    """Tokens per document are within a tenth of an epoch's; batches are sorted by size."""
    loader = open_bench(bench).loader("train", training=True)
    everything = list(loader)
    number = len(everything) // 4
    assert number >= 4
    some = sample_batches(loader, number)
    assert len(some) == number
    sizes = [batch.token_id.numel() for batch in some]
    assert sizes == sorted(sizes)
    assert count_tokens(some) == pytest.approx(count_tokens(everything), rel=0.1)
    assert len(sample_batches(loader, 10 * len(everything))) == len(everything)


def test_shuffle_batches_are_as_large_as_ours(bench: Bench) -> None:
    """Also if the batch with the fewest tokens is the last of an epoch, with two documents."""
    bench = replace(bench, config=bench.config.change("train", batch_size=106))
    batches = sample_batches(open_bench(bench).loader("train", training=True), 20)
    assert batches[0].num_documents == 2
    shuffled = shuffle_batches(bench, batches)
    assert [batch.num_documents for batch in shuffled] == [106, 106, 106, 2]
    assert find_batch_size(batches) == 106
