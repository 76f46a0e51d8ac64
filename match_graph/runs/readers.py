"""Typed readers of a run folder's small files: measures, history, reliability, record."""

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
from pydantic import BaseModel, ConfigDict, Field, RootModel, ValidationError

from match_graph.errors import CheckpointError
from match_graph.io.files import (
    HISTORY,
    METRICS,
    RECORD,
    RELIABILITY,
    check_whole,
    describe_failure,
    has_file,
    read_json,
)
from match_graph.io.manifest import read_bytes
from match_graph.typing import Split

Finite = Annotated[float, Field(allow_inf_nan=False)]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Metrics(RootModel[dict[Split, dict[str, Finite]]]):
    """``metrics.json``: measures by split, valid among them."""

    model_config = ConfigDict(strict=True)


class RecordFile(BaseModel):
    """``record.json``: provenance of a run; see `record.RunRecord`."""

    model_config = ConfigDict(strict=True)

    dataset: str
    data_checksum: str
    seed: int
    processes: int = Field(ge=1)
    seconds: dict[str, Seconds]
    parameters: int | None = Field(None, ge=0)
    vectors_from: str | None = None
    peak_memory_mib: dict[str, Seconds]
    device: dict[str, str | int]
    versions: dict[str, str]
    python: str
    git: str | None


def read_metrics(folder: Path) -> dict[str, dict[str, float]]:
    """Measures by split and name, all finite.

    Raises:
        CheckpointError: The file is missing or broken, or holds something else.
    """
    path = folder / METRICS
    content = read_json(path)
    _check(Metrics, content, path, "measures of splits", "`match-graph evaluate`")
    if "valid" not in content:
        raise _broken(path, "measures of splits", "valid is missing", "`match-graph evaluate`")
    return content


def read_record(folder: Path) -> dict[str, Any]:
    """Reads the provenance of a run.

    Raises:
        CheckpointError: The file is missing or broken, or holds something else.
    """
    path = folder / RECORD
    content = read_json(path)
    _check(RecordFile, content, path, "how the run was made", "--overwrite")
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
    what, remedy = "losses and measures of each epoch", "--overwrite"
    table = _read_csv(path, what, remedy)
    if "epoch" not in table or table["epoch"].tolist() != list(range(1, len(table) + 1)):
        raise _broken(path, what, "epochs are not counted from 1", remedy)
    for name in table:
        if not _is_number(table[name]):
            raise _broken(path, what, f"'{name}' is not a number everywhere", remedy)
    return table


def read_bins(folder: Path) -> pd.DataFrame | None:
    """Reliability bins, as `measures.write_bins` wrote them; None without any.

    Raises:
        CheckpointError: The file is broken, or holds something else.
    """
    path = folder / RELIABILITY
    if not has_file(path):
        return None
    what, remedy = "bins of probabilities", "`match-graph evaluate`"
    table = _read_csv(path, what, remedy)
    columns = ["split", "labels", "bin", "pairs", "probability", "gold"]
    if table.columns.tolist() != columns:
        raise _broken(path, what, f"its columns are not {', '.join(columns)}", remedy)
    if not (table["split"].isin(["valid", "test"]) & table["labels"].isin(["ranked", "all"])).all():
        raise _broken(path, what, "it has other splits or labels", remedy)
    for name in ("bin", "pairs", "probability", "gold"):
        values = table[name].dropna() if name in ("probability", "gold") else table[name]
        most = 1.0 if name in ("probability", "gold") else 1e18
        if not _is_number(values) or not values.between(0, most).all():
            raise _broken(path, what, f"'{name}' is out of range", remedy)
    return table


def _read_csv(path: Path, what: str, remedy: str) -> pd.DataFrame:
    try:
        check_whole(path)
        return pd.read_csv(io.BytesIO(read_bytes(path)), encoding="utf-8")
    except Exception as error:
        raise _broken(path, what, describe_failure(error), remedy) from error


def _is_number(values: pd.Series) -> bool:
    is_number = pd.api.types.is_numeric_dtype(values) and not pd.api.types.is_bool_dtype(values)
    return bool(is_number) or values.empty


def _check(
    cls: type[BaseModel], content: Mapping[str, Any], path: Path, what: str, remedy: str
) -> None:
    try:
        cls.model_validate(content)
    except ValidationError as error:
        fault = error.errors()[0]
        place = ".".join(map(str, fault["loc"]))
        raise _broken(path, what, f"{place}: {fault['msg']}", remedy) from error


def _broken(path: Path, what: str, reason: str, remedy: str) -> CheckpointError:
    return CheckpointError(
        f"'{path}' must hold {what}, but it cannot be used ({reason}); write it again with "
        f"{remedy}."
    )
