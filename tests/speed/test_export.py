"""The speed of every export: one measure each, in a process of its own."""

import pytest

from match_graph.export import EXPORTS
from match_graph.speed import Bench, export

EXTRAS = {"ogb", "relbench"}  # may not be installed


def call_here(work, *arguments):
    """Stands for `run_alone`, without its new process, which takes seconds to start."""
    return work(*arguments)


@pytest.mark.slow
def test_measure_export_every_target_is_measured(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each target has a rate in documents per second beside that of `torch.save`."""
    monkeypatch.setattr(export, "run_alone", call_here)
    found = {speed.stage.removeprefix("export: "): speed for speed in export.measure_export(bench)}
    assert list(found) == list(EXPORTS)
    for name, speed in found.items():
        if name in EXTRAS and not speed.rate:
            assert "is not installed" in speed.size
            continue
        assert speed.size == "synthetic: 400 documents"
        assert speed.baseline.startswith("torch.save of the graph: ")
        assert 0 < speed.ratio < 1
        assert speed.device == "cpu, 1 threads"
        assert set(speed.more) == {"seconds", "share_writing", "cpu_share"}
        assert speed.more["seconds"] == pytest.approx(400 / speed.rate, rel=1e-3)
        assert 0 < speed.more["share_writing"] < 1


def test_measure_export_refusal_is_a_measure_with_its_sentence(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A target that refuses the size has its error as size; others are measured."""
    monkeypatch.setattr(export, "run_alone", call_here)
    monkeypatch.setattr(export, "EXPORTS", {name: EXPORTS[name] for name in ("networkx", "pyg")})
    monkeypatch.setattr("match_graph.export.networkx.MAX_ITEMS", 10)
    refused, measured = export.measure_export(bench)
    assert (refused.stage, refused.rate, refused.ratio) == ("export: networkx", 0, 0)
    assert refused.size.startswith(
        "synthetic: refused: NetworkX holds every node and edge as a Python object, here "
    )
    assert refused.peak_mib is None
    assert (measured.stage, measured.rate > 0) == ("export: pyg", True)


@pytest.mark.slow
def test_measure_export_large_data_set_tensors_alone_exported(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Above the limit only ``pyg`` is measured, in a new process as by the command."""
    monkeypatch.setattr(export, "MAX_DOCUMENTS", 399)
    (speed,) = export.measure_export(bench)
    assert speed.stage == "export: pyg"
    assert speed.rate > 0
