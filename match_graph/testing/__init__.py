"""Helpers for tests, ours and users': the contract of encoders, a tiny data set in MATCH format."""

from match_graph.testing.assert_encoder import assert_encoder
from match_graph.testing.toy import toy_corpus, toy_documents, write_match_folder

__all__ = ["assert_encoder", "toy_corpus", "toy_documents", "write_match_folder"]
