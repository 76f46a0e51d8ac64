"""Run folders: resumable pre-training, training, calibration and evaluation."""

from match_graph.runs.inputs import RunInputs
from match_graph.runs.run import Run
from match_graph.runs.start import open_run, start_run

__all__ = ["Run", "RunInputs", "open_run", "start_run"]
