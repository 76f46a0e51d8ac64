"""A process that runs cases of the fuzzer in forked children, each limited in time and memory.

It imports match-graph once, then reads one request a line (JSON) and answers with one line: so a
case costs a fork and not an import.
"""

import contextlib
import json
import os
import resource
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: Limits of a case: seconds of wall time on one core, and bytes of resident memory.
SECONDS, BYTES = 20.0, 2 << 30
_POLL = 0.005  # seconds between two looks at a child
_PAGE = resource.getpagesize()


@dataclass(frozen=True)
class Ended:
    """How a case ended.

    Args:
        code: Exit code; minus the signal where one ended it.
        limit: "time" or "memory" where a limit ended it, else empty.
        seconds: Wall time.
        peak: Bytes of resident memory, as seen from outside.
        output: What it printed on standard output.
        error: On standard error.
    """

    code: int
    limit: str
    seconds: float
    peak: int
    output: str
    error: str


class Worker:
    """The process, started on first use and again after it was lost."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def run(self, arguments: Sequence[object], folder: Path, call: str = "main") -> Ended:
        """Runs the command line in a child.

        Args:
            arguments: Behind ``match-graph``.
            folder: Working folder; holds what is printed.
            call: Name of a function of `targets` to be called in place of the command line.
        """
        process = self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        request = {"arguments": [*map(str, arguments)], "folder": str(folder), "call": call}
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
        answer = process.stdout.readline()
        if not answer:
            self.stop()
            raise RuntimeError("the worker of the fuzzer ended by itself")
        printed = {
            name: (folder / f"{name}.printed").read_text("utf-8", errors="surrogateescape")
            for name in ("output", "error")
        }
        return Ended(**json.loads(answer), **printed)

    def _start(self) -> subprocess.Popen[str]:
        if self._process is None or self._process.poll() is not None:
            tests = Path(__file__).parents[1]
            paths = [str(tests.parent), str(tests), os.environ.get("PYTHONPATH", "")]
            environment = {
                **os.environ,
                "PYTHONPATH": os.pathsep.join(paths),
                "OMP_NUM_THREADS": "1",  # a forked child has no threads of its parent's pool
                "COLUMNS": "80",
            }
            self._process = subprocess.Popen(
                [sys.executable, "-W", "ignore", "-m", "fuzz.worker"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
            )  # fmt: skip
        return self._process

    def stop(self) -> None:
        """Ends the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                with contextlib.suppress(OSError):
                    pipe.close()  # type: ignore[union-attr]
            self._process = None


def _serve() -> None:
    from fuzz import targets

    for module in targets.PRELOAD:
        with contextlib.suppress(ImportError):
            __import__(module)
    for line in sys.stdin:
        request: Mapping[str, Any] = json.loads(line)
        child = os.fork()
        if not child:
            _run_case(request, targets.CALLS[request["call"]])
        answer = _watch(child)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def _run_case(request: Mapping[str, Any], call: Callable[[list[str]], None]) -> None:
    """The child: ends with the exit code that the program would have."""

    code = 70
    try:
        os.setsid()
        folder = Path(request["folder"])
        os.chdir(folder)
        for number, name in ((0, os.devnull), (1, "output.printed"), (2, "error.printed")):
            flags = os.O_RDONLY if not number else os.O_WRONLY | os.O_CREAT | os.O_TRUNC
            os.dup2(os.open(name, flags, 0o666), number)
        sys.stdin, sys.stdout, sys.stderr = (
            os.fdopen(0, closefd=False),
            os.fdopen(1, "w", encoding="utf-8", errors="surrogateescape", closefd=False),
            os.fdopen(2, "w", encoding="utf-8", errors="surrogateescape", closefd=False),
        )
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.environ["MATCH_GRAPH_HOME"] = str(folder / "home")
        try:
            call(request["arguments"])
            code = 0
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        except BaseException:
            sys.excepthook(*sys.exc_info())
            code = 1
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code & 0xFF)


def _watch(child: int) -> dict[str, Any]:
    """Waits for a child, and ends it and its processes where it takes too much."""
    start, peak, limit = time.monotonic(), 0, ""
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            break
        with contextlib.suppress(OSError, ValueError, IndexError):
            pages = Path(f"/proc/{child}/statm").read_text("ascii").split()[1]
            peak = max(peak, int(pages) * _PAGE)
        if not limit and time.monotonic() - start > SECONDS:
            limit = "time"
        if not limit and peak > BYTES:
            limit = "memory"
        if limit:
            with contextlib.suppress(OSError):
                os.killpg(child, signal.SIGKILL)
            with contextlib.suppress(OSError):
                os.kill(child, signal.SIGKILL)
        select.select([], [], [], _POLL)
    with contextlib.suppress(OSError):
        os.killpg(child, signal.SIGKILL)  # what the child started and left behind
    code = os.waitstatus_to_exitcode(status)
    return {"code": code, "limit": limit, "seconds": time.monotonic() - start, "peak": peak}


if __name__ == "__main__":
    _serve()
