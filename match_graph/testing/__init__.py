"""Test helpers, ours and users': the contract of encoders, tiny data sets as files."""

from match_graph.testing.assert_encoder import assert_encoder
from match_graph.testing.toy import (
    toy_corpus,
    toy_documents,
    write_match_folder,
    write_release_folder,
)

__all__ = [
    "assert_encoder",
    "toy_corpus",
    "toy_documents",
    "write_match_folder",
    "write_release_folder",
]
