"""Searches of rows: their spaces, checked, and their trials, kept in a journal."""

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from match_graph.benchmark.experiment import EACH_FIELD, Experiment, PlannedRow
from match_graph.benchmark.plan import Plan, PlannedCell, describe_result, list_free
from match_graph.benchmark.runner import choose_rows
from match_graph.benchmark.space import (
    Space,
    draw_settings,
    find_defaults,
    list_ends,
    list_points,
    split_keys,
)
from match_graph.benchmark.trial import (
    COMMIT,
    PRUNED_ON,
    SECONDS,
    list_studies,
    open_study,
    read_pruned,
)
from match_graph.errors import CheckpointError, ConfigError, list_faults
from match_graph.features import identify_features
from match_graph.io.progress import Reporter
from match_graph.runs.inputs import hash_inputs
from match_graph.training.models import find_model

if TYPE_CHECKING:
    from optuna import Study
    from optuna.samplers import BaseSampler
    from optuna.trial import FrozenTrial

JOURNAL = "search.journal"
#: Attribute of a study: the settings and data that its trials have in common.
_IDENTITY = "identity"
#: Attempts to sample an untried point of a finite space before the first one is taken.
_DRAWS = 20


@dataclass
class RowSearch:
    """Search of a row.

    Args:
        row: Row with the settings that it has without the search.
        space: Search space.
        study: Trials of the row.
        planned: Cells of the trials, by their number.
    """

    row: PlannedRow
    space: Space
    study: "Study"
    planned: "dict[int, tuple[PlannedCell, ...]]" = field(default_factory=dict)

    @property
    def trials(self) -> "list[FrozenTrial]":
        """Trials so far, including running ones and excluding enqueued ones."""
        return [one for one in self.study.get_trials(deepcopy=False) if one.state.name != "WAITING"]

    def find_trial(self, number: int) -> "FrozenTrial":
        """Trial by its number."""
        return self.study.get_trials(deepcopy=False)[number]

    @property
    def best(self) -> "FrozenTrial | None":
        """Trial with the highest value; the first of equals, None before any is complete."""
        done = [one for one in self.trials if one.state.name == "COMPLETE"]
        return max(done, key=lambda one: one.value or 0.0, default=None)

    @property
    def seconds(self) -> float:
        """Seconds of all trials that have ended, without attempts that were killed."""
        return sum(one.user_attrs.get(SECONDS, 0.0) for one in self.trials)

    def count(self, state: str) -> int:
        """Number of trials in a state: COMPLETE, PRUNED, FAIL or RUNNING."""
        return sum(one.state.name == state for one in self.trials)

    def ask(self, sampler: "BaseSampler") -> int:
        """Number of a new trial; its point is untried, in a finite space while there is one.

        Args:
            sampler: New, seeded sampler, so that a killed search samples the same when resumed.
        """
        is_waiting = len(self.trials) < len(self.study.get_trials(deepcopy=False))
        if not is_waiting and (point := self._find_untried(sampler)) is not None:
            self.study.enqueue_trial(point)
        self.study.sampler = sampler
        trial = self.study.ask()
        draw_settings(self.space, trial)
        return trial.number

    def _find_untried(self, sampler: "BaseSampler") -> dict[str, Any] | None:
        """Untried point of a finite space, sampled in a copy of the study; None if none is left."""
        import optuna

        tried = [one.params for one in self.trials]
        first = next((point for point in list_points(self.space) if point not in tried), None)
        if first is None:
            return None
        beside = optuna.create_study(direction="maximize", sampler=sampler)
        beside.add_trials(self.trials)
        for _ in range(_DRAWS):
            trial = beside.ask()
            draw_settings(self.space, trial)
            if trial.params not in tried:
                return trial.params
        return first

    def find_settings(self, trial: "FrozenTrial") -> dict[str, Any]:
        """Settings of a trial by dotted key."""
        return {
            key: trial.params[keys]
            for keys in self.space
            if keys in trial.params
            for key in split_keys(keys)
        }


