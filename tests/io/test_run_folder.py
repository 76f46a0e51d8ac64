"""Names of a run folder's files."""

from match_graph import Run
from match_graph.io.manifest import MANIFEST
from match_graph.io.run_folder import CONTENT, LISTED, LOCK, RUN_FILES


def test_RUN_FILES_have_every_name_that_a_run_writes(trained_run: Run) -> None:
    """Every file that a run writes is listed, with a description unless it is internal."""
    there = {path.name for path in trained_run.folder.iterdir()}
    assert there <= RUN_FILES
    assert {name for name in there - {MANIFEST, LOCK} if not CONTENT[name]} <= {"checkpoint"}
    assert CONTENT.keys() > LISTED
