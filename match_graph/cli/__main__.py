"""`python -m match_graph.cli`: the console script."""

from match_graph.cli import main

main()
