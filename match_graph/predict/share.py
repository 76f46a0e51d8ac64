"""Shared folders: what prediction needs of a run, with a model card, without paths of a machine."""

import json
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from match_graph.config import Config, FeatureSource, parse_settings
from match_graph.errors import CheckpointError
from match_graph.io.beside import beside, finish, put_in_place
from match_graph.io.files import reading
from match_graph.io.manifest import (
    MANIFEST,
    States,
    compute_digest,
    read_manifest,
    write_manifest,
)
from match_graph.io.names import read_path
from match_graph.io.run_folder import (
    BLEND,
    CALIBRATION,
    CONFIG,
    DOCUMENT_NAMES,
    ENCODER_FILES,
    FEATURES,
    FITTED,
    GRAPH,
    MODEL,
    THRESHOLDS,
    TOKENS,
)
from match_graph.io.yaml import dump_yaml
from match_graph.own_code import is_file_code, locate_code, shorten_code
from match_graph.predict.model_card import CARD, check_license, render_card
from match_graph.runs.folder import check_own_code, open_run_folder
from match_graph.runs.inputs import check_code_unchanged
from match_graph.runs.readers import check_evaluated
from match_graph.typing import DOCUMENT

#: What predictions read besides the settings, at the top of a run folder.
_COPIED = {MODEL, FITTED, ENCODER_FILES, BLEND, CALIBRATION, THRESHOLDS, TOKENS, FEATURES, GRAPH}
#: Absolute paths in a sentence: in quotes, where they may hold blanks, or by themselves.
_TOLD_PATH = re.compile(r"(?<=')/[^'\n]+(?=')|(?<![\w./~:])/[^\s'\",;()/]+(?:/[^\s'\",;()/]+)+/?")
#: Everything at the top of a shared folder.
SHARED = {*_COPIED, CONFIG, CARD, MANIFEST}


def share_run(
    folder: str | Path,
    out: str | Path,
    license: str | None = None,  # noqa: A002 - as the hub calls it
    overwrite: bool = False,
) -> Path:
    """Writes what prediction needs of a run into one folder, with a model card.

    `load` reads it like the run itself. It holds no checkpoint, no log and no path of this machine;
    own code is named without its folder. Of the data it holds what predictions look up, which the
    card lists.

    Args:
        folder: Run folder, evaluated.
        out: Folder to make; appears when it is whole.
        license: Licence of the weights as the hub names it, such as "mit"; None is "unknown".
        overwrite: Whether to replace a shared folder; another one is never touched.

    Returns:
        The folder.

    Raises:
        CheckpointError: The run is not trained or not evaluated, or damaged; or there is something
            else at ``out``.
        ConfigError: The licence is no identifier.
    """
    folder = read_path(folder, "A run folder")
    out = Path(os.path.realpath(read_path(out, "A shared folder")))
    check_license(license)
    config = open_run_folder(folder)
    with reading(folder / CONFIG, "The manifest of a run must list its files", "restore it"):
        files = read_manifest(folder)
    must = "A run must be trained and evaluated to be shared, as its card says how good it is"
    check_evaluated(folder, config, must)
    config = remove_paths(config)
    _check_place(out, folder, overwrite)
    with beside(out) as place:
        place.mkdir()
        _copy_files(folder, files, place)
        text = dump_yaml(config.model_dump(mode="json"), sort_keys=False)
        (place / CONFIG).write_text(text, encoding="utf-8")
        write_manifest(place)  # of all but the card, which people edit
        card = render_card(folder, config, license, {path.name for path in place.iterdir()})
        (place / CARD).write_text(card, encoding="utf-8")
        finish(place)
        put_in_place(place, out)
    return out


def is_shared(folder: Path, with_hidden: bool = False) -> bool:
    """True if a folder holds the files of a shared run and no others, by their names.

    Args:
        folder: Folder.
        with_hidden: Whether there may be others with a dot before them, such as those of git.
    """
    names = {path.name for path in folder.glob("*")}
    there = {name for name in names if not (with_hidden and name.startswith("."))}
    return {CARD, CONFIG, MANIFEST} <= there <= SHARED


