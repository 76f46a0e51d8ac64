"""Hashed samples: equal to a slow version, uniform, without replacement, and cheap for any size."""

from itertools import combinations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from match_graph.graph.hashing import hash_keys, hash_type, sample_subsets, sample_uniform


def test_sample_uniform_numbers_are_those_of_a_slow_splitmix() -> None:
    """To the bit, with Python's integers; uniform by a chi-square test, for every key."""
    mask = 2**64 - 1

    def mix(state: int) -> int:
        state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 & mask
        state = (state ^ (state >> 27)) * 0x94D049BB133111EB & mask
        return state ^ (state >> 31)

    def slow(*parts: int) -> float:
        state = 0
        for part in parts:
            state = mix((state + 0x9E3779B97F4A7C15 + part) & mask)
        return (state >> 11) * 2.0**-53

    nodes = torch.tensor([0, 1, 2, 77, 2**31, 2**40])
    for key in ((0, 0, 0), (3, 1, 2), (2**32 - 1, 5, 0)):
        assert sample_uniform(nodes, *key).tolist() == [slow(*key, node) for node in nodes.tolist()]
        values = sample_uniform(torch.arange(20_000), *key)
        counts = torch.histc(values, bins=50, min=0, max=1)
        assert float(((counts - 400) ** 2 / 400).sum()) < 95  # 49 degrees, p = 1e-4


def test_hash_type_covers_relation_and_both_ends() -> None:
    edge_types = [("d", "has", "a"), ("d", "has", "v"), ("d", "by", "a"), ("e", "has", "a")]
    assert len({hash_type(edge_type) for edge_type in edge_types}) == 4


def subset(size: int, count: int, key: int) -> list[int]:
    """Floyd's loop over Python integers, one row."""
    drawn: list[int] = []
    for step in range(count):
        last = size - count + step
        value = (int(hash_keys(torch.tensor(key), step)) & (2**63 - 1)) % (last + 1)
        drawn.append(last if value in drawn else value)
    return list(range(size)) if count == size else drawn


rows_of = st.lists(
    st.tuples(st.integers(0, 30), st.integers(0, 30), st.integers(-(2**63), 2**63 - 1)), max_size=8
)


@given(rows_of)
def test_sample_subsets_are_those_of_a_slow_loop(rows: list[tuple[int, int, int]]) -> None:
    """Row by row, whatever the other rows; different values within their bounds."""
    sizes = torch.tensor([row[0] for row in rows], dtype=torch.int64)
    counts = torch.tensor([min(row[:2]) for row in rows], dtype=torch.int64)
    keys = torch.tensor([row[2] for row in rows], dtype=torch.int64)
    drawn = sample_subsets(sizes, counts, keys).split(counts.tolist()) if rows else ()
    for part, size, count, key in zip(
        drawn, sizes.tolist(), counts.tolist(), keys.tolist(), strict=True
    ):
        assert part.tolist() == subset(size, count, key)
        assert len(set(part.tolist())) == count
        assert all(0 <= value < size for value in part.tolist())


@pytest.mark.parametrize(("size", "count"), [(5, 2), (6, 5), (4, 1), (7, 3)])
def test_sample_subsets_every_subset_has_the_same_chance(size: int, count: int) -> None:
    """A chi-square test over all subsets, not only over their members."""
    num_rows = 30_000
    drawn = sample_subsets(
        torch.full((num_rows,), size),
        torch.full((num_rows,), count),
        hash_keys(torch.arange(num_rows)),
    )
    code = (2 ** drawn.view(num_rows, count)).sum(dim=1)
    codes = [sum(2**value for value in chosen) for chosen in combinations(range(size), count)]
    found = torch.bincount(code, minlength=2**size)[codes].double()
    expected = num_rows / len(codes)
    degrees = len(codes) - 1
    assert found.sum() == num_rows
    assert float(((found - expected) ** 2 / expected).sum()) < degrees + 6 * (2 * degrees) ** 0.5


def test_sample_subsets_sizes_beyond_memory_cost_nothing() -> None:
    """Three of 2^40 are drawn as three of ten are."""
    size = torch.tensor([2**40, 10])
    drawn = sample_subsets(size, torch.tensor([3, 3]), torch.tensor([1, 1]))
    assert drawn.numel() == 6
    assert 10 < int(drawn[:3].max()) < 2**40
    empty: Tensor = torch.empty(0, dtype=torch.int64)
    assert sample_subsets(empty, empty, empty).numel() == 0
