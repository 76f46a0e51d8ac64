"""Trials of a search: a row trained with sampled settings, measured on validation, or pruned."""

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from match_graph.benchmark.cell import open_cell
from match_graph.benchmark.plan import PlannedCell
from match_graph.benchmark.process import Work
from match_graph.runs.record import find_git_hash
from match_graph.training.loop import MONITOR, Watch

if TYPE_CHECKING:
    from optuna import Study, Trial
    from optuna.storages import JournalStorage
    from optuna.trial import FrozenTrial

#: Attributes of a trial: seconds of the process that ended it, commit of the code, and data set
#: on which it was pruned.
SECONDS, COMMIT, PRUNED_ON = "seconds", "commit", "pruned_on"
#: Offset between the steps of two data sets, larger than any number of epochs.
_EPOCHS = 10**6
#: Complete trials before others are pruned.
_WHOLE_TRIALS = 4


@dataclass(frozen=True)
class TrialWork(Work):
    """Work order of a process that runs a trial.

    Args:
        cells: A cell for each data set, the first of which is ``cell``.
        sources: For each of them, the run folder to take pre-trained vectors from, or None.
        journal: File of the search's trials.
        row: Name of the row.
        trial_id: Number of the trial in the journal.
        measure: Measure on valid.
    """

    cells: tuple[PlannedCell, ...]
    sources: tuple[Path | None, ...]
    journal: Path
    row: str
    trial_id: int
    measure: str


def open_study(journal: Path, row: str) -> "Study":
    """Study of a row in the journal of a search, with its trials so far."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna.create_study(
        storage=_open_journal(journal),
        study_name=row,
        direction="maximize",
        load_if_exists=True,
        sampler=optuna.samplers.RandomSampler(),  # until `RowSearch.ask` sets its own
    )


def list_studies(journal: Path) -> list[str]:
    """Rows with trials in the journal of a search."""
    from optuna.study import get_all_study_names

    return get_all_study_names(_open_journal(journal))


def _open_journal(journal: Path) -> "JournalStorage":
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    return JournalStorage(JournalFileBackend(str(journal)))


def run_trial(work: Work) -> None:
    """Runs a trial on all its data sets, resumed if need be, and writes its end to the journal.

    Its value is the mean over the data sets of the measure on valid. Test is never read. On each
    data set a trial is pruned if its best epoch so far is behind the median of complete trials at
    the same epoch, by `MONITOR` of the network before its blend; after a third of the epochs
    (earlier, a low learning rate would be taken for a bad one) and before the last one.
    Source: the median rule of Golovin et al., "Google Vizier", KDD 2017,
    https://doi.org/10.1145/3097983.3098043, by Optuna.
    """
    import optuna

    assert isinstance(work, TrialWork)
    study = open_study(work.journal, work.row)
    study.pruner = optuna.pruners.MedianPruner(_WHOLE_TRIALS)
    trial, start = optuna.trial.Trial(study, work.trial_id), time.monotonic()
    try:
        values = []
        for place, (cell, vectors) in enumerate(zip(work.cells, work.sources, strict=True)):
            run = open_cell(work, cell, vectors)
            if not run.is_finished:
                epochs = cell.config.train.epochs or 1
                run.train(watch_trial(study, trial, place, epochs))
                run.evaluate(with_test=False)
            values.append(run.read_metrics()["valid"][work.measure])
        state, value = optuna.trial.TrialState.COMPLETE, fmean(values)
    except optuna.TrialPruned:
        state, value = optuna.trial.TrialState.PRUNED, None
        trial.set_user_attr(PRUNED_ON, cell.dataset)
    trial.set_user_attr(COMMIT, find_git_hash() or "")
    trial.set_user_attr(SECONDS, time.monotonic() - start)
    study.tell(trial, value, state)


def watch_trial(study: "Study", trial: "Trial", place: int, epochs: int) -> Watch:
    """Makes a function that reports each epoch to the journal, and prunes the trial if need be.

    Args:
        study: Study of the row.
        trial: Trial that the measures of epochs are reported to.
        place: Number of the data set. It is added to the measure, which is at most 1: the pruner
            compares the best value of all steps, which may be that of an earlier data set.
        epochs: Number of epochs of the training.
    """
    import optuna

    reported = study.trials[trial.number].intermediate_values

    def watch(row: Mapping[str, float]) -> None:
        step = place * _EPOCHS + int(row["epoch"])
        if step not in reported:  # by the process that was killed
            trial.report(place + row[MONITOR], step)
        if math.ceil(epochs / 3) <= row["epoch"] < epochs and trial.should_prune():
            raise optuna.TrialPruned

    return watch


def read_pruned(trial: "FrozenTrial") -> float | None:
    """`MONITOR` in the last epoch of a pruned trial; None for others."""
    if trial.value is None or trial.state.name != "PRUNED":
        return None
    return trial.value - (trial.last_step or 0) // _EPOCHS
