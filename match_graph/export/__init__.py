"""Exports of a built data set to other libraries' formats; one target per file, each verified."""

from match_graph.export.folder import EXPORTS, export_dataset, find_target
from match_graph.export.inventory import Inventory, find_differences
from match_graph.export.match import MatchTarget
from match_graph.export.networkx import NetworkxTarget
from match_graph.export.ogb import OgbTarget
from match_graph.export.parquet import ParquetTarget
from match_graph.export.pyg import PygTarget
from match_graph.export.relbench import RelbenchTarget
from match_graph.export.source import ExportOptions, parse_options
from match_graph.export.target import Reading, Target

__all__ = [
    "EXPORTS",
    "ExportOptions",
    "Inventory",
    "MatchTarget",
    "NetworkxTarget",
    "OgbTarget",
    "ParquetTarget",
    "PygTarget",
    "Reading",
    "RelbenchTarget",
    "Target",
    "export_dataset",
    "find_differences",
    "find_target",
    "parse_options",
]
