"""Large tensors reuse freed memory: their pages are there already."""

import platform
import resource

import pytest
import torch

from match_graph.training.allocator import keep_freed_memory


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is not glibc")
def test_keep_freed_memory_reuses_freed_pages() -> None:
    """Once a few blocks of 64 MiB were there, the next ones cost no page faults."""
    assert keep_freed_memory()

    def fill() -> int:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        torch.zeros(2**24)
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    faults = [fill() for _ in range(20)]  # the heap grows for a few
    assert sorted(faults)[10] < 100  # of 16,384 pages


def test_keep_freed_memory_other_c_libraries_are_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without mallopt nothing happens."""
    monkeypatch.setattr("match_graph.training.allocator.os.name", "nt")
    assert not keep_freed_memory()
