"""Experiments read from YAML: found by name or path, with every fault of their settings."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from match_graph.benchmark.experiment import (
    EXPERIMENT_FORMAT,
    Experiment,
    PlannedRow,
    find_source_type,
)
from match_graph.benchmark.space import spread_sections
from match_graph.config import Config, load_config, parse_settings, read_given
from match_graph.datasets.registry import DATASETS, find_dataset, names_code
from match_graph.errors import ConfigError, Fault, find_faults, list_faults, suggest
from match_graph.io.names import read_path
from match_graph.io.yaml import parse_given, read_mapping
from match_graph.own_code import check_code, name_code
from match_graph.runs.configure import read_preset_settings
from match_graph.runs.folder import flatten
from match_graph.training.models import find_model
from match_graph.training.setting_faults import find_setting_faults

PACKAGE = Path(__file__).parents[1]
#: Largest number of rows that a message names.
_NAMED = 3


def list_experiments() -> dict[str, Path]:
    """Shipped experiments by name: inside an installed package, beside that of a checkout."""
    folder = next(one for one in (PACKAGE, PACKAGE.parent) if (one / "experiments").is_dir())
    return {path.stem: path for path in sorted((folder / "experiments").glob("*.yaml"))}


def find_experiment(name: str | Path) -> Path:
    """File of an experiment.

    Args:
        name: Path of a YAML file, or the name of a shipped experiment.

    Raises:
        ConfigError: There is neither.
    """
    path, shipped = read_path(name, "An experiment"), list_experiments()
    if path.is_file():
        return path
    if str(name) in shipped:
        return shipped[str(name)]
    if not path.exists():
        raise ConfigError(
            f"An experiment must be a YAML file or one of {[*shipped]}, but there is no "
            f"'{name}'; {suggest(path.stem, shipped)}."
        )
    return path


def load_experiment(
    path: str | Path,
    datasets: Iterable[str] | None = None,
    runs: int | None = None,
    seed: int | None = None,
    settings: Iterable[str] | None = None,
    code: Collection[str] = (),
) -> Experiment:
    """Loads the experiment of a YAML file, overridden by the command line.

    Args:
        path: Path of the YAML file, or the name of an experiment of the package.
        datasets: Data sets instead of the file's.
        runs: Seeds per row instead of the file's.
        seed: First seed instead of the file's.
        settings: Settings as ``key=value``, above all others.
        code: Encoders, heads and data sets of one's own (``module:Class``, ``file.py:Class``) that
            the file may name; others are refused, as a file alone imports no code.

    Raises:
        ConfigError: With every fault and its path.
    """
    path = find_experiment(path)
    example = f"'{list_experiments()['comparison']}'"
    content = read_mapping(path, "An experiment", EXPERIMENT_FORMAT, example)
    if isinstance(datasets, str):
        raise ConfigError(f"datasets must be a list of names, found {datasets!r:.60}.")
    named = list(datasets or [])
    given = {"datasets": named or None, "runs": runs, "seed": seed}
    content |= {key: value for key, value in given.items() if value is not None}
    content.setdefault("name", path.stem)
    if isinstance(overrides := content.setdefault("overrides", {}), dict):
        given = dict(parse_given(settings))
        with suppress(ValueError):  # which the experiment says
            overrides, given = spread_sections(overrides), spread_sections(given)
        content["overrides"] = {**overrides, **given}
    summary = f"The experiment '{path}' must be valid"
    experiment = parse_settings(Experiment, content, summary)
    check_experiment_code(experiment, [*code, *named], f"The experiment '{path}'")
    if faults := find_experiment_faults(experiment):
        raise ConfigError(list_faults(summary, faults))
    return experiment


def check_experiment_code(experiment: Experiment, code: Collection[str], where: str) -> None:
    """Checks that the caller has named all custom code that an experiment names.

    Args:
        experiment: Experiment; none of its code is imported.
        code: Encoders, heads and data sets that the caller has named.
        where: Name of the experiment in the message.

    Raises:
        ConfigError: A row or a data set names other code.
    """
    names: list[tuple[str, object]] = []
    for row in experiment.expand(["x"]):
        try:
            names += name_code(read_given(None, experiment.list_settings(row, 0))).items()
        except ConfigError:
            continue  # a setting that cannot be read is a fault of the row, which imports nothing
    names += [("dataset", one) for one in experiment.datasets if names_code(one)]
    check_code(names, code, where, "--{kind} ")


def find_experiment_faults(experiment: Experiment) -> list[str]:
    """Sentences about invalid settings of an experiment's rows, each fault once.

    A fault that several rows share is one sentence, which names them unless all rows have it.

    Args:
        experiment: Experiment; the code that it names is imported.
    """
    rows = experiment.expand(["x"])
    found: dict[tuple[str, str], dict[str, str]] = {}  # path or text -> text by row
    for row in rows:
        own = [key for layer in row.layers for key, _ in flatten(layer)]
        for fault in _find_row_faults(experiment, row):
            is_own = not fault.path or any(
                f"{key}.".startswith(f"{fault.path}.") or f"{fault.path}.".startswith(f"{key}.")
                for key in own
            )
            same = found.setdefault(("", fault.text) if is_own else (fault.path, ""), {})
            same[row.name] = fault.text
    return [
        *_find_unused_overrides(experiment, rows),
        *(_describe(texts, len(rows)) for texts in found.values()),
    ]


def _describe(texts: Mapping[str, str], num_rows: int) -> str:
    """One sentence on a fault of several rows, by their names."""
    near = (text for text in texts.values() if "the nearest is" in text)
    text = " ".join(next(near, next(iter(texts.values()))).split())
    if len(texts) == num_rows > 1:
        return text
    names = [*texts][:_NAMED]
    more = f" and {len(texts) - len(names)} more" if len(texts) > len(names) else ""
    return f"'rows', {', '.join(names)}{more}: {text}"


def _find_row_faults(experiment: Experiment, row: PlannedRow) -> list[Fault]:
    """Faults of the settings of a row, each once."""
    faults: list[Fault] = []
    try:
        content = read_given(None, experiment.list_settings(row, 0))
    except ConfigError as error:
        return [Fault("", str(error))]
    try:
        content = read_preset_settings(None, experiment.list_settings(row, 0), row.preset)
    except ConfigError as error:
        faults.append(Fault("", str(error)))
    try:
        faults += find_setting_faults(content)
        if not faults and not find_model(Config.model_validate(content)).is_neural:
            find_model(load_config(None, experiment.list_own_settings(row))).check_used()
    except ConfigError as error:
        faults.append(Fault("", str(error)))
    return list(dict.fromkeys([*faults, *_find_option_faults(experiment.datasets, content)]))


def _find_option_faults(datasets: Sequence[str], content: Mapping[str, Any]) -> list[Fault]:
    """Faults of ``data.options`` by the registered data sets that they are given to."""
    data = content.get("data")
    options = data.get("options") if isinstance(data, dict) else None
    if not isinstance(options, dict):
        return []
    faults = []
    for name in datasets:
        if name in DATASETS:
            prefix, owner = "data.options.", f"the data set '{name}'"
            found = find_faults(find_dataset(name).Config, options, prefix, owner)
            given = tuple(f"{prefix}{key}" for key in options)
            faults += [fault for fault in found if fault.path.startswith(given)]
    return faults


def _find_unused_overrides(experiment: Experiment, rows: Sequence[PlannedRow]) -> list[str]:
    """Sentences about overrides of features that no row has."""
    types: set[str] = set()
    for row in rows:
        with suppress(ConfigError):  # a fault of the row
            types.update(experiment.list_featured(row))
    return [
        f"'overrides': '{key}' changes features that rows have, but no row has any of "
        f"'{found}'; set data.features.{found} to give them to all rows."
        for key in experiment.overrides
        if (found := find_source_type(key)) is not None and found not in types
    ]
