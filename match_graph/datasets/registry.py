"""Registry of data sets by name; resolution of DATASET."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from match_graph.config import StrictModel, parse_settings
from match_graph.corpus import Faults
from match_graph.datasets.dataset import CorpusDataset
from match_graph.datasets.debtags import DebTags
from match_graph.datasets.maple import Maple
from match_graph.datasets.match_folder import MatchFolder
from match_graph.datasets.openalex import OpenAlex
from match_graph.datasets.pubmed_xml import PubMedXml
from match_graph.datasets.release import MagCs, PubMed
from match_graph.datasets.synthetic import Synthetic
from match_graph.datasets.table import Table
from match_graph.errors import CorpusError
from match_graph.io.source import is_folder, resolve_path

#: Registered data sets; any other name is a folder in the MATCH format.
DATASETS: dict[str, type[CorpusDataset]] = {
    "debtags": DebTags,
    "mag-cs": MagCs,
    "maple": Maple,
    "openalex": OpenAlex,
    "pubmed": PubMed,
    "pubmed-xml": PubMedXml,
    "synthetic": Synthetic,
    "table": Table,
}


class _PygArguments(StrictModel):
    """Arguments that every class takes in Python and that are not settings."""

    root: str | Path | None = None
    transform: Callable[..., Any] | None = None
    pre_transform: Callable[..., Any] | None = None
    force_reload: bool = False
    track: Callable[..., Any] | None = None
    faults: Faults = "refuse"


def open_dataset(name: str, **options: Any) -> CorpusDataset:
    """Opens a registered data set, or a folder in the MATCH format, building it if need be.

    Args:
        name: Registered name, else the path of a folder.
        **options: Arguments of the data set's class, PyG's four (root, transform, pre_transform,
            force_reload), ``track`` and ``faults`` among them; None stands for the default.

    Raises:
        CorpusError: Nothing is there, or the files break their format.
        ConfigError: With every option that the class does not have, or not with such a value.
    """
    given = {key: value for key, value in options.items() if value is not None}
    if name not in DATASETS and not is_folder(name):
        raise CorpusError(
            f"A data set must be a folder in the MATCH format or one of {sorted(DATASETS)}, "
            f"but there is nothing of that kind at '{name}'; check the name."
        )
    cls: type[CorpusDataset] = DATASETS.get(name, MatchFolder)
    of_pyg = {key: value for key, value in given.items() if key in _PygArguments.model_fields}
    parse_settings(_PygArguments, of_pyg, f"The arguments of {cls.__name__} must be valid")
    cls.check_options({key: value for key, value in given.items() if key not in of_pyg})
    return cls(**given) if name in DATASETS else MatchFolder(folder=name, **given)


def resolve_paths(name: str, options: dict[str, Any]) -> dict[str, Any]:
    """Options of a data set with absolute paths, valid in any working folder."""
    keys = DATASETS[name].path_options if name in DATASETS else ()
    absolute = {key: str(resolve_path(options[key])) for key in keys if options.get(key)}
    return {**options, **absolute}
