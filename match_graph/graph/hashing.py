"""Uniform sampling without replacement by hashing: equal keys give equal samples in any batch."""

import zlib

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from match_graph.graph.csr import make_ptr, ragged_arange
from match_graph.typing import EdgeType

#: 2^64 / golden ratio, and the factors of SplitMix64.
_CONSTANTS = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
#: The same as signed numbers: int64 wraps around.
_GOLDEN, _FIRST, _SECOND = (constant - 2**64 for constant in _CONSTANTS)
_MASK = 2**64 - 1


def hash_keys(*parts: Tensor | int) -> Tensor:
    """Hash of each row of parts, int64, of any sign.

    Source: the finaliser of SplitMix64, Steele et al. 2014, https://doi.org/10.1145/2660193.2660195,
    over one part after the other, in arithmetic modulo 2^64.

    Args:
        parts: Parts of the key: int64 tensors of shapes that broadcast, or numbers.
    """
    number, count = 0, 0
    for part in parts:  # leading numbers, without the overhead of tensors
        if isinstance(part, Tensor):
            break
        number, count = _mix_number(number + _GOLDEN + part), count + 1
    state = torch.tensor(number)
    for part in parts[count:]:
        state = _mix(state + _GOLDEN + part)
    return state


def mix_keys(keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """`hash_keys` of one part in NumPy, twice as fast in its unsigned integers."""
    golden, first, second = map(np.uint64, _CONSTANTS)
    mixed = keys + golden
    mixed = (mixed ^ (mixed >> np.uint64(30))) * first
    mixed = (mixed ^ (mixed >> np.uint64(27))) * second
    return mixed ^ (mixed >> np.uint64(31))


def hash_type(edge_type: EdgeType) -> int:
    """Hash of an edge type's name, for keys that do not depend on the order of edge types."""
    return zlib.crc32(" ".join(edge_type).encode())


def sample_uniform(node: Tensor, *key: int) -> Tensor:
    """A uniform number in [0, 1) for each node, a function of the node and the key alone.

    Args:
        node: Node indices, [B], int64.
        key: Further integers that the sample depends on, such as seed and epoch.

    Returns:
        [B], float64, multiples of 2^-53.
    """
    return _shift_right(hash_keys(*key, node), 11).to(torch.float64) * 2.0**-53


def sample_subsets(size: Tensor, count: Tensor, key: Tensor) -> Tensor:
    """For each row a uniform subset of 0, 1, ..., size - 1 by its key.

    Source: algorithm F2 of Floyd (Bentley and Floyd 1987, https://doi.org/10.1145/30401.315746).
    A row costs O(count^2) comparisons, whatever its size.

    Args:
        size: Size of each row's set, [R], int64.
        count: Number of elements to sample, at most ``size``, [R], int64.
        key: Hash key of each row, [R], int64; equal keys and sizes give equal samples.

    Returns:
        Packed rows of ``count`` different values, [sum(count)], int64; a row that is sampled whole
        is in ascending order.
    """
    sampled = ragged_arange(torch.zeros_like(count), count)
    rows = ((count > 0) & (count < size)).nonzero().view(-1)
    if not rows.numel():
        return sampled
    count_of_rows = count[rows]
    step = torch.arange(int(count_of_rows.max()))
    last = (size[rows] - count_of_rows).unsqueeze(1) + step  # [R', widest]
    hashed = hash_keys(key[rows].unsqueeze(1), step) & (2**63 - 1)
    chosen = hashed % (last + 1)  # uniform but for a bias of (last + 1) / 2^63
    for column in range(1, step.numel()):  # columns beyond a row's count are filled and not read
        value = chosen[:, column]
        repeated = (chosen[:, :column] == value.unsqueeze(1)).any(dim=1)
        chosen[:, column] = torch.where(repeated, last[:, column], value)
    is_read = step < count_of_rows.unsqueeze(1)
    sampled[ragged_arange(make_ptr(count)[rows], count_of_rows)] = chosen[is_read]
    return sampled


def _mix_number(state: int) -> int:
    """`_mix` of one number, signed as int64 is."""
    state &= _MASK
    state = (state ^ state >> 30) * _FIRST & _MASK
    state = (state ^ state >> 27) * _SECOND & _MASK
    state ^= state >> 31
    return state - 2**64 if state >> 63 else state


def _mix(state: Tensor) -> Tensor:
    state = (state ^ _shift_right(state, 30)) * _FIRST
    state = (state ^ _shift_right(state, 27)) * _SECOND
    return state ^ _shift_right(state, 31)


def _shift_right(state: Tensor, bits: int) -> Tensor:
    """Logical right shift; torch's is arithmetic, which copies the sign."""
    return (state >> bits) & ((1 << (64 - bits)) - 1)
