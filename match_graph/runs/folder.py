"""Run folders: opened, claimed for one run, locked while they change."""

import hashlib
import json
import os
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from match_graph.config import SHARING, Config, parse_settings, read_settings
from match_graph.datasets import names_code
from match_graph.errors import CheckpointError, list_faults
from match_graph.io.beside import is_temporary, remove_leftovers
from match_graph.io.files import reading, write_text
from match_graph.io.manifest import MANIFEST, find_damage, read_manifest, write_manifest
from match_graph.io.run_folder import (
    CHECKPOINT,
    CONFIG,
    HISTORY,
    LOCK,
    METRICS,
    PER_DOCUMENT,
    RECORD,
    RELIABILITY,
    RUN_FILES,
)
from match_graph.io.yaml import dump_yaml
from match_graph.own_code import is_file_code, is_own_code, locate_code

#: Files of a run that no prediction depends on.
_RESULTS = {METRICS, HISTORY, RECORD, RELIABILITY, PER_DOCUMENT, CHECKPOINT}


def open_run_folder(folder: Path) -> Config:
    """Configuration of an existing run; before its code is used, see `check_own_code`.

    Raises:
        CheckpointError: The folder is missing or not a run folder.
        ConfigError: Its configuration is broken.
    """
    if not folder.is_dir():
        raise CheckpointError(
            f"A run must be a folder that match-graph wrote, but there is none at '{folder}'; "
            f"check the path."
        )
    for name in (CONFIG, MANIFEST):
        if not (folder / name).is_file():
            raise CheckpointError(
                f"A run folder holds {name}, but '{folder}' has none; check the path, or start a "
                f"run with `match-graph run DATASET --out {shlex.quote(str(folder))}`."
            )
    must = "The settings of a run must stay as they were written"
    remedy = "restore it, or start the run again with --overwrite"
    with reading(folder / CONFIG, must, remedy, f"'{folder / CONFIG}' cannot be used"):
        summary = f"The settings in '{folder / CONFIG}' must be valid"
        return parse_settings(Config, read_settings(folder / CONFIG), summary)


def verify_run_folder(folder: Path) -> None:
    """Compares the SHA-256 of every file of a run, however large.

    Raises:
        CheckpointError: It is no run folder, or files are damaged or missing; names them all.
    """
    open_run_folder(folder)
    names = [name for name in read_manifest(folder) if _is_required(folder, name)]
    found = {name: find_damage(folder, name, whole=True) for name in names}
    faults = [f"'{folder / name}': {damage}." for name, damage in found.items() if damage]
    if faults:
        raise CheckpointError(list_faults("The files of a run must be what was written", faults))


def compute_checksum(folder: Path) -> str:
    """Checksum of what predictions of a run depend on, by the SHA-256 that its manifest lists.

    Raises:
        CheckpointError: It is no run folder, or its manifest is damaged.
    """
    open_run_folder(folder)
    files = read_manifest(folder)
    used = {name: files[name] for name in sorted(files) if name.partition("/")[0] not in _RESULTS}
    return hashlib.sha256(json.dumps(used).encode()).hexdigest()


def _is_required(folder: Path, name: str) -> bool:
    """Whether a file is required; checkpoints may be deleted."""
    return CHECKPOINT not in name.split("/")[-3:-1] or os.path.lexists(folder / name)


@contextmanager
def in_use(folder: Path) -> Iterator[None]:
    """Locks a run folder against changes by other processes until the block or process ends.

    Reading needs no lock.

    Raises:
        CheckpointError: Another process changes it.
    """
    try:
        held = FileLock(folder / LOCK).acquire(timeout=0)
    except Timeout as error:
        process = (folder / LOCK).read_text(encoding="utf-8", errors="replace")[:20].strip()
        raise CheckpointError(
            f"One process at a time may change a run, but '{folder}' is in use by process "
            f"{process if process.isdecimal() else 'unknown'}; wait until it ends, or choose "
            f"another folder (out, --out)."
        ) from error
    with held:
        (folder / LOCK).write_text(f"{os.getpid()}\n", encoding="utf-8")
        yield


def check_own_code(folder: Path, config: Config, given: Mapping[str, str | None]) -> None:
    """Checks that a run's classes of a user's own are named by the caller too.

    A folder alone cannot make this process import code.

    Args:
        folder: Run folder.
        config: Configuration of the run.
        given: Names by the caller of what is used of "encoder", "head" and "dataset".

    Raises:
        CheckpointError: One is code of a user's own that the caller did not name.
    """
    names = {"encoder": config.model.encoder, "head": config.model.head, "dataset": config.dataset}
    for kind, found in given.items():
        name = names[kind] or ""
        is_code = names_code(name) if kind == "dataset" else is_own_code(name)
        if (found is not None or is_code) and locate_code(str(found or "")) != name:
            place = name.rpartition(":")[0]
            is_elsewhere = is_code and is_file_code(str(found or "")) and not is_file_code(name)
            how = f", in the folder of {place}.py or with it in PYTHONPATH" if is_elsewhere else ""
            raise CheckpointError(
                f"The run in '{folder}' was trained with the {kind} '{name}', and code is imported "
                f"only by request, found {kind}={found!r}; load it with {kind}='{name}' "
                f"(--{kind} in the shell){how}."
            )


