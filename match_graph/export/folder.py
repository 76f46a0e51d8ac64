"""Export of a data set: targets by name; written atomically, read back, verified, described."""

import copy
import fnmatch
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from torch import Tensor

from match_graph.config import Config
from match_graph.datasets import CorpusDataset
from match_graph.errors import ConfigError, ExportError, list_faults
from match_graph.export.description import DESCRIPTION, describe_export, sum_up
from match_graph.export.features import (
    collect_features,
    has_features,
    number_nodes,
    read_vectors,
    spread_vectors,
    train_vectors,
)
from match_graph.export.inventory import Inventory, find_differences
from match_graph.export.match import MatchTarget
from match_graph.export.networkx import NetworkxTarget
from match_graph.export.ogb import OgbTarget
from match_graph.export.parquet import ParquetTarget
from match_graph.export.pyg import PygTarget
from match_graph.export.relbench import RelbenchTarget
from match_graph.export.source import ExportOptions, Source, open_source
from match_graph.export.target import Reading, Target
from match_graph.graph import DropFields
from match_graph.io.beside import beside, finish, put_in_place
from match_graph.io.names import read_path
from match_graph.io.progress import Reporter
from match_graph.io.source import Advance
from match_graph.runs.configure import check_drop_fields

#: Registered targets.
EXPORTS: dict[str, type[Target]] = {
    "pyg": PygTarget,
    "ogb": OgbTarget,
    "relbench": RelbenchTarget,
    "networkx": NetworkxTarget,
    "parquet": ParquetTarget,
    "match": MatchTarget,
}


def find_target(name: str) -> Target:
    """Export target of a name.

    Raises:
        ConfigError: There is none.
    """
    if name not in EXPORTS:
        raise ConfigError(f"An export target must be one of {sorted(EXPORTS)}, found '{name}'.")
    return EXPORTS[name]()


def export_dataset(
    dataset: CorpusDataset,
    to: str,
    out: str | Path,
    options: ExportOptions | None = None,
    run: str | Path | None = None,
    config: Config | None = None,
    overwrite: bool = False,
    reporter: Reporter | None = None,
) -> Path:
    """Exports a built data set and verifies the result by reading it back.

    Args:
        dataset: Built data set.
        to: Name of a registered target.
        out: Folder to create, new or empty. It appears after all is written and verified.
        options: Export options; None takes the defaults.
        run: Run folder with the vectors for ``features="pretrained"``; None trains them.
        config: Configuration of that pre-training, ``data.features`` and ``data.drop_fields``; None
            takes the defaults.
        overwrite: Whether to replace an existing export; another folder is never touched.
        reporter: Progress reporter; None prints nothing.

    Returns:
        The folder.

    Raises:
        ConfigError: ``dataset`` is no open data set, there is no such target, it does not support
            an option, ``out`` is no path, or a field to leave out does not exist.
        ExportError: The target cannot hold the graph, the disk is full, or the export read back
            differs from the source. Nothing is left then.
    """
    if not isinstance(dataset, CorpusDataset):
        raise ConfigError(
            f"An export takes an open data set, found {type(dataset).__name__}; open it by "
            f"open_dataset first."
        )
    reporter = reporter or Reporter(quiet=True)
    target, out = find_target(to), Path(os.path.realpath(read_path(out, "An export")))
    config = config or Config()
    if config.data.drop_fields:
        check_drop_fields(config, dataset.graph)
        dataset = copy.copy(dataset)
        dataset.transform = DropFields(config.data.drop_fields)
    options = _resolve(to, target, options or ExportOptions(), run, dataset, config)
    _check_folder(out, overwrite)
    source = open_source(dataset, options)
    target.check(source)
    source = replace(source, features=_make_features(source, run, config, reporter))
    _write_whole(to, target, source, out, run, reporter)
    return out


def _write_whole(
    to: str, target: Target, source: Source, out: Path, run: str | Path | None, reporter: Reporter
) -> None:
    """Writes an export atomically, verified and described.

    Raises:
        ExportError: It cannot be written, or differs from the source; an old export stays.
    """
    made = [folder for folder in out.parents if not folder.exists()]  # the deepest first
    try:
        with beside(out) as place:
            place.mkdir()
            with reporter.track(f"export to {to}", source.num_items, "nodes and edges") as advance:
                target.write(replace(source, advance=_add_up(advance)), place, out)
            reporter.line("export: reads it back and compares")
            expected = target.expect(source)
            readings = _verify(to, target, source, expected, place)
            text = describe_export(to, target, source, expected, readings, run)
            (place / DESCRIPTION).write_text(text, encoding="utf-8")
            finish(place)
            put_in_place(place, out)
        reporter.line(f"export: verified {sum_up(source, expected, readings)}")
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else error
        raise ExportError(
            f"An export must be written whole, but '{out}' could not be ({reason})"
            f"; nothing new is left. Make room on the disk, or choose another --out."
        ) from error
    finally:
        for folder in () if out.exists() else made:
            with suppress(OSError):  # not empty: another program uses it
                folder.rmdir()


