"""Files of a run folder: written atomically, checksummed, read without unpickling."""

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError
from safetensors.torch import load_file, save_file
from torch import Tensor

from match_graph.errors import CheckpointError, ConfigError
from match_graph.io.beside import beside, finish
from match_graph.io.manifest import (
    MANIFEST,
    Digest,
    States,
    changing,
    check_regular,
    compute_digest,
    describe_fault,
    find_damage,
    list_digests,
    parse_json,
    read_bytes,
    read_manifest,
)
from match_graph.io.run_folder import CONFIG, LISTED


class DamagedError(ValueError):
    """A file is damaged; the text is a clause that says why."""


def find_run(path: Path) -> tuple[Path, str] | None:
    """Run folder whose manifest lists a path, and the path relative to it; None outside of any.

    A manifest is that of a run if the run's settings lie beside it, or are the path itself.
    """
    for folder in list(path.parents)[:5]:
        if os.path.lexists(folder / MANIFEST) and (
            path == folder / CONFIG or os.path.lexists(folder / CONFIG)
        ):
            name = path.relative_to(folder)
            return (folder, name.as_posix()) if name.parts[0] in LISTED else None
    return None


def write_beside(path: Path, write: Callable[[Path], object], previous: Path | None = None) -> None:
    """Writes a file through ``write`` atomically: no reader sees half of it.

    It is flushed to the disk before it is renamed, so that this holds for a crash of the machine,
    too. In a run folder it is listed in the manifest.

    Args:
        path: Path of the file; an old one stays until the new one is complete.
        write: Writes the file to the temporary path that it is given.
        previous: Path that keeps the previous file; None keeps none.

    Raises:
        OSError: The file cannot be written; names ``path``, whichever library wrote.
        CheckpointError: The manifest of the run folder is damaged.
    """
    with beside(path) as place:
        write(place)
        finish(place)
        becomes: dict[Path, States] = {path: [compute_digest(place)]}
        keeps = previous is not None and path.is_file()
        with _listing(becomes, path if keeps else None, previous):
            if keeps and previous is not None:
                path.replace(previous)
            place.replace(path)


def write_text(path: Path, text: str) -> None:
    """Writes UTF-8 text as `write_beside` does, listed in the manifest of a run folder."""
    write_beside(path, lambda beside: beside.write_text(text, encoding="utf-8"))


def link_file(source: Path, target: Path) -> None:
    """Makes a hard link to a file, or a copy where the disk has no links."""
    try:
        target.hardlink_to(source)
    except OSError:
        shutil.copyfile(source, target)


def write_folder(path: Path, fill: Callable[[Path], object]) -> None:
    """Writes a new folder atomically, as `write_beside` a file; none is made if it stays empty."""
    with beside(path) as place:
        place.mkdir()
        fill(place)
        if not any(place.iterdir()):
            return
        finish(place)
        digests = list_digests(place)
        with _listing({path / name: [digest] for name, digest in digests.items()}):
            place.rename(path)


def list_files(digests: Mapping[Path, Digest]) -> None:
    """Adds existing files to the manifest of their run folder."""
    with _listing({path: [digest] for path, digest in digests.items()}):
        pass


def remove_files(*paths: Path) -> None:
    """Deletes files that exist, and removes them from the manifest of their run folder."""
    listed = [path for path in paths if os.path.lexists(path) or _states(path)]
    with _listing({path: [None] for path in listed}):
        for path in listed:
            path.unlink(missing_ok=True)


@contextmanager
def _listing(
    becomes: Mapping[Path, States], kept: Path | None = None, previous: Path | None = None
) -> Iterator[None]:
    """Lists changed files of one run folder in its manifest, before and after the block.

    Args:
        becomes: States of the files after the block, by path.
        kept: File that is renamed to ``previous`` within the block.
        previous: Path to which ``kept`` is renamed.
    """
    found = {path: run for path in becomes if (run := find_run(path)) is not None}
    if not found:
        yield
        return
    folder = next(iter(found.values()))[0]
    states: dict[str, States] = {found[path][1]: [*becomes[path]] for path in found}
    try:
        if kept is not None and previous is not None:  # between the renames it is absent
            states[found[kept][1]].insert(0, None)
            states[previous.relative_to(folder).as_posix()] = _states(kept)
        with changing(folder, states):
            yield
    except ValueError as error:
        raise _damaged_manifest(folder, str(error)) from error


def _states(path: Path) -> States:
    """States that the manifest allows for a file; empty if it does not list it."""
    run = find_run(path)
    if run is None:
        return []
    return _read_manifest(run[0]).get(run[1], [])


def _read_manifest(folder: Path) -> dict[str, States]:
    try:
        return read_manifest(folder)
    except ValueError as error:
        raise _damaged_manifest(folder, str(error)) from error


def _damaged_manifest(folder: Path, reason: str) -> CheckpointError:
    return CheckpointError(
        f"'{folder / MANIFEST}' must list the files of the run, but it cannot be used ({reason}); "
        f"restore it, or start the run again with --overwrite."
    )


def has_file(path: Path) -> bool:
    """Whether a file of a run was written, according to its manifest.

    Raises:
        CheckpointError: It was, but is missing; or the path is no regular file.
    """
    if path.is_file():
        return True
    if not os.path.lexists(path) and None in (_states(path) or [None]):
        return False
    must, found = "A run must have all of its files", f"'{path}' cannot be used"
    with reading(path, must, "restore it, or start the run again with --overwrite", found):
        return True


