"""Registry of export targets by name."""

from match_graph.errors import ConfigError
from match_graph.export.match import MatchTarget
from match_graph.export.networkx import NetworkxTarget
from match_graph.export.ogb import OgbTarget
from match_graph.export.parquet import ParquetTarget
from match_graph.export.pyg import PygTarget
from match_graph.export.relbench import RelbenchTarget
from match_graph.export.target import Target

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
