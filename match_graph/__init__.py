"""match-graph."""

__version__ = "0.1.0"
