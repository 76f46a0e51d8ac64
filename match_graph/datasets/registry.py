"""Data sets by name: what DATASET on the command line and in a run's configuration means."""

import inspect
from pathlib import Path
from typing import Any

from match_graph.datasets.dataset import CorpusDataset
from match_graph.datasets.debtags import DebTags
from match_graph.datasets.match_folder import MatchFolder
from match_graph.datasets.synthetic import Synthetic
from match_graph.errors import ConfigError, CorpusError

#: Registered data sets; any other name is a folder in the MATCH format.
DATASETS: dict[str, type[CorpusDataset]] = {"debtags": DebTags, "synthetic": Synthetic}


def open_dataset(name: str, **options: Any) -> CorpusDataset:
    """Opens a registered data set, or a folder in the MATCH format, building it if need be.

    Args:
        name: A registered name, else a path.
        **options: Arguments of the data set's class; None stands for the default.

    Raises:
        CorpusError: Nothing is there, or the files break their format.
        ConfigError: The class has no such option.
    """
    given = {key: value for key, value in options.items() if value is not None}
    cls: type[CorpusDataset] = DATASETS.get(name, MatchFolder)
    known = set(inspect.signature(cls).parameters) | set(
        inspect.signature(CorpusDataset).parameters
    )
    known -= {"name", "folder", "kwargs"}
    unknown = sorted(given.keys() - known)
    if unknown:
        raise ConfigError(
            f"The data set '{name}' has the options {sorted(known)}, "
            f"found {unknown}; remove or rename them."
        )
    if name in DATASETS:
        return cls(**given)
    if not Path(name).is_dir():
        raise CorpusError(
            f"A data set must be a folder in the MATCH format or one of {sorted(DATASETS)}, "
            f"but there is nothing of that kind at '{name}'; check the name."
        )
    return MatchFolder(folder=name, **given)
