"""Command line: one sub-command per stage, which parses, calls and prints."""

from match_graph.cli import experiments, line, lists, tools  # they register their commands
from match_graph.cli.app import main
from match_graph.cli.options import app

__all__ = ["app", "experiments", "line", "lists", "main", "tools"]
