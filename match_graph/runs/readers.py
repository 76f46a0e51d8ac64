"""Typed readers of a run folder's small files; a broken one raises a one-sentence error."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import torch
from pydantic import BaseModel, ConfigDict, Field, RootModel
from torch import Tensor

from match_graph.config import Config
from match_graph.errors import CheckpointError, format_command
from match_graph.io.files import (
    DamagedError,
    has_file,
    has_folder,
    read_json,
    read_tensors,
    reading,
)
from match_graph.io.manifest import read_bytes
from match_graph.io.run_folder import (
    CALIBRATION,
    CONFIG,
    FITTED,
    HISTORY,
    METRICS,
    MODEL,
    PER_DOCUMENT,
    RECORD,
    RELIABILITY,
    SHARES,
    THRESHOLDS,
)
from match_graph.metrics import Blend, PlattScaling
from match_graph.own_code import CODE, is_own_code
from match_graph.training.checkpoint import check_over
from match_graph.typing import Split

Finite = Annotated[float, Field(allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
#: Remedies for a broken file.
_EVALUATE = "write it again with `match-graph evaluate`"
_OVERWRITE = "write it again with --overwrite"
#: Scalar tensors of a calibration, and those with a value per label.
NUMBERS, TABLES = ("width", "before", "after"), ("scale", "shift", "fold_scale", "fold_shift")


class Metrics(RootModel[dict[Split, dict[str, Finite]]]):
    """``metrics.json``: measures by split, valid among them."""

    model_config = ConfigDict(strict=True)


class BlendFile(BaseModel):
    """``blend/shares.json``: shares of a network; see `Blend`."""

    model_config = ConfigDict(strict=True)

    share: Annotated[float, Field(ge=0, le=1)]
    fold_share: list[Annotated[float, Field(ge=0, le=1)]] = Field(min_length=1)


class TwinsEntry(BaseModel):
    """Documents of a split whose word sequence a training document has."""

    model_config = ConfigDict(strict=True)

    documents: int = Field(ge=0)
    of: int = Field(ge=1)


class RecordFile(BaseModel):
    """``record.json``: provenance of a run; see `record.RunRecord`."""

    model_config = ConfigDict(strict=True)

    dataset: str
    data_checksum: str
    num_train_documents: int = Field(ge=1)
    feature_checksums: dict[str, str] = Field(default_factory=dict)
    input_checksums: dict[str, str] = Field(default_factory=dict)
    seed: int
    processes: int = Field(ge=1)
    seconds: dict[str, NonNegative]
    resumed: bool = False
    stage: str | None = None
    parameters: int | None = Field(None, ge=0)
    vectors_from: str | None = None
    twins: dict[Split, TwinsEntry] = Field(default_factory=dict)
    network_share: float | None = Field(None, ge=0, le=1)
    metadata_weight: float | None = Field(None, gt=0)
    peak_memory_mib: dict[str, NonNegative]
    device: dict[str, str | int]
    versions: dict[str, str]
    python: str
    git: str | None


def check_has_data(folder: Path) -> None:
    """Checks that a run folder names its data, as a shared one does not.

    Raises:
        CheckpointError: It does not.
    """
    if not has_file(folder / RECORD):
        raise CheckpointError(
            f"A run is opened with its data, which its {RECORD} names, but '{folder}' has none. A "
            f"shared folder predicts alone: give the run that it was made of; a run that was "
            f"killed as it began is started again."
        )


def check_evaluated(folder: Path, config: Config, must: str) -> None:
    """Checks that a run is trained and evaluated.

    Args:
        folder: Run folder.
        config: Its settings.
        must: What must hold, for the message.

    Raises:
        CheckpointError: It is not; with the command that goes on with it.
    """
    if has_file(folder / METRICS):
        return
    if has_file(folder / MODEL) or has_folder(folder / FITTED):
        check_has_data(folder)
        check_over(folder, config.train)
        found, words = METRICS, ["evaluate", str(folder)]
    else:
        found = f"{MODEL} and no {FITTED}"
        words = ["run", config.dataset, "--config", str(folder / CONFIG), "--out", str(folder)]
        code = {kind: getattr(config.model, kind) for kind in CODE}
        words += [f"--set=model.{kind}={v}" for kind, v in code.items() if v and is_own_code(v)]
    raise CheckpointError(
        f"{must}, but '{folder}' has no {found}; go on with `{format_command(*words)}`."
    )


def read_metrics(folder: Path) -> dict[str, dict[str, float]]:
    """Measures by split and name, all finite.

    Raises:
        CheckpointError: The file is missing or broken, or holds something else.
    """
    path = folder / METRICS
    if not has_file(path):
        raise CheckpointError(
            f"A run must be evaluated before its measures are read, but '{folder}' has no "
            f"{METRICS}; evaluate it first."
        )
    content = read_json(path)
    with reading(path, f"'{path}' must hold measures of splits", _EVALUATE):
        Metrics.model_validate(content)
        if "valid" not in content:
            raise DamagedError("valid is missing")
    return content


def read_record(folder: Path) -> dict[str, Any]:
    """Reads the provenance of a run.

    Raises:
        CheckpointError: The file is missing or broken, or holds something else.
    """
    path = folder / RECORD
    content = read_json(path)
    with reading(path, f"'{path}' must hold how the run was made", _OVERWRITE):
        RecordFile.model_validate(content)
    return content


def read_history(folder: Path) -> pd.DataFrame | None:
    """Training history: a row per epoch from 1 on, numeric columns; None without a training.

    A loss may be infinite: that is what happened.

    Raises:
        CheckpointError: The file is broken, or holds something else.
    """
    path = folder / HISTORY
    if not has_file(path):
        return None
    with reading(path, f"'{path}' must hold losses and measures of each epoch", _OVERWRITE):
        table = _read_csv(path)
        if "epoch" not in table or table["epoch"].tolist() != list(range(1, len(table) + 1)):
            raise DamagedError("epochs are not counted from 1")
        for name in table:
            if not _is_number(table[name]):
                raise DamagedError(f"'{name}' is not a number everywhere")
    return table


def read_bins(folder: Path) -> pd.DataFrame | None:
    """Reliability bins, as `measures.write_bins` wrote them; None without any.

    Raises:
        CheckpointError: The file is broken, or holds something else.
    """
    path = folder / RELIABILITY
    if not has_file(path):
        return None
    columns = ["split", "labels", "bin", "pairs", "probability", "gold"]
    with reading(path, f"'{path}' must hold bins of probabilities", _EVALUATE):
        table = _read_csv(path)
        if table.columns.tolist() != columns:
            raise DamagedError(f"its columns are not {', '.join(columns)}")
        known = table["split"].isin(["valid", "test"]) & table["labels"].isin(["ranked", "all"])
        if not known.all():
            raise DamagedError("it has other splits or labels")
        for name, most in zip(columns[2:], (1e18, 1e18, 1.0, 1.0), strict=True):
            values = table[name].dropna() if most == 1.0 else table[name]
            if not _is_number(values) or not values.between(0, most).all():
                raise DamagedError(f"'{name}' is out of range")
    return table


def read_thresholds(folder: Path, labels: Sequence[str]) -> Tensor | None:
    """The thresholds of labels, [L], float32; None if none were chosen yet.

    Raises:
        CheckpointError: The file is broken, or of other labels.
    """
    path = folder / THRESHOLDS
    if not has_file(path):
        return None
    with reading(path, f"'{path}' must hold a threshold for each label of the run", _EVALUATE):
        table = pd.read_parquet(path, columns=["label", "threshold"])
        threshold = torch.from_numpy(table["threshold"].to_numpy(dtype="float32", copy=True))
        if table["label"].tolist() != list(labels):
            raise DamagedError("it has other labels")
        if not bool(((threshold >= 0) & (threshold <= 1)).all()):
            raise DamagedError("a threshold is no probability")
    return threshold


def read_shared_threshold(folder: Path) -> float:
    """The threshold that labels without one of their own share.

    Raises:
        CheckpointError: The file is missing or broken.
    """
    path = folder / THRESHOLDS
    with reading(path, f"'{path}' must hold the threshold that labels share", _EVALUATE):
        (shared,) = pd.read_parquet(path, columns=["shared"])["shared"].unique().tolist()
        if not 0 <= shared <= 1:
            raise DamagedError("it is no probability")
    return float(shared)


def read_scores(folder: Path, split: Split, measures: Sequence[str]) -> Tensor:
    """Measures of every document of a split, [D, M], float32, in the order of the data set.

    Raises:
        CheckpointError: The file is missing or broken, or lacks a measure or the split.
    """
    path = folder / PER_DOCUMENT
    must = f"'{path}' must hold the measures {', '.join(measures)} of every document"
    with reading(path, must, _EVALUATE, "it cannot be read"):
        table = pd.read_parquet(path, columns=["document", "split", *measures])
        if not all(table[one].between(0, 1).all() for one in measures):
            raise DamagedError("a measure is not in 0..1")
    table = table[table["split"] == split].sort_values("document")
    if table.empty:
        raise CheckpointError(
            f"'{path}' must hold documents of the split '{split}', but it has none; {_EVALUATE}."
        )
    return torch.from_numpy(table[[*measures]].to_numpy(dtype="float32", copy=True))


def read_blend(folder: Path) -> Blend | None:
    """Reads the shares of a network and a linear classifier; None if there are none.

    Raises:
        CheckpointError: The file is broken, or holds something else.
    """
    path = folder / SHARES
    if not has_file(path):
        return None
    content, must = read_json(path), f"'{path}' must hold the share of the network"
    with reading(path, must, f"delete it and {_EVALUATE}"):
        shares = BlendFile.model_validate(content)
    return Blend(shares.share, torch.tensor(shares.fold_share, dtype=torch.float32))


def read_calibration(folder: Path, num_labels: int) -> PlattScaling | None:
    """Reads the calibration of a run folder; None if there is none.

    Raises:
        CheckpointError: The file is broken, or of other labels.
    """
    path = folder / CALIBRATION
    if not has_file(path):
        return None
    must = f"'{path}' must hold a scale and a shift for each label of the run"
    tensors = read_tensors(path)
    with reading(path, must, f"delete it and {_EVALUATE}"):
        if tensors.keys() != {*NUMBERS, *TABLES}:
            raise DamagedError(f"it holds {sorted(tensors)}")
        tables = scale, shift, fold_scale, fold_shift = [tensors[name] for name in TABLES]
        if any(table.shape[-1:] != (num_labels,) for table in tables):
            raise DamagedError(f"it is of {scale.numel()} labels, not {num_labels}")
        if not (
            all(tensors[name].dim() == 0 for name in NUMBERS)
            and scale.dim() == shift.dim() == 1
            and fold_scale.dim() == 2
            and fold_scale.shape == fold_shift.shape
            and all(table.dtype == torch.float32 for table in tables)
        ):
            raise DamagedError("its tensors have other shapes or types")
        if not bool((scale > 0).all() & (fold_scale > 0).all() & (tensors["width"] >= 0)):
            raise DamagedError("a scale or the width is not positive")
    numbers: Any = [float(tensors[name]) for name in NUMBERS]
    return PlattScaling(scale, shift, fold_scale, fold_shift, *numbers)


def _read_csv(path: Path) -> pd.DataFrame:
    return pd.read_csv(io.BytesIO(read_bytes(path)), encoding="utf-8")


def _is_number(values: pd.Series) -> bool:
    is_number = pd.api.types.is_numeric_dtype(values) and not pd.api.types.is_bool_dtype(values)
    return bool(is_number) or values.empty
