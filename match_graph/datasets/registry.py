"""Registry of data sets: opening by name, folder, class or object; licence, size and state."""

import json
from collections.abc import Callable
from pathlib import Path
from shlex import quote
from typing import Any, TypeAlias

from pydantic.fields import FieldInfo
from torch_geometric.data import HeteroData

from match_graph.config import StrictModel, parse_settings
from match_graph.corpus import Corpus, Faults
from match_graph.datasets.biotools import BioTools
from match_graph.datasets.built import default_root, is_built
from match_graph.datasets.cacm import Cacm
from match_graph.datasets.custom import Custom
from match_graph.datasets.dataset import CorpusDataset
from match_graph.datasets.debtags import DebTags
from match_graph.datasets.hetero import from_hetero
from match_graph.datasets.maple import Maple
from match_graph.datasets.match_folder import MatchFolder
from match_graph.datasets.memory import BuiltFolder, CorpusInMemory
from match_graph.datasets.oaxmlc import OaMed, OaXmlc
from match_graph.datasets.openalex import OpenAlex
from match_graph.datasets.pubmed_xml import PubMedXml
from match_graph.datasets.release import MagCs, PubMed
from match_graph.datasets.synthetic import Synthetic
from match_graph.errors import ConfigError, CorpusError, suggest
from match_graph.io.cluster import Cluster
from match_graph.io.source import Track, is_folder, is_there, resolve_path
from match_graph.own_code import find_class, is_own_code, locate_code

#: Sources that `open_dataset` accepts.
Source: TypeAlias = str | Path | Corpus | HeteroData | CorpusDataset

#: Registered data sets; any other name is a folder, or a class of one's own.
DATASETS: dict[str, type[CorpusDataset]] = {
    "biotools": BioTools,
    "cacm": Cacm,
    "custom": Custom,
    "debtags": DebTags,
    "mag-cs": MagCs,
    "maple": Maple,
    "oamed": OaMed,
    "oaxmlc": OaXmlc,
    "openalex": OpenAlex,
    "pubmed": PubMed,
    "pubmed-xml": PubMedXml,
    "synthetic": Synthetic,
}


class _PygArguments(StrictModel):
    """Arguments of every data set class that are no settings."""

    root: str | Path | None = None
    transform: Callable[..., Any] | None = None
    pre_transform: Callable[..., Any] | None = None
    force_reload: bool = False
    track: Callable[..., Any] | None = None
    faults: Faults = "refuse"
    cluster: Cluster | None = None


def open_dataset(source: Source, **options: Any) -> CorpusDataset:
    """Opens a data set, building it if need be.

    Args:
        source: A registered name; a folder in the MATCH format, or one that match-graph built; a
            class of one's own, ``module:Class`` or ``file.py:Class``, which is imported; or an
            object: a `Corpus`, a `HeteroData` as `from_hetero` reads it, a data set.
        **options: Arguments of the data set's class, PyG's four (root, transform, pre_transform,
            force_reload), ``track``, ``faults`` and ``cluster`` among them; None stands for the
            default. An object takes these alone. For a data set that is open, root, track and
            cluster are ignored, and others are refused.

    Raises:
        CorpusError: Nothing is there, the files break their format, or an object cannot be read.
        ConfigError: With every option that the class does not have, or not with such a value; or
            the code of one's own class fails.
    """
    given = {key: value for key, value in options.items() if value is not None}
    if isinstance(source, CorpusDataset):
        if more := sorted(given.keys() - {"root", "track", "cluster"}):
            raise ConfigError(
                f"A data set that is open takes no options, found {more}; give them to its class."
            )
        return source
    cls, arguments = _find_opener(source)
    of_pyg = {key: value for key, value in given.items() if key in _PygArguments.model_fields}
    parse_settings(_PygArguments, of_pyg, f"The arguments of {cls.__name__} must be valid")
    return cls(*arguments, **given)


