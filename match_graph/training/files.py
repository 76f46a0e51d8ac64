"""The files of a run folder: written beside and renamed, read without unpickling."""

import glob
import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
import yaml
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from match_graph.config import Config, load_config
from match_graph.errors import CheckpointError

CONFIG, METRICS, HISTORY, RECORD = "config.yaml", "metrics.json", "history.csv", "record.json"
#: The bins of reliability diagrams, and the page of `match-graph report`.
CALIBRATION, REPORT = "calibration.csv", "report.html"
#: The folder of a label tree's upper levels, each with the files of a training.
LEVELS = "levels"
#: Everything that match-graph writes at the top of a run folder.
RUN_FILES = frozenset(
    {CONFIG, METRICS, HISTORY, RECORD, CALIBRATION, REPORT}
    | {"model.safetensors", "vectors.safetensors", "scaling.safetensors"}
    | {"thresholds.parquet", "scores.parquet"}
    | {"pretrain.json", "vectors.txt", "tokens", "checkpoint", "events"}
    | {"baseline", "encoder", "graph", LEVELS}
)
#: Settings of ``train`` in which a resumed run may differ from what it was.
SHARING = ("devices", "num_nodes", "strategy")
MODEL, VECTORS, STATE = "model.safetensors", "vectors.safetensors", "checkpoint/state.pt"
#: How label scores are scaled; says nothing of the weights.
SCALING = "scaling.safetensors"
#: The folder of a fitted baseline, in the place of MODEL.
FITTED = "baseline"
#: The folder of what an encoder keeps besides its weights.
ENCODER_FILES = "encoder"


def write_beside(path: Path, write: Callable[[Path], object], previous: Path | None = None) -> None:
    """Lets ``write`` fill a file beside ``path`` and renames it: no reader sees half of it.

    It is on the disk before it has its name, so that this also holds when the machine fails.

    Args:
        path: Where the file goes; what is there stays until the new one is whole.
        write: Called with another path.
        previous: Where to keep what was at ``path``.

    Raises:
        OSError: The file cannot be written; names ``path``, whatever wrote.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_dead(path)
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        write(beside)
        with beside.open("r+b") as file:
            os.fsync(file.fileno())
        if previous is not None and path.is_file():
            path.replace(previous)
        beside.replace(path)
    except (OSError, RuntimeError, SafetensorError) as error:
        number = _find_errno(error)
        if number is None:
            raise
        raise OSError(number, os.strerror(number), str(path)) from error
    finally:
        beside.unlink(missing_ok=True)


def _find_errno(error: BaseException | None) -> int | None:
    """The number of the fault of the disk; torch hides it in the context, safetensors in text."""
    while error is not None:
        if isinstance(error, OSError) and error.errno is not None:
            return error.errno
        if found := re.search(r"\bos error (\d+)", str(error)):
            return int(found[1])
        error = error.__cause__ or error.__context__
    return None


def remove_leftovers(folder: Path) -> None:
    """Deletes what processes of this machine left half-written in a run folder when killed."""
    _remove_all_dead(folder.rglob(".*.tmp"))


def remove_dead(path: Path, ending: str = "tmp") -> None:
    """Deletes what killed processes of this machine left beside a path, on the way to its name."""
    _remove_all_dead(path.parent.glob(f".{glob.escape(path.name)}.*.{ending}"))


def _remove_all_dead(paths: Iterable[Path]) -> None:
    for path in list(paths):
        process = path.name.split(".")[-2]
        if not process.isdecimal() or _is_alive(int(process)):
            continue
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    try:  # one that has ended and that nobody has asked about is still listed
        state = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return True
    return state.rpartition(")")[2].split()[0] != "Z"


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Writes JSON with sorted keys as given, two spaces of indentation."""
    text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    write_beside(path, lambda beside: beside.write_text(text, encoding="utf-8"))


def read_json(path: Path) -> dict[str, Any]:
    """Reads a JSON object.

    Raises:
        CheckpointError: The file is broken.
    """
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(
            f"'{path}' must be a JSON file that match-graph wrote, but it cannot be read; "
            f"delete it, or start the run again with --overwrite."
        ) from error
    return content


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Writes tensors as safetensors."""
    whole = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}

    def write(beside: Path) -> None:
        folder = beside.with_name(f".folder{beside.name}")  # safetensors names a file by chance
        folder.mkdir(exist_ok=True)
        try:
            save_file(whole, str(folder / MODEL))
            (folder / MODEL).replace(beside)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    write_beside(path, write)


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Reads safetensors.

    Raises:
        CheckpointError: The file is missing or broken.
    """
    try:
        return load_file(path)
    except Exception as error:
        raise CheckpointError(
            f"'{path}' must be a safetensors file, but it cannot be read ({error}); "
            f"run the stage that writes it again."
        ) from error


def load_weights(model: nn.Module, folder: Path, dataset: str) -> None:
    """Puts the trained weights of a run folder into a model.

    Args:
        model: Of the run's configuration.
        folder: Of the run.
        dataset: Its name, for the message.

    Raises:
        CheckpointError: There are no weights, or they are of another configuration.
    """
    path = folder / MODEL
    if not path.is_file():
        raise CheckpointError(
            f"A trained run holds {MODEL}, but '{folder}' has none; "
            f"train it with `match-graph train {dataset} --out {folder}`."
        )
    weights = read_tensors(path)
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        raise CheckpointError(
            f"'{path}' must hold the weights of this run's model, but names or shapes differ; "
            f"train the run again."
        ) from error