def open_searches(
    plan: Plan, out: Path, rows: Sequence[str] | None, reporter: Reporter
) -> list[RowSearch]:
    """Searches of the rows, with the trials of earlier calls; `begin` starts new ones.

    A row that does not fit a data set is left out; it is an error if it was asked for by name, or
    if no other one is left.
    """
    experiment, searches = plan.experiment, []
    spaces = dict(_find_spaces(experiment))
    names = [name for name in choose_rows(rows, plan) if name in spaces]
    if not names:
        raise ConfigError(
            f"A search must have a space: 'search.space' of all networks, or 'space' of a row, but "
            f"the experiment '{experiment.name}' has none for {rows or 'its rows'}; add one."
        )
    reasons = {cell.row: f"on {cell.dataset}: {cell.reason}" for cell in plan.refused}
    for name in (refused := [one for one in names if one in reasons]):
        if rows or len(refused) == len(names):
            raise ConfigError(
                f"A row that is searched must make sense for every data set, found '{name}' "
                f"{reasons[name]}"
            )
        reporter.warn(f"no search of '{name}' {reasons[name]}")
    for name in [one for one in names if one not in reasons]:
        row = _find_row(experiment, name)
        study = _open_study(out / JOURNAL, name)
        _check_same(study, _identify(plan, row, spaces[name]), out)
        searches.append(RowSearch(row, spaces[name], study))
    return searches


def begin(plan: Plan, search: RowSearch) -> None:
    """Records the identity of a search, and enqueues the row's own settings as its first trial."""
    row, study = search.row, search.study
    if _IDENTITY not in study.user_attrs:
        study.set_user_attr(_IDENTITY, _identify(plan, row, search.space))
    if not study.get_trials(deepcopy=False):
        cells = (plan.planners[record.name].plan_trial(record, row, "") for record in plan.datasets)
        configs = [cell.config.model_dump(mode="json") for cell in cells]
        study.enqueue_trial(find_defaults(search.space, configs))


def open_earlier(plan: Plan, out: Path, searches: Iterable[RowSearch]) -> list[RowSearch]:
    """Searches of other rows by earlier calls, to be written into the same table of trials.

    Raises:
        CheckpointError: Their settings or data differ, so that one table cannot hold both.
    """
    here = {search.row.name for search in searches}
    spaces, found = dict(_find_spaces(plan.experiment)), []
    for name in [one for one in list_studies(out / JOURNAL) if one not in here]:
        study = open_study(out / JOURNAL, name)
        if all(one.state.name == "WAITING" for one in study.get_trials(deepcopy=False)):
            continue
        if name not in spaces:
            raise CheckpointError(_describe_others(name, out))
        row = _find_row(plan.experiment, name)
        _check_same(study, _identify(plan, row, spaces[name]), out)
        found.append(RowSearch(row, spaces[name], study))
    return found


def _find_row(experiment: Experiment, name: str) -> PlannedRow:
    return next(one for one in experiment.expand([]) if one.name == name)


def _open_study(journal: Path, row: str) -> "Study":
    """Study of a row; an incomplete last line of the journal, as a full disk leaves, is cut off.

    Raises:
        CheckpointError: The journal cannot be read.
    """
    try:
        if journal.is_file() and not (content := journal.read_bytes()).endswith(b"\n"):
            os.truncate(journal, content.rfind(b"\n") + 1)
        study = open_study(journal, row)
        study.get_trials(deepcopy=False)
    except (ValueError, AssertionError, TypeError, KeyError) as error:
        raise CheckpointError(
            f"A search must have a journal as it writes it, but '{journal}' cannot be read "
            f"({type(error).__name__}); choose another folder with --out, or delete this one."
        ) from error
    return study


def _find_spaces(experiment: Experiment) -> Iterator[tuple[str, Space]]:
    """Searched rows with their space: their own, and that of all networks unless at a preset."""
    if experiment.grid:
        raise ConfigError(
            f"A search takes the place of a grid, but the experiment '{experiment.name}' has one "
            f"over {[*experiment.grid]}; move these to 'search.space'."
        )
    for row in experiment.expand([]):
        is_neural = find_model(experiment.configure(row, experiment.seed)).is_neural
        is_free = is_neural and row.preset is None
        space = {**(experiment.search.space if is_free else {}), **row.space}
        if space and row.base is None and EACH_FIELD not in row.name:
            yield row.name, space


