"""Registry of data sets by name; resolution of DATASET; licence, size and state of each."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from match_graph.config import StrictModel, parse_settings
from match_graph.corpus import Faults
from match_graph.datasets.custom import Custom
from match_graph.datasets.dataset import CorpusDataset, default_root
from match_graph.datasets.debtags import DebTags
from match_graph.datasets.maple import Maple
from match_graph.datasets.match_folder import MatchFolder
from match_graph.datasets.openalex import OpenAlex
from match_graph.datasets.pubmed_xml import PubMedXml
from match_graph.datasets.release import MagCs, PubMed
from match_graph.datasets.synthetic import Synthetic
from match_graph.errors import CorpusError
from match_graph.io.source import is_folder, resolve_path

#: Registered data sets; any other name is a folder in the MATCH format.
DATASETS: dict[str, type[CorpusDataset]] = {
    "custom": Custom,
    "debtags": DebTags,
    "mag-cs": MagCs,
    "maple": Maple,
    "openalex": OpenAlex,
    "pubmed": PubMed,
    "pubmed-xml": PubMedXml,
    "synthetic": Synthetic,
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
    cls = DATASETS.get(name, MatchFolder)
    of_pyg = {key: value for key, value in given.items() if key in _PygArguments.model_fields}
    parse_settings(_PygArguments, of_pyg, f"The arguments of {cls.__name__} must be valid")
    return cls(**given) if name in DATASETS else MatchFolder(name, **given)


def resolve_paths(name: str, options: dict[str, Any]) -> dict[str, Any]:
    """Options of a data set with absolute paths, valid in any working folder."""
    keys = DATASETS[name].path_options if name in DATASETS else ()
    absolute = {key: str(resolve_path(options[key])) for key in keys if options.get(key)}
    return {**options, **absolute}


def list_datasets(root: str | Path | None = None) -> list[dict[str, str]]:
    """One row per registered data set.

    Args:
        root: Root folder of raw and built data; None takes `default_root`.

    Returns:
        For each its ``name``, ``licence``, ``size``, what it ``needs``, and its ``state``: "built"
        where it was built with any options, else "raw present" where its files lie below the root,
        else "needs nothing", "fetched when used" or "needs files".
    """
    root = default_root() if root is None else Path(root)
    built = _built_classes(root)
    rows = []
    for name, cls in sorted(DATASETS.items()):
        assert cls.card is not None, f"{cls.__name__} needs a card"
        card = cls.card._asdict() | {"name": name}
        rows.append({**card, "state": _find_state(cls, root, built)})
    return rows


def list_options(name: str) -> list[dict[str, str]]:
    """One row per option of a registered data set: its ``option``, ``default`` and ``meaning``.

    Raises:
        CorpusError: There is no such data set.
    """
    if name not in DATASETS:
        raise CorpusError(
            f"Options are listed of a data set by its name, one of {sorted(DATASETS)}, found "
            f"'{name}'; check the name."
        )
    return [
        {
            "option": option,
            "default": json.dumps(field.get_default(call_default_factory=True)),
            "meaning": str(field.description),
        }
        for option, field in sorted(DATASETS[name].Config.model_fields.items())
    ]


def _find_state(cls: type[CorpusDataset], root: Path, built: set[str]) -> str:
    assert cls.card is not None
    if cls.__qualname__ in built:
        return "built"
    if cls.has_raw(root):
        return "raw present"
    if cls.card.needs == "nothing":
        return "needs nothing"
    return "fetched when used" if cls.card.needs.startswith("fetched") else "needs files"


def _built_classes(root: Path) -> set[str]:
    """Data set classes of the whole builds below a root."""
    found = set()
    for path in (root / "built").glob("*/corpus.json"):
        try:
            found.add(str(json.loads(path.read_text(encoding="utf-8"))["source"]["class"]))
        except (OSError, ValueError, KeyError, TypeError):
            continue  # a build that cannot be read is no build; opening it says why
    return found
