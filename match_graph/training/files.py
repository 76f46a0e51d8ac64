"""The files of a run folder: written beside and renamed, read without unpickling."""

import json
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
import yaml
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from match_graph.config import Config, load_config
from match_graph.errors import CheckpointError

CONFIG, METRICS, HISTORY, RECORD = "config.yaml", "metrics.json", "history.csv", "record.json"
#: Everything that match-graph writes at the top of a run folder.
RUN_FILES = frozenset(
    {CONFIG, METRICS, HISTORY, RECORD, "model.safetensors", "vectors.safetensors"}
    | {"thresholds.parquet", "pretrain.json", "vectors.txt", "tokens", "checkpoint", "events"}
    | {"baseline", "encoder"}
)
MODEL, VECTORS, STATE = "model.safetensors", "vectors.safetensors", "checkpoint/state.pt"
#: The folder of a fitted baseline, in the place of MODEL.
FITTED = "baseline"
#: The folder of what an encoder keeps besides its weights.
ENCODER_FILES = "encoder"


def write_beside(path: Path, write: Callable[[Path], object]) -> None:
    """Lets ``write`` fill a file beside ``path`` and renames it: no reader sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        write(beside)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


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
    write_beside(path, lambda beside: save_file(whole, str(beside)))


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


def write_state(path: Path, state: Mapping[str, Any]) -> None:
    """Writes a checkpoint of tensors and plain values."""
    write_beside(path, lambda beside: torch.save(dict(state), beside))


def read_state(path: Path) -> dict[str, Any]:
    """Reads a checkpoint; nothing but tensors and plain values is accepted.

    Raises:
        CheckpointError: The file is broken.
    """
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise CheckpointError(
            f"The checkpoint '{path}' must be readable to resume, but it is not "
            f"({type(error).__name__}); delete the folder '{path.parent}' to train again."
        ) from error
    return state


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
        if there != config:
            raise CheckpointError(
                f"The run in '{folder}' has other settings ({_first_difference(there, config)}); "
                f"choose another folder with --out, or delete it with --overwrite."
            )
        return
    text = yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False)
    write_beside(folder / CONFIG, lambda beside: beside.write_text(text, encoding="utf-8"))


def _first_difference(there: Config, here: Config) -> str:
    pairs = zip(_flatten(there.model_dump()), _flatten(here.model_dump()), strict=False)
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