def has_folder(path: Path) -> bool:
    """Whether a folder of a run was written, with all of its files whole.

    Raises:
        CheckpointError: A file is missing, damaged or not listed.
    """
    run = find_run(path)
    if run is None:
        return path.is_dir()
    listed = {name for name in _read_manifest(run[0]) if name.startswith(f"{run[1]}/")}
    there = {file.relative_to(run[0]).as_posix() for file in path.rglob("*") if not file.is_dir()}
    for name in sorted(listed | there):
        if damage := find_damage(run[0], name):
            raise CheckpointError(
                f"A run must have all of its files, but '{run[0] / name}' cannot be used "
                f"({damage}); delete the folder '{path}' and train again."
            )
    return bool(there)


def check_whole(path: Path) -> None:
    """Checks that a file is a regular one and, in a run folder, matches its manifest.

    Raises:
        OSError: It cannot be read.
        DamagedError: It is not what the manifest lists.
    """
    run = find_run(path)
    if run is None:
        check_regular(path)
    elif damage := find_damage(*run):
        raise DamagedError(damage)


@contextmanager
def reading(path: Path, must: str, remedy: str, found: str = "it cannot be used") -> Iterator[None]:
    """Context for reading a file that the manifest lists; any failure becomes one sentence.

    Args:
        path: Path of the file.
        must: What must hold.
        remedy: What to do.
        found: What was found; the reason follows in brackets.

    Raises:
        CheckpointError: The file is not what the manifest lists, or the block failed.
    """
    try:
        check_whole(path)
        yield
    except (CheckpointError, ConfigError):
        raise
    except Exception as error:
        raise CheckpointError(
            f"{must}, but {found} ({describe_failure(error)}); {remedy}."
        ) from error


def describe_failure(error: BaseException | None) -> str:
    """Why a file cannot be read, as a clause for a message."""
    if isinstance(error, ValidationError):
        fault = error.errors()[0]
        return f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}"
    if type(error) in (DamagedError, ValueError, json.JSONDecodeError, UnicodeDecodeError):
        return " ".join(str(error).split())
    return describe_fault(error) if isinstance(error, OSError) else type(error).__name__


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Writes a JSON object, keys in the order given, indented by two spaces."""
    write_text(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """Reads a JSON object.

    Raises:
        CheckpointError: The file is broken.
    """
    must = f"'{path}' must be a JSON file that match-graph wrote"
    remedy = "delete it, or start the run again with --overwrite"
    with reading(path, must, remedy, "it cannot be read"):
        content: Any = parse_json(read_bytes(path))
        if not isinstance(content, dict):
            raise DamagedError(f"it holds no object but {type(content).__name__}")
    return dict(content)


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Writes tensors as safetensors."""
    whole = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}

    write_beside(path, lambda place: save_file(whole, str(place)))


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Reads safetensors.

    Raises:
        CheckpointError: The file is missing or broken, or a number is not finite.
    """
    must = f"'{path}' must be a safetensors file of finite numbers"
    with reading(path, must, "restore it, or write it again (a run: with --overwrite)"):
        tensors = load_file(path)
        for name, tensor in tensors.items():
            if tensor.is_floating_point() and not is_finite(tensor):
                raise DamagedError(f"'{name}' holds values that are not finite")
    return tensors


def is_finite(values: Tensor) -> bool:
    """Whether all values are finite, from their extremes, so that no mask is allocated."""
    return not values.numel() or all(bool(value.isfinite()) for value in values.aminmax())


def save_torch(path: Path, content: Mapping[str, Any]) -> None:
    """`torch.save` through a Python file, so that a full disk is an OSError."""
    with path.open("wb") as file:
        torch.save(dict(content), file)


def write_state(path: Path, state: Mapping[str, Any], keep_previous: bool = True) -> None:
    """Writes a checkpoint of tensors and plain values; optionally keeps the previous one."""
    previous = previous_state(path) if keep_previous else None
    write_beside(path, lambda place: save_torch(place, state), previous)
    if not keep_previous:
        remove_files(previous_state(path))


def has_state(path: Path) -> bool:
    """Whether `read_state` has something to read."""
    return path.is_file() or previous_state(path).is_file()


def remove_state(path: Path) -> None:
    """Deletes a checkpoint and the previous one."""
    remove_files(previous_state(path), path)


def read_state(
    path: Path,
    warn: Callable[[str], None] | None = None,
    check: Callable[[dict[str, Any]], None] | None = None,
) -> dict[str, Any]:
    """Reads a checkpoint, or where it is broken or missing the previous one.

    Nothing but tensors and plain values is accepted.

    Args:
        path: Path of the checkpoint, as for `write_state`.
        warn: Called with a sentence where the previous checkpoint is read instead.
        check: Raises a `DamagedError` where a checkpoint that was read cannot be used.

    Raises:
        CheckpointError: Both are broken.
    """
    failure: Exception | None = None
    for place in (path, previous_state(path)):
        if not place.is_file():
            continue
        try:
            check_whole(place)
            state: Any = torch.load(place, map_location="cpu", weights_only=True)
            if not isinstance(state, dict):
                raise DamagedError(f"it holds no mapping but {type(state).__name__}")
            if check is not None:
                check(state)
        except Exception as error:
            failure = failure or error
            continue
        if failure is not None and warn is not None:
            warn(
                f"the checkpoint '{path}' cannot be read ({describe_failure(failure)}); going on "
                f"from the one before"
            )
        return state
    raise CheckpointError(
        f"The checkpoint '{path}' must be readable to resume, but it is not "
        f"({describe_failure(failure)}); delete the folder '{path.parent}' to train again."
    ) from failure


def previous_state(path: Path) -> Path:
    """Path of the checkpoint before the one at a path."""
    return path.with_name(f"{path.name}.previous")
