"""Console script: version, errors as one sentence, exit codes."""

import gc
import os
import sys
from contextlib import suppress
from typing import Annotated

import typer

from match_graph import __version__
from match_graph.cli.options import app
from match_graph.errors import MatchGraphError
from match_graph.io.escape import escape_controls

#: Garbage collector's threshold of the oldest generation. With Python's 10, a seventh of the start
#: of a command goes to collections of what imports have made, which stays.
_OLDEST = 100


def echo(value: object) -> None:
    """Prints a line on standard output, control characters escaped."""
    typer.echo(escape_controls(str(value)))


@app.callback(invoke_without_command=True)
def _options(
    show_version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if show_version:
        echo(__version__)
        raise typer.Exit


def drop_output() -> None:
    """Discards buffered standard output: a full disk would refuse it again at exit."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def main() -> None:
    """Console script: errors of match-graph are one sentence and exit code 1."""
    gc.set_threshold(*gc.get_threshold()[:2], _OLDEST)
    try:
        try:
            app()
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()  # a full disk is reported here, not at exit
    except MatchGraphError as error:
        sys.stderr.write(f"Error: {escape_controls(str(error))}\n")
        sys.exit(1)
    except RuntimeError as error:
        if type(error).__name__ != "OutOfMemoryError":  # torch's, which is not imported for this
            raise
        sys.stderr.write(
            f"Error: A batch must fit the memory of the device, but it does not "
            f"({escape_controls(str(error)).partition('. ')[0]}); lower train.batch_size or "
            f"data.max_words, or choose another device.\n"
        )
        sys.exit(1)
    except OSError as error:
        which = (
            f"'{escape_controls(str(error.filename))}'"
            if error.filename is not None
            else "one of them"
        )
        reason = error.strerror or str(error)
        sys.stderr.write(
            f"Error: Files must be readable and writable, but {which} is not "
            f"({reason}); check the path, its permissions and the space on the disk.\n"
        )
        if error.filename is None:
            drop_output()
        sys.exit(1)