def write_state(path: Path, state: Mapping[str, Any], keep_previous: bool = True) -> None:
    """Writes a checkpoint of tensors and plain values; the one before stays beside it if wanted."""

    def write(beside: Path) -> None:
        with beside.open("wb") as file:  # a file of Python's: its errors say what the disk said
            torch.save(dict(state), file)

    write_beside(path, write, previous=_previous(path) if keep_previous else None)
    if not keep_previous:
        _previous(path).unlink(missing_ok=True)


def has_state(path: Path) -> bool:
    """Whether `read_state` has something to read."""
    return path.is_file() or _previous(path).is_file()


def remove_state(path: Path) -> None:
    """Deletes a checkpoint and the one before."""
    _previous(path).unlink(missing_ok=True)
    path.unlink(missing_ok=True)


def read_state(path: Path, warn: Callable[[str], None] | None = None) -> dict[str, Any]:
    """Reads a checkpoint, or where it is broken or missing the one before.

    Nothing but tensors and plain values is accepted.

    Args:
        path: As for `write_state`.
        warn: Called with a sentence where the one before is taken.

    Raises:
        CheckpointError: Both are broken.
    """
    failure: Exception | None = None
    for place in (path, _previous(path)):
        if not place.is_file():
            continue
        try:
            state: dict[str, Any] = torch.load(place, map_location="cpu", weights_only=True)
        except Exception as error:
            failure = failure or error
            continue
        if failure is not None and warn is not None:
            warn(
                f"the checkpoint '{path}' cannot be read ({type(failure).__name__}); going on from "
                f"the one before"
            )
        return state
    raise CheckpointError(
        f"The checkpoint '{path}' must be readable to resume, but it is not "
        f"({type(failure).__name__}); delete the folder '{path.parent}' to train again."
    ) from failure


def _previous(path: Path) -> Path:
    return path.with_name(f"{path.name}.previous")


def open_run_folder(folder: Path) -> Config:
    """The configuration of an existing run.

    Raises:
        CheckpointError: The folder is missing or not a run folder.
    """
    if not folder.is_dir():
        raise CheckpointError(
            f"A run must be a folder that match-graph wrote, but there is none at '{folder}'; "
            f"check the path."
        )
    if not (folder / CONFIG).is_file():
        raise CheckpointError(
            f"A run folder holds {CONFIG}, but '{folder}' has none; check the path, or start a "
            f"run with `match-graph run DATASET --out {folder}`."
        )
    return load_config(folder / CONFIG)


def check_own_code(
    folder: Path, config: Config, encoder: str | None = None, head: str | None = None
) -> None:
    """Checks that a run's ``package.module:Class`` is named by the caller too.

    A folder alone cannot make this process import code.

    Raises:
        CheckpointError: The encoder or head is code of its own that the caller did not name.
    """
    for kind, name, given in (
        ("encoder", config.model.encoder, encoder),
        ("head", config.model.head, head),
    ):
        if (given is not None or ":" in (name or "")) and given != name:
            raise CheckpointError(
                f"The run in '{folder}' was trained with the {kind} '{name}', and code is imported "
                f"only by request, found {kind}={given!r}; load it with {kind}='{name}'."
            )


def claim_run_folder(folder: Path, config: Config, overwrite: bool) -> None:
    """Makes a run folder, or checks that an existing one is of the same run, to be resumed.

    Args:
        folder: New, empty, or a run folder.
        config: Resolved.
        overwrite: Deletes a run folder that is there; never one with other files in it.

    Raises:
        CheckpointError: The folder holds something else, or a run with other settings.
    """
    if folder.exists() and not folder.is_dir():
        raise CheckpointError(f"A run must be a folder, but '{folder}' is a file; choose another.")
    remove_leftovers(folder)
    others = sorted({path.name for path in folder.glob("*")} - RUN_FILES)
    is_run = (folder / CONFIG).is_file()
    if others or (folder.is_dir() and any(folder.iterdir()) and not is_run):
        raise CheckpointError(
            f"A run must start in a new or empty folder, but '{folder}' holds other files"
            f"{' (' + ', '.join(others[:3]) + ')' if others else ''}; choose another with --out."
        )
    if is_run and overwrite:
        shutil.rmtree(folder)
    elif is_run:
        there = open_run_folder(folder)
        if difference := find_difference(there, config):
            raise CheckpointError(
                f"The run in '{folder}' has other settings ({difference}); "
                f"choose another folder with --out, or delete it with --overwrite."
            )
        return
    text = yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False)
    write_beside(folder / CONFIG, lambda beside: beside.write_text(text, encoding="utf-8"))


def describe_work(config: Config) -> dict[str, Any]:
    """What is computed: all settings but how many processes share the work."""
    return config.model_dump(exclude={"train": set(SHARING)})


def find_difference(there: Config, here: Config) -> str:
    """The first setting in which the work of two runs differs, as a clause; empty if none does."""
    if describe_work(there) == describe_work(here):
        return ""
    pairs = zip(_flatten(describe_work(there)), _flatten(describe_work(here)), strict=False)
    for (key, old), (other, new) in pairs:
        if (key, old) != (other, new):
            return f"{key} is {old!r} there" + (f" and {new!r} here" if key == other else "")
    return "some settings are missing"


def _flatten(content: dict[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    flat: list[tuple[str, Any]] = []
    for key, value in content.items():
        if isinstance(value, dict) and value:
            flat += _flatten(value, f"{prefix}{key}.")
        else:
            flat.append((f"{prefix}{key}", value))
    return flat