def _resolve(
    to: str,
    target: Target,
    options: ExportOptions,
    run: str | Path | None,
    dataset: CorpusDataset,
    config: Config,
) -> ExportOptions:
    """Fills in the target's defaults, and validates the options.

    Raises:
        ConfigError: The target does not support one of them.
    """
    text = options.text or target.texts[0]
    if options.text is None and text == "raw" and not dataset.keeps_texts:
        text = "words" if "words" in target.texts else "none"
    has_x = has_features(dataset, config)
    features = options.features or ("data" if has_x else "none")
    options = options.model_copy(update={"text": text, "features": features})
    allowed = {
        "features": target.features,
        "include_labels": target.include_labels,
        "text": target.texts,
    }
    faults = [
        f"--{name.replace('_', '-')} must be one of {list(values)} for the target '{to}', "
        f"found '{getattr(options, name)}'."
        for name, values in allowed.items()
        if getattr(options, name) not in values
    ]
    if options.features == "data" and not has_x:
        faults.append(
            f"--features data needs features, but '{dataset.name}' has none; set data.features."
        )
    if run is not None and options.features != "pretrained":
        faults.append(
            f"--run gives vectors for --features pretrained, found --features {options.features}."
        )
    leak = _find_label_leak(options.features, run, config)
    if options.include_labels == "none" and leak:
        faults.append(
            f"--include-labels none must leave out what gold labels teach, but {leak} have "
            f"learned from those of training documents; choose other --features, or "
            f"--include-labels train."
        )
    if faults:
        raise ConfigError(list_faults("The options of an export must fit its target", faults))
    return options


def _find_label_leak(features: str | None, run: str | Path | None, config: Config) -> str:
    """Features that were learned from gold labels, by name; empty without any."""
    if features == "pretrained" and run is not None:
        return "the vectors of a run"
    if features == "data" and any(one.neighbors for one in config.data.features.values()):
        return "features of predicted neighbours"
    return ""


def _check_folder(out: Path, overwrite: bool) -> None:
    """Checks that the folder of an export is new, empty, or to be overwritten.

    Raises:
        ExportError: It is not.
    """
    found = ""
    try:
        if out.is_dir():
            found = "holds something else" if any(out.iterdir()) else ""
            if (out / DESCRIPTION).is_file():
                found = "" if overwrite else "holds an export"
        elif os.path.lexists(out):  # a dangling link, too
            found = "is no folder"
    except OSError as error:
        found = f"cannot be read ({error.strerror})"
    if found:
        or_replace = ", or replace it with --overwrite" if found == "holds an export" else ""
        raise ExportError(
            f"An export must go into a new or empty folder, but '{out}' {found}; "
            f"choose another --out{or_replace}."
        )


def _make_features(
    source: Source, run: str | Path | None, config: Config, reporter: Reporter
) -> dict[str, Tensor]:
    if source.options.features == "none":
        return {}
    if source.options.features == "data":
        return collect_features(source.dataset, config, reporter)
    if source.options.features == "ids":
        return number_nodes(source.graph)
    if run is not None:
        vectors = read_vectors(Path(run), source.dataset)
    else:
        vectors = train_vectors(source.dataset, source.graph, config, reporter)
    return spread_vectors(source.graph, vectors)


def _add_up(advance: Advance) -> Callable[[int], None]:
    """Callback of increments for a progress callback of totals."""
    total = 0

    def add(number: int) -> None:
        nonlocal total
        total += number
        advance(total, "")

    return add


def _verify(
    to: str, target: Target, source: Source, expected: Inventory, folder: Path
) -> list[Reading]:
    """Reads an export back and compares it with its source.

    Raises:
        ExportError: With every difference.
    """
    readings = target.read(source, folder)
    for reading in readings:
        faults = [
            fault
            for key, fault in find_differences(expected, reading.inventory).items()
            if not any(fnmatch.fnmatchcase(key, pattern) for pattern in reading.left_out)
        ]
        if faults:
            raise ExportError(
                list_faults(
                    f"An export must hold what the data set '{source.dataset.name}' does, but "
                    f"reading it back ({reading.files}) found differences; this is a fault of "
                    f"the target '{to}', please report it",
                    faults,
                )
            )
    return readings
