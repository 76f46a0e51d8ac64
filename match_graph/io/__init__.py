"""Files and folders: written beside and renamed, checked, and read within limits."""

from match_graph.io.progress import Reporter

__all__ = ["Reporter"]
