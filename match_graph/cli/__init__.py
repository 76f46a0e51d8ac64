"""One sub-command per stage: parse, call, print."""

from match_graph.cli import line, tools  # they register their commands
from match_graph.cli.app import app, main

__all__ = ["app", "line", "main", "tools"]
