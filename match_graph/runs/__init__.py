"""Run folders: resumable pre-training, training, calibration and evaluation."""

from match_graph.runs.run import Run
from match_graph.runs.start import open_run, start_run

__all__ = ["Run", "open_run", "start_run"]
