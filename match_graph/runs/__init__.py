"""Run folders: started, configured, pre-trained, trained, calibrated, evaluated; each resumes."""

from match_graph.runs.run import Run
from match_graph.runs.start import open_run, start_run

__all__ = ["Run", "open_run", "start_run"]
