"""``thresholds.parquet``: per-label decision thresholds of a run."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import torch
from torch import Tensor

from match_graph.errors import CheckpointError
from match_graph.io.files import check_whole, describe_failure, has_file, write_beside
from match_graph.metrics import Thresholds

THRESHOLDS = "thresholds.parquet"


def write_thresholds(folder: Path, labels: Sequence[str], thresholds: Thresholds) -> None:
    """Writes columns ``label``, ``threshold``, ``num_positives`` and ``is_own``, a row a label."""
    table = pd.DataFrame(
        {
            "label": list(labels),
            "threshold": thresholds.value.numpy(),
            "num_positives": thresholds.num_positives.numpy(),
            "is_own": thresholds.is_own.numpy(),
        }
    )
    write_beside(folder / THRESHOLDS, table.to_parquet)


def read_thresholds(folder: Path, labels: Sequence[str]) -> Tensor | None:
    """The thresholds of labels, [L], float32; None if none were chosen yet.

    Raises:
        CheckpointError: The file is broken, or of other labels.
    """
    path = folder / THRESHOLDS
    if not has_file(path):
        return None
    try:
        check_whole(path)
        table = pd.read_parquet(path, columns=["label", "threshold"])
        threshold = torch.from_numpy(table["threshold"].to_numpy(dtype="float32", copy=True))
    except Exception as error:
        raise _broken(path, describe_failure(error)) from error
    if table["label"].tolist() != list(labels):
        raise _broken(path, "it has other labels")
    if not bool(((threshold >= 0) & (threshold <= 1)).all()):
        raise _broken(path, "a threshold is no probability")
    return threshold


def _broken(path: Path, reason: str) -> CheckpointError:
    return CheckpointError(
        f"'{path}' must hold a threshold for each label of the run, but it cannot be used "
        f"({reason}); write it again with `match-graph evaluate`."
    )
