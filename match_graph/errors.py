"""What match-graph raises on bad input.

Every message is one sentence or a short list: what must hold, what was found and where, what to do.
The command line prints it without a traceback and exits with code 1.

    MatchGraphError
    ├── CorpusError      a data set's files or tables
    ├── GraphError       a graph, a label hierarchy, or arguments that do not fit one
    ├── ConfigError      a configuration file, a `--set`, a name that is not registered
    ├── CheckpointError  a run folder, a checkpoint, saved vectors
    ├── ExportError      an export that cannot be carried out or verified
    └── ProcessError     processes that share a run and cannot meet, or lose each other
"""


class MatchGraphError(Exception):
    """Base class of every error that match-graph raises on purpose."""


class CorpusError(MatchGraphError):
    """A data set's files or tables break the format."""


class GraphError(MatchGraphError):
    """A graph or a label hierarchy breaks the schema, or arguments do not fit it."""


class ConfigError(MatchGraphError):
    """A setting is unknown, has the wrong type or an impossible value."""


class CheckpointError(MatchGraphError):
    """A run folder, checkpoint or vectors file is missing, broken, or of something else."""


class ExportError(MatchGraphError):
    """An export cannot be carried out, or its verification found a difference."""


class ProcessError(MatchGraphError):
    """One of the processes that share a run is missing or lost."""


def list_faults(summary: str, faults: list[str], limit: int = 20) -> str:
    """One message for all faults: the fault itself if single, else the summary and a list.

    Args:
        summary: What must hold, without a final full stop.
        faults: Each a sentence that names its place.
        limit: How many are written out; the rest are counted.
    """
    if len(faults) == 1:
        return f"{summary}: {faults[0]}"
    lines = [f"{summary}, but {len(faults)} faults were found:"]
    lines += [f"  {fault}" for fault in faults[:limit]]
    if len(faults) > limit:
        lines.append(f"  ... and {len(faults) - limit} more")
    return "\n".join(lines)