def choose_code(
    folders: Sequence[str | Path], encoder: str | None, head: str | None
) -> list[tuple[str | None, str | None]]:
    """The caller's encoder and head for each of several runs, as far as it was trained with them.

    A name that is none of theirs is left to the first one, which is refused for it.
    """
    models = [open_run_folder(Path(folder)).model for folder in folders]
    chosen = []
    for name, kind in ((encoder, "encoder"), (head, "head")):
        is_own = [name is not None and locate_code(name) == getattr(one, kind) for one in models]
        is_own[:1] = [is_own[0] or not any(is_own)] if is_own else []
        chosen.append([name if own else None for own in is_own])
    return [*zip(*chosen, strict=True)]


def claim_run_folder(folder: Path, config: Config, overwrite: bool) -> None:
    """Makes a run folder, or checks that an existing one is of the same run, to resume it.

    Args:
        folder: Folder: new, empty, or a run folder.
        config: Resolved configuration.
        overwrite: Whether to delete an existing run folder; never one with other files in it.

    Raises:
        CheckpointError: The folder holds something else, a run with other settings, or one that
            another process changes.
    """
    if os.path.lexists(folder) and not folder.is_dir():
        raise CheckpointError(f"A run must be a folder, but '{folder}' is a file; choose another.")
    _check_ours(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with in_use(folder):
        _check_ours(folder)
        remove_leftovers(folder)
        if (folder / CONFIG).is_file() and not overwrite:
            there = open_run_folder(folder)
            if difference := find_difference(there, config):
                raise CheckpointError(
                    f"The run in '{folder}' has other settings ({difference}); "
                    f"{advise(there, config)}choose another folder (out, --out), or delete it "
                    f"(overwrite=True, --overwrite)."
                )
            return
        _clear(folder)
        write_manifest(folder, {})
        text = dump_yaml(config.model_dump(mode="json"), sort_keys=False)
        write_text(folder / CONFIG, text)


def _check_ours(folder: Path) -> None:
    """Checks that a folder is missing, empty, a run folder, or the beginning of one.

    Raises:
        CheckpointError: It holds other files.
    """
    there = {path.name for path in folder.glob("*") if not is_temporary(path)}
    others = sorted(there - RUN_FILES)
    if not others and (folder / CONFIG).is_file():
        return
    if not others and there <= {MANIFEST, LOCK} and MANIFEST in there:  # killed before CONFIG
        with suppress(OSError, ValueError):
            others = sorted(read_manifest(folder).keys() - {CONFIG})
            there = set(others)
    if there - {LOCK}:
        raise CheckpointError(
            f"A run must start in a new or empty folder, but '{folder}' holds other files"
            f"{' (' + ', '.join(others[:3]) + ')' if others else ''}; choose another folder."
        )


def _clear(folder: Path) -> None:
    """Deletes a run, its settings last, so that a partly deleted run still counts as one."""
    there = [path for path in folder.iterdir() if path.name not in (LOCK, MANIFEST, CONFIG)]
    for path in [*there, folder / MANIFEST, folder / CONFIG]:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def describe_work(config: Config) -> dict[str, Any]:
    """Settings that determine the result: all but how processes share the work."""
    return config.model_dump(exclude={"train": set(SHARING)})


def find_difference(there: Config, here: Config) -> str:
    """Up to three settings that differ between two runs, as a clause; empty if none does.

    What the caller chose comes before what follows from it: the encoder before its settings, these
    before what is derived from the corpus.
    """
    old, new = dict(flatten(describe_work(there))), dict(flatten(describe_work(here)))
    keys = [
        key for key in {**old, **new} if key not in old or key not in new or old[key] != new[key]
    ]
    if not keys and describe_work(there) != describe_work(here):
        return "some settings are empty in one of them"
    derived = {key for key, value in flatten(describe_work(Config())) if value is None}
    keys.sort(key=lambda key: (key in derived, "_config." in key, _ORDER.get(key, len(_ORDER))))
    shown = [f"{key} is {_show(old, key)} there and {_show(new, key)} here" for key in keys[:3]]
    return ", ".join(shown) + (f", and {len(keys) - 3} more" if len(keys) > 3 else "")


def advise(there: Config, here: Config) -> str:
    """First remedy, for a message, where two runs differ in precision alone; else empty.

    A precision of "auto" depends on processor and device.
    """
    precision = there.train.precision
    if find_difference(there, here.change("train", precision=precision)):
        return ""
    return f"go on with --set train.precision={precision}, or "


#: Settings from which others follow, in the order in which differences are shown.
_ORDER = {
    name: number for number, name in enumerate(("dataset", "model.encoder", "ablation", "seed"))
}


def _show(settings: Mapping[str, Any], key: str) -> str:
    return repr(settings[key]) if key in settings else "not set"


def flatten(content: dict[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Dotted keys with values of nested mappings."""
    flat: list[tuple[str, Any]] = []
    for key, value in content.items():
        if isinstance(value, dict):
            flat += flatten(value, f"{prefix}{key}.")
        else:
            flat.append((f"{prefix}{key}", value))
    return flat
