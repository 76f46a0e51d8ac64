"""Scores of documents of a benchmark's cells, published in one file without run folders."""

from pathlib import Path

import pandas as pd
import torch
from torch import Tensor

from match_graph.benchmark.results import RESULTS, Cell
from match_graph.errors import CheckpointError
from match_graph.io.files import DamagedError, reading, write_beside
from match_graph.runs.measures import SCORE_NAMES
from match_graph.runs.readers import read_record, read_scores
from match_graph.typing import Split

SCORES = "scores.parquet"
_KEY = ["dataset", "row", "seed"]
_CHECKSUM = "data_checksum"
#: Tolerance for means of float32.
_ROUNDING = 1e-5


class CellScores:
    """Scores of the documents that a benchmark's cells were measured on.

    They are in the cell's run folder, or, for published cells, in ``scores.parquet``: columns
    ``dataset``, ``row``, ``seed``, ``data_checksum`` and `SCORE_NAMES`, and a line per document of
    the experiment's split, in the order of the data set.

    Args:
        folder: Folder of the benchmark.
        split: Split that it measures.

    Raises:
        CheckpointError: ``scores.parquet`` is broken.
    """

    def __init__(self, folder: Path, split: Split) -> None:
        self.folder, self.split = folder, split
        self._kept = _read_kept(folder / SCORES)

    def read(self, cell: Cell) -> tuple[str, Tensor]:
        """Checksum of a cell's data, and its scores by `SCORE_NAMES`, [D, 6], float32.

        Raises:
            CheckpointError: Neither its run folder nor ``scores.parquet`` has them, or their means
                are not the cell's measures.
        """
        run = self.folder / cell.folder
        if cell.published and cell.key in self._kept:
            checksum, scores = self._kept[cell.key]
            self._check_means(cell, scores)
            return checksum, scores
        scores = read_scores(run, self.split, SCORE_NAMES)
        return str(read_record(run)[_CHECKSUM]), scores

    def _check_means(self, cell: Cell, scores: Tensor) -> None:
        measured = cell.metrics.get(self.split, {})
        for name, mean in zip(SCORE_NAMES, scores.double().mean(dim=0).tolist(), strict=True):
            if abs(measured.get(name, mean) - mean) > _ROUNDING or not measured:
                raise CheckpointError(
                    f"'{self.folder / SCORES}' must hold the scores behind {RESULTS}, but '{name}' "
                    f"of '{cell.folder}' on {self.split} is {measured.get(name)} there and {mean} "
                    f"on average here; restore both files together."
                )

    def write(self, folder: Path, cells: list[Cell]) -> None:
        """Writes ``scores.parquet`` of the cells that have scores into a folder, atomically.

        Published ones may have none; where no cell has any, an old file is removed.

        Raises:
            CheckpointError: The scores in a run folder are missing or broken.
        """
        frames = []
        for cell in cells:
            if cell.published and cell.key not in self._kept:
                continue
            checksum, scores = self.read(cell)
            columns = dict(zip(SCORE_NAMES, scores.t().numpy(), strict=True))
            key = dict(zip(_KEY, cell.key, strict=True))
            frame = pd.DataFrame({**key, _CHECKSUM: checksum, **columns})
            frames.append(frame)
        if not frames:
            (folder / SCORES).unlink(missing_ok=True)
        else:
            table = pd.concat(frames, ignore_index=True)
            write_beside(
                folder / SCORES,
                lambda beside: table.to_parquet(beside, index=False, compression="zstd"),
            )


def _read_kept(path: Path) -> dict[tuple[str, str, int], tuple[str, Tensor]]:
    """Checksum and scores of each cell of ``scores.parquet``; empty without the file."""
    if not path.is_file():
        return {}
    found: dict[tuple[str, str, int], tuple[str, Tensor]] = {}
    must = f"'{path}' must hold scores of documents as match-graph wrote them"
    with reading(path, must, "restore it, or delete it and do without its intervals"):
        table = pd.read_parquet(path, columns=[*_KEY, _CHECKSUM, *SCORE_NAMES])
        scores = torch.from_numpy(table[[*SCORE_NAMES]].to_numpy(dtype="float32", copy=True))
        if not bool(((scores >= 0) & (scores <= 1)).all()):
            raise DamagedError("a measure is not in 0..1")
        for name, part in table.groupby(_KEY, sort=False):
            dataset, row, seed = map(str, name)
            checksums = part[_CHECKSUM].unique()
            if len(checksums) != 1:
                raise DamagedError(f"'{row}' has {len(checksums)} checksums of data for a seed")
            place = torch.from_numpy(part.index.to_numpy(copy=True))
            found[dataset, row, int(seed)] = str(checksums[0]), scores[place]
    return found