def _find_opener(source: Source) -> tuple[type[CorpusDataset], tuple[Any, ...]]:
    """Class that opens a source, with its positional arguments."""
    if isinstance(source, HeteroData):
        return CorpusInMemory, (from_hetero(source),)
    if isinstance(source, Corpus):
        return CorpusInMemory, (source,)
    if not isinstance(source, str | Path):
        raise CorpusError(
            f"A data set must be a name, a folder, a class by name, a Corpus, a HeteroData or an "
            f"open data set, found {type(source).__name__}; from_frames, from_hetero and "
            f"from_networkx make a Corpus."
        )
    name = str(source)
    if name in DATASETS:
        return DATASETS[name], ()
    if is_folder(name):
        return (BuiltFolder if is_built(Path(name)) else MatchFolder), (name,)
    if names_code(name):
        return find_dataset(name), ()
    raise CorpusError(
        f"A data set must be one of {sorted(DATASETS)}, a folder, or a class of your own "
        f"(file.py:Class), but there is nothing of that kind at '{name}'; "
        f"{_suggest_custom(name) or suggest(name, DATASETS)}."
    )


def _suggest_custom(name: str) -> str:
    """Advice to open a CSV or JSON-lines file by the data set `custom`; "" for other names."""
    suffix = Path(name.lower().removesuffix(".gz")).suffix
    if suffix not in Custom.suffixes or not is_there(Path(name)):
        return ""
    kind = {".csv": "a CSV", ".tsv": "a TSV"}.get(suffix, "JSON lines")
    return f"for {kind}: match-graph run custom --set data.options.path={quote(name)}"


def find_dataset(name: str) -> type[CorpusDataset]:
    """Data set class of a registered name, or of ``module:Class`` or ``file.py:Class``.

    Raises:
        ConfigError: There is none, or its code fails.
    """
    return find_class(name, DATASETS, CorpusDataset, "data set")


def names_code(name: str) -> bool:
    """True if a name is that of a user's own class, to be imported (``module:Class``).

    Registered data sets and folders come first.
    """
    return is_own_code(name) and name not in DATASETS and not is_folder(name)


def name_source(source: Source, root: str | Path | None = None, track: Track | None = None) -> str:
    """Name by which other processes open a source: for an object, the folder of its build.

    Args:
        source: As for `open_dataset`.
        root: Root folder of built data; None takes `default_root`.
        track: Progress tracker.

    Raises:
        CorpusError: The object cannot be built, or has a ``transform``, which no file keeps.
    """
    if isinstance(source, str | Path):
        return str(source)
    dataset = open_dataset(source, root=root, track=track)
    if dataset.transform is not None:
        raise CorpusError(
            f"A run reads a data set as it is built, but '{dataset.name}' has a transform; make it "
            f"a pre_transform, or leave it out."
        )
    return str(resolve_path(dataset.built))


def locate_dataset(name: str) -> str:
    """Name of a data set that is valid in any working folder."""
    if name in DATASETS:
        return name
    return locate_code(name) if names_code(name) else str(resolve_path(name))


def resolve_paths(name: str, options: dict[str, Any]) -> dict[str, Any]:
    """Options of a data set with absolute paths, valid in any working folder."""
    has_options = name in DATASETS or names_code(name)
    keys = find_dataset(name).path_options if has_options else ()
    given = {key: options[key] for key in keys if isinstance(options.get(key), str | Path)}
    return {**options, **{key: str(resolve_path(path)) for key, path in given.items() if path}}


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
    """One row per option of a data set: its ``option``, ``default`` and ``meaning``.

    Args:
        name: Registered name, or a class of one's own, which is imported.

    Raises:
        CorpusError: There is no such data set.
        ConfigError: The code of one's own class is not found, or fails.
    """
    if name not in DATASETS and not names_code(name):
        raise CorpusError(
            f"Options are listed of a data set by its name, one of {sorted(DATASETS)}, found "
            f"'{name}'; {suggest(name, DATASETS)}."
        )
    return [
        {
            "option": option,
            "default": _show_default(field),
            "meaning": field.description or "",
        }
        for option, field in sorted(find_dataset(name).Config.model_fields.items())
    ]


def _show_default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    return json.dumps(field.get_default(call_default_factory=True), default=str)


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
    """Data set classes of the complete builds below a root."""
    found = set()
    for path in (root / "built").glob("*/corpus.json"):
        try:
            found.add(str(json.loads(path.read_text(encoding="utf-8"))["source"]["class"]))
        except (OSError, ValueError, KeyError, TypeError):
            continue  # a build that cannot be read is no build; opening it says why
    return found
