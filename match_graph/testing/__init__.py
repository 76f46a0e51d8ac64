"""Helpers for tests, ours and users': a tiny data set in the MATCH format."""

from match_graph.testing.toy import toy_corpus, toy_documents, write_match_folder

__all__ = ["toy_corpus", "toy_documents", "write_match_folder"]
