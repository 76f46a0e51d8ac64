"""Every kind of input with bytes and values changed: a clear refusal, or a right acceptance.

``MATCH_GRAPH_FUZZ=5000`` spreads so many cases over the kinds in place of a few of each, with other
changes each time (``--hypothesis-seed=N`` repeats them). ``MATCH_GRAPH_FUZZ_TABLE=FILE`` counts the
outcomes in a file.
"""

import contextlib
import json
import math
import os
import re
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from fuzz.mutations import Change, changes
from fuzz.targets import KINDS, Kind
from fuzz.worker import Ended, Worker
from hypothesis import HealthCheck, Phase, assume, given, settings, target

from match_graph.io.manifest import write_manifest

#: Cases in all; a few of each kind where nothing is said.
CASES = int(os.environ.get("MATCH_GRAPH_FUZZ", "0"))
EACH = math.ceil(CASES / len(KINDS)) if CASES else 3

pytestmark = pytest.mark.skipif(
    not (Path("/proc/self/statm").exists() and hasattr(os, "fork")),
    reason="cases are forked, and their memory is watched in /proc",
)


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    """The process that runs the cases of this module."""
    worker = Worker()
    yield worker
    worker.stop()


@pytest.fixture(scope="module")
def outcomes() -> Iterator[Counter[tuple[str, str]]]:
    """How many cases of each kind ended how; appended to the file that the environment names."""
    counted: Counter[tuple[str, str]] = Counter()
    yield counted
    if path := os.environ.get("MATCH_GRAPH_FUZZ_TABLE"):
        with Path(path).open("a", encoding="utf-8") as file:
            file.writelines(f"{kind}\t{how}\t{n}\n" for (kind, how), n in sorted(counted.items()))


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_changed_input_is_refused_clearly_or_accepted_rightly(
    worker: Worker,
    outcomes: Counter[tuple[str, str]],
    tmp_path_factory: pytest.TempPathFactory,
    name: str,
) -> None:
    """No traceback, hang, crash, excess of memory, half-written file, or silent damage."""
    kind, whole = KINDS[name], tmp_path_factory.mktemp("whole") / "case"
    whole.mkdir()
    kind.make(whole)
    arguments = [argument.replace("@whole", str(whole)) for argument in kind.arguments]
    copy = shutil.copytree(whole, whole.parent / "as it is")
    ended = worker.run(arguments, copy, kind.call)
    assert judge(kind, ended, copy, None) == "accepted", ended

    @settings(
        max_examples=EACH,
        derandomize=not CASES,
        phases=[Phase.explicit, Phase.generate] if CASES else [Phase.generate],
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=True,
    )
    @given(changes())
    def try_changes(made: list[Change]) -> None:
        assume(not (kind.is_stream and any(change.how == "fifo" for change in made)))
        with TemporaryDirectory(dir=whole.parent) as place:
            folder = Path(place) / "case"
            shutil.copytree(whole, folder, symlinks=True)
            files = sorted(
                path for one in kind.files for path in folder.glob(one) if path.is_file()
            )
            before = {path: path.read_bytes() for path in files}
            touched = [change.apply(files) for change in made]
            changed = [path for path in touched if not _is_same(path, before[path])]
            for listed in folder.glob(kind.relisted) if kind.relisted else ():
                with contextlib.suppress(OSError):
                    write_manifest(listed)
            written = {path: path.read_bytes() for path in _find_results(folder)}
            ended = worker.run(arguments, folder, kind.call)
            changed = [path for path in changed if not _is_same(path, before[path])]  # not rebuilt
            how = judge(kind, ended, folder, changed, written)
            outcomes[name, how.partition(":")[0]] += 1
            target(ended.seconds)
            assert how in ("accepted", "refused"), f"{how}\n{touched}\n{ended}"

    try_changes()


def judge(
    kind: Kind,
    ended: Ended,
    folder: Path,
    changed: list[Path] | None,
    written: Mapping[Path, bytes] | None = None,
) -> str:
    """ "accepted" or "refused" where that is right, else what is wrong.

    Args:
        kind: Of the input.
        ended: How the program ended.
        folder: In which it ran.
        changed: The files that are not what they were; None if nothing was changed.
        written: The results that were there before it ran.
    """
    if ended.limit:
        return f"{ended.limit}: {ended.seconds:.0f} s, {ended.peak >> 20} MiB"
    if ended.code < 0 or ended.code not in (0, 1):
        return f"crash: exit code {ended.code}"
    if "Traceback" in ended.error or "Traceback" in ended.output:
        return "traceback: " + ended.error.strip().rpartition("\n")[2][:200]
    if ended.code and not re.search(r"^Error: \S.*", ended.error, re.MULTILINE):
        return "no sentence: exit code 1 without one"
    if len(ended.error) > 20_000:
        return f"no sentence: {len(ended.error)} characters"
    if re.search(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]", ended.error + ended.output):
        return "escape: control characters reach the terminal"
    if left := [path.name for path in folder.rglob("*.tmp")]:
        return f"half-written: {left}"
    if ended.code:
        return "refused"
    if changed and kind.is_verified:
        return f"silent: {[path.name for path in changed]} changed without a word"
    before = written or {}
    new = [path for path in _find_results(folder) if path.read_bytes() != before.get(path)]
    return find_fault(new) or "accepted"


def find_fault(results: Sequence[Path]) -> str:
    """What is wrong with files of results; empty if nothing is."""

    def refuse(constant: str) -> float:
        raise ValueError(constant)

    for path in results:
        for line in (
            path.read_text("utf-8").splitlines()
            if path.suffix == ".jsonl"
            else [path.read_text("utf-8")]
        ):
            try:
                json.loads(line, parse_constant=refuse)
            except ValueError as error:
                return f"silent: {path.name} holds {error}"
    return ""


def _find_results(folder: Path) -> list[Path]:
    found = (*folder.glob("out.jsonl"), *folder.glob("run/metrics.json"))
    return [path for path in found if path.is_file()]


def _is_same(path: Path, before: bytes) -> bool:
    return path.is_file() and not path.is_symlink() and path.read_bytes() == before