def open_settings(folder: Path, given: Mapping[str, str | None]) -> Config:
    """Settings of a run or shared folder, with the caller's own code, which is checked.

    Args:
        folder: Run or shared folder.
        given: Names by the caller of "encoder" and "head".

    Raises:
        CheckpointError: It is no such folder, or its own code is not named or has changed.
        ConfigError: Its configuration is broken, or its own code is not found or fails.
    """
    config = take_own_files(open_run_folder(folder), given)
    check_own_code(folder, config, given)
    check_code_unchanged(folder, config)
    return config


def take_own_files(config: Config, given: Mapping[str, str | None]) -> Config:
    """Settings in which the caller's own files replace those that a folder names without path.

    A shared folder names ``file.py:Class`` without a folder, a run perhaps ``file:Class``, a module
    that is found in some folders only; the caller's file has that name.

    Args:
        config: Settings of a run or shared folder.
        given: Names by the caller of "encoder" and "head".
    """
    named = {kind: getattr(config.model, kind) or "" for kind in given}
    taken = {
        kind: locate_code(name)
        for kind, name in given.items()
        if isinstance(name, str)
        and is_file_code(name)
        and named[kind] in {shorten_code(name), shorten_code(name).replace(".py:", ":")}
    }
    return config.change("model", **taken)


def remove_paths(config: Config) -> Config:
    """Settings with each absolute path cut to its last name.

    Features of documents from a language model in a folder become a file: no other machine can
    compute them.
    """
    source = config.data.features.get(DOCUMENT)
    if source is not None and source.model is not None and Path(source.model).is_absolute():
        features = {**config.data.features, DOCUMENT: FeatureSource(path=f"{DOCUMENT}.npy")}
        config = config.change("data", features=features)
    content = shorten_paths(config.model_dump(mode="json"))
    return parse_settings(Config, content, "The settings of a shared run must be valid")


def shorten_paths(value: Any) -> Any:
    """Plain values with each absolute path cut to its last name."""
    if isinstance(value, dict):
        return {key: shorten_paths(one) for key, one in value.items()}
    if isinstance(value, list):
        return [shorten_paths(one) for one in value]
    if not isinstance(value, str) or not Path(value).is_absolute():
        return value
    return shorten_code(value) if is_file_code(value) else Path(value).name


def shorten_told(text: str) -> str:
    """A sentence with each absolute path cut to its last name."""
    return _TOLD_PATH.sub(lambda found: Path(found[0]).name, text)


def _check_place(out: Path, folder: Path, overwrite: bool) -> None:
    if out.is_relative_to(folder.resolve()):
        raise CheckpointError(
            f"A shared folder must lie outside of its run, found '{out}' in '{folder}'; choose "
            f"another with --out."
        )
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    if not is_shared(out):
        raise CheckpointError(
            f"A run must be shared into a new or empty folder, but '{out}' holds something else; "
            f"choose another with --out."
        )
    if not overwrite:
        raise CheckpointError(
            f"A run must be shared into a new or empty folder, but '{out}' holds a shared run; "
            f"choose another with --out, or replace it with --overwrite."
        )


def _copy_files(folder: Path, files: dict[str, States], place: Path) -> None:
    """Copies what predictions read, and compares each copy with the manifest.

    Raises:
        CheckpointError: A file is missing or damaged.
    """
    by_id = f"{FEATURES}/{DOCUMENT}.npy" in files  # by which alone documents' names are read
    for name, states in files.items():
        if name.partition("/")[0] not in _COPIED or (name == DOCUMENT_NAMES and not by_id):
            continue
        if None in states and not (folder / name).is_file():
            continue
        must, found = "A run must have all of its files", f"'{folder / name}' cannot be used"
        with reading(folder / name, must, "train the run again", found):
            target = place / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(folder / name, target)
            if compute_digest(target) not in states:
                raise ValueError("it is not what was written, or changes just now")
        if name.startswith(f"{ENCODER_FILES}/") and target.suffix == ".json":
            _clean_json(target)


def _clean_json(path: Path) -> None:
    """Cuts paths in a JSON file of transformers, under keys of paths alone: tokens hold slashes."""
    content = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(content, dict):
        return
    named = {key: one for key, one in content.items() if "path" in key or "file" in key}
    short = shorten_paths(named)
    if short != named:
        text = json.dumps({**content, **short}, indent=2, ensure_ascii=False)
        path.write_text(f"{text}\n", encoding="utf-8")