def check_spaces(experiment: Experiment) -> None:
    """Checks that ends of ranges and all choices are valid settings, which nothing overrides.

    Raises:
        ConfigError: With every fault.
    """
    faults: list[str] = []
    rows = {row.name: row for row in experiment.expand([])}
    for name, space in _find_spaces(experiment):
        for keys, values in space.items():
            if fixed := [key for key in split_keys(keys) if experiment.is_overridden(key)]:
                faults.append(
                    f"'rows', {name}, '{keys}': '{fixed[0]}' is given by 'overrides' or --set, "
                    f"which all trials would take; leave it out there, or in the space."
                )
                continue
            for value in list_ends(values):
                row = change_row(rows[name], dict.fromkeys(split_keys(keys), value))
                try:
                    find_model(experiment.configure(row, experiment.seed))
                except ConfigError as error:
                    faults.append(f"'rows', {name}, '{keys}': {' '.join(str(error).split())}")
                    break
    if faults:
        raise ConfigError(list_faults("Every value of a space must be valid", faults))


def change_row(row: PlannedRow, settings: dict[str, Any]) -> PlannedRow:
    return row.model_copy(update={"settings": {**row.settings, **settings}})


def _identify(plan: Plan, row: PlannedRow, space: Space) -> str:
    """Settings, space and data that all trials of a row must have in common, as JSON."""
    experiment = plan.experiment
    cells = [cell for cell in plan.cells if cell.row.name == row.name]
    checksums = {cell.dataset: cell.checksum for cell in cells}  # with the row's own options
    features = {
        f"{cell.dataset}, {node_type}": identify_features(source, node_type, cell.checksum)
        for cell in cells
        for node_type, source in cell.config.data.features.items()
    }
    inputs = hash_inputs(experiment.configure(row, experiment.seed))
    left = list_free(experiment, row)
    resolved = {
        cell.dataset: describe_result(cell.config.model_dump(mode="json"), left) for cell in cells
    }
    content = {
        "row": row.model_dump(mode="json"),
        "resolved": resolved,
        "space": {key: str(values) for key, values in space.items()},
        "data": {
            record.name: [checksums.get(record.name, record.checksum), record.epochs]
            for record in plan.datasets
        },
        "settings": [experiment.settings, experiment.overrides, experiment.search.measure],
        "seed": experiment.seed,
        **({"features": features} if features else {}),
        **({"inputs": inputs} if inputs else {}),
    }
    return json.dumps(content, sort_keys=True, default=str)


def _check_same(study: "Study", identity: str, out: Path) -> None:
    if study.user_attrs.get(_IDENTITY, identity) != identity:
        raise CheckpointError(_describe_others(study.study_name, out))


def _describe_others(name: str, out: Path) -> str:
    return (
        f"A search must go on with the space, settings, defaults, data and seed that it began "
        f"with, but '{out}' has trials of '{name}' with others; choose another folder with --out, "
        f"or delete this one."
    )


def list_trials(searches: Iterable[RowSearch]) -> pd.DataFrame:
    """Table of all trials, with their settings.

    Complete trials have a value; pruned ones have the measure of their last epoch and the data set
    that they were pruned on.
    """
    rows = [
        {
            "row": search.row.name,
            "trial": trial.number,
            "state": trial.state.name.lower(),
            "value": trial.value if trial.state.name == "COMPLETE" else None,
            "pruned_at": read_pruned(trial),
            "pruned_on": trial.user_attrs.get(PRUNED_ON, ""),
            "epochs": len(trial.intermediate_values),
            "seconds": trial.user_attrs.get(SECONDS),
            "commit": trial.user_attrs.get(COMMIT, ""),
            "reason": trial.user_attrs.get("reason", ""),
            **search.find_settings(trial),
        }
        for search in searches
        for trial in search.trials
    ]
    return pd.DataFrame(rows).convert_dtypes()
