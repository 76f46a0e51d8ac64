"""Console script as `python -m match_graph.cli`."""

from match_graph.cli import main

main()
