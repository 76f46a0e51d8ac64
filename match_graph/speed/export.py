"""Documents per second and peak memory of every export, against `torch.save` of the plain graph."""

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch

from match_graph.datasets import CorpusDataset
from match_graph.errors import ExportError
from match_graph.export import EXPORTS, export_dataset
from match_graph.io.progress import Reporter
from match_graph.io.source import Advance
from match_graph.speed.alone import Measured, measure_both, run_alone
from match_graph.speed.measure import CPU, Bench, Speed, describe, make_speed
from match_graph.typing import DOCUMENT, Tokenizer

#: Above so many documents only ``pyg`` is measured.
MAX_DOCUMENTS = 200_000
_LARGE = ("pyg",)
_BASELINE = "torch.save of the graph"


class _Built(CorpusDataset):
    """Data set built by another process, opened again: tensors are mapped instead of sent."""

    name, checksum = "", ""
    tokenizer: Tokenizer = "regex"

    def __init__(self, name: str, root: str, tokenizer: Tokenizer, checksum: str) -> None:
        self.name, self.tokenizer, self.checksum = name, tokenizer, checksum
        super().__init__(root)

    @property
    def raw_file_names(self) -> list[str]:
        return []


class _Clock(Reporter):
    """Timer of the part of an export that writes; the rest reads back and compares."""

    seconds = 0.0

    @contextmanager
    def track(self, name: str, total: int, unit: str) -> Iterator[Advance]:
        start = time.perf_counter()
        with super().track(name, total, unit) as advance:
            yield advance
        self.seconds = time.perf_counter() - start


def measure_export(bench: Bench) -> Iterator[Speed]:
    """Measures every export target in a new process, with the usual verification.

    ``seconds`` are those of one export, of which ``share_writing`` is spent on writing, and the
    rest on reading back and comparing. A target that refuses the data set, because of its size or
    because its library is not installed, is shown with the rate 0 and the reason. For more than
    `MAX_DOCUMENTS` documents only the target ``pyg`` is measured.
    """
    dataset = bench.dataset
    number = int(dataset[0][DOCUMENT].num_nodes)
    built = (dataset.name, str(dataset.root), dataset.tokenizer, dataset.checksum)
    for to in EXPORTS if number <= MAX_DOCUMENTS else _LARGE:
        try:
            seconds = bench.seconds / len(EXPORTS)
            measured = run_alone(_measure_target, to, built, seconds, bench.busy)
        except ExportError as error:
            yield _refuse(bench, to, error)
            continue
        yield make_speed(
            bench.on_cpu, f"export: {to}", f"{number:,} documents",
            "documents/s", measured.rates, _BASELINE, measured.peak_mib,
            seconds=number / measured.rates.per_second["ours"], **measured.more,
        )  # fmt: skip


def _refuse(bench: Bench, to: str, error: ExportError) -> Speed:
    size = f"{bench.dataset.name}: refused: {error}"
    return Speed(f"export: {to}", size, describe(CPU), 0.0, "documents/s", _BASELINE, 0.0, None)


def _measure_target(
    to: str, built: tuple[str, str, Tokenizer, str], seconds: float, busy: int
) -> Measured:
    dataset, clock = _Built(*built), _Clock(quiet=True)
    number, shares = int(dataset[0][DOCUMENT].num_nodes), []
    with tempfile.TemporaryDirectory() as place:

        def ours() -> int:
            start = time.perf_counter()
            export_dataset(dataset, to, Path(place, "out"), overwrite=True, reporter=clock)
            shares.append(clock.seconds / (time.perf_counter() - start))
            return number

        def save() -> int:
            torch.save(dataset[0].to_dict(), Path(place, "data.pt"))
            return number

        measured = measure_both(ours, _BASELINE, save, seconds, busy)
    return replace(measured, more={"share_writing": sorted(shares)[len(shares) // 2]})
