"""The speed of every reader: one measure each, in a process of its own."""

import pytest

from match_graph.speed import Bench, read
from match_graph.speed.formats import WRITERS


def call_here(work, *arguments):
    """Stands for `run_alone`, without its new process, which takes seconds to start."""
    return work(*arguments)


def test_measure_read_every_reader_is_measured(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each reader has a rate beside that of its parser alone, which is faster."""
    monkeypatch.setattr(read, "run_alone", call_here)
    found = list(read.measure_read(bench))
    assert [speed.stage for speed in found] == [f"read: {name}" for name in WRITERS]
    for speed in found:
        name = speed.stage.removeprefix("read: ")
        assert speed.baseline.startswith(f"{read.READERS[name].parser}: ")
        assert speed.size.startswith("synthetic: 400 documents, ")
        assert speed.device == "cpu, 1 threads"
        assert speed.unit == "documents/s"
        assert 0 < speed.ratio < 1
        assert speed.peak_mib is None or 0 <= speed.peak_mib < 100
        assert set(speed.more) == {"megabytes_per_s", "cpu_share"}


@pytest.mark.slow
def test_measure_read_reader_is_measured_in_a_process_of_its_own(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One format is read in a new process, as by the command."""
    monkeypatch.setattr(read, "WRITERS", {"custom csv": WRITERS["custom csv"]})
    (speed,) = read.measure_read(bench)
    assert speed.stage == "read: custom csv"
    assert speed.rate > 0
