"""Prediction and evaluation jobs: blocks of many files spread over processes."""

import hashlib
import json
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from itertools import islice
from pathlib import Path

import torch
from lightning_fabric import Fabric
from torch import Tensor

from match_graph.config import TrainConfig
from match_graph.errors import ConfigError, CorpusError, ProcessError, list_faults
from match_graph.io.cluster import Cluster, run_here
from match_graph.io.line_blocks import Block
from match_graph.io.progress import Reporter
from match_graph.predict.files import Input, find_inputs, read_documents
from match_graph.predict.result_folder import ResultFolder
from match_graph.predict.work import Task, Work, make_part
from match_graph.runs.vocabulary import READABLE
from match_graph.training.device import choose_device, make_fabric
from match_graph.training.heartbeat import shared
from match_graph.training.launch import is_by_torchrun
from match_graph.training.processes import gather, lead, sum_up

#: Documents whose keys are looked at before the work starts.
_FIRST = 1000


class Job:
    """Prediction or evaluation of many files into a folder.

    Args:
        work: Work on each block.
        sources: Files and folders of documents.
        target: Folder of the results.
        block_bytes: Size of blocks, as for `cut_file`.
        reporter: Progress reporter; None prints nothing.
        cluster: Cluster that works on the blocks; None is this process, or those of torchrun.

    Raises:
        ConfigError: There is a cluster, and torchrun started this process.
    """

    def __init__(
        self,
        work: Work,
        sources: Sequence[str | Path],
        target: Path,
        block_bytes: int,
        reporter: Reporter | None,
        cluster: Cluster | None = None,
    ) -> None:
        if cluster is not None and is_by_torchrun():
            raise ConfigError(
                "Files are shared by the workers of a cluster or by the processes of torchrun, "
                "found both; leave out --workers and --scheduler, or start without torchrun."
            )
        self.cluster = cluster
        self.work, self.reporter = work, reporter or Reporter(quiet=True)
        self.inputs = find_inputs(sources, block_bytes)
        self.folder = ResultFolder(target, {"run": work.run.checksum, **work.settings()})
        self._names = [work.name_result(one.name) for one in self.inputs]
        self.results = [target / name for name in self._names]
        self._by_input = [
            [Task(work, number, block, self._locate(one, block)) for block in one.blocks]
            for number, one in enumerate(self.inputs)
        ]
        self._left: Counter[int] = Counter()  # parts left by input, on the first process
        self._tasks = [task for tasks in self._by_input for task in tasks]

    def _locate(self, one: Input, block: Block) -> Path:
        return self.folder.locate_part(one.describe(), block.start, block.end)

    @shared
    def run(self, conclude: Callable[[], None], *further: str) -> None:
        """Writes the results that are not there yet; processes of torchrun all call this.

        A wrong document stops no other file: these are finished before the error is raised.

        Args:
            conclude: Called by the first process when all results are there.
            *further: Names of the results that ``conclude`` writes.

        Raises:
            CorpusError: Documents are wrong, or a file has changed; a line for each block.
            ExportError: The folder holds something else, or is in use.
            ProcessError: Processes do not see the same files, or one is lost.
        """
        device = self.work.run.device
        choose_device(device)
        fabric = make_fabric(TrainConfig.model_validate({"accelerator": device}))
        if not fabric.is_global_zero:
            self.reporter = Reporter(quiet=True)
        self._check_same(fabric)
        start = time.monotonic()
        with ExitStack() as stack:
            lead(fabric, lambda: stack.enter_context(self.folder.open([*self._names, *further])))
            is_missing = sum_up(fabric, self._find_missing(fabric)).bool().tolist()
            tasks = [one for one, missing in zip(self._tasks, is_missing, strict=True) if missing]
            self._make(tasks[fabric.global_rank :: fabric.world_size], fabric.world_size == 1)
            sum_up(fabric, torch.tensor(0))  # all are done
            lead(fabric, self._finish)
            lead(fabric, conclude)
        seconds = time.monotonic() - start
        size = sum(one.block.num_bytes for one in tasks) / 1e6
        self.reporter.line(
            f"{self.work.name}: {len(self.inputs):,} files, {size:,.1f} MB read in {seconds:.1f} s"
        )

    def _check_same(self, fabric: Fabric) -> None:
        plan = json.dumps([[one.describe() for one in self.inputs], self.folder.made_by])
        digest = hashlib.sha256(plan.encode()).digest()
        plans = gather(fabric, torch.tensor([*digest]))  # [num_processes, 32]
        if not bool((plans == plans[0]).all()):
            raise ProcessError(
                "All processes must get the same files and the same run, but they see others; give "
                "paths on a disk that the machines share."
            )

    def _find_missing(self, fabric: Fabric) -> Tensor:
        """1 for each task to be done, [tasks], on the first process; 0 on the others."""
        missing = torch.zeros(len(self._tasks), dtype=torch.int32)
        if fabric.is_global_zero:
            self._left = Counter(one.number for one in self._tasks)
            for number, one in enumerate(self.inputs):
                if self.folder.is_finished(self._names[number], one.describe()):
                    del self._left[number]
            for place, task in enumerate(self._tasks):
                if task.number in self._left:
                    missing[place] = not task.part.exists()
                    self._left[task.number] -= int(not missing[place])
        return missing

    def _make(self, tasks: Sequence[Task], alone: bool) -> None:
        """Writes parts; if ``alone``, each file is finished as soon as it has all of its parts.

        Raises:
            CorpusError: Some could not be written; raised after all others.
        """
        if not tasks:
            return
        self.work.check()
        self._warn_of_unread(tasks[0].block)
        total, done = sum(one.block.num_bytes for one in tasks), 0
        with ExitStack() as stack:
            advance = stack.enter_context(self.reporter.track(self.work.name, total, "bytes"))
            run = run_here if self.cluster is None else stack.enter_context(self.cluster.open())

            def note(task: Task) -> None:
                nonlocal done
                done += task.block.num_bytes
                advance(done, task.block.path.name)
                if alone and task.part.exists():
                    self._left[task.number] -= 1
                    if not self._left[task.number]:
                        self._finish_one(task.number)

            faults = [fault for fault in run(make_part, tasks, note) if fault is not None]
        if faults:
            found = [fault.removeprefix(f"{READABLE}: ") for fault in faults]
            raise CorpusError(list_faults(READABLE, found) if len(faults) > 1 else faults[0])

    def _warn_of_unread(self, block: Block) -> None:
        """Warns of keys that nothing reads, by the first documents of a block."""
        columns = self.work.run.load().columns
        with suppress(CorpusError):  # raised where the part is made
            for _ in columns.warn_of_unread(
                islice(read_documents(block), _FIRST), self.reporter.warn
            ):
                pass

    def _finish(self) -> None:
        """Finishes the inputs that are left."""
        for number in list(self._left):
            self._finish_one(number)

    def _finish_one(self, number: int) -> None:
        """Joins the parts of an input.

        Raises:
            ProcessError: One is missing.
        """
        parts = [task.part for task in self._by_input[number]]
        if missing := [part for part in parts if not part.exists()]:
            raise ProcessError(
                f"The first process must see what all others write, but '{missing[0]}' is not "
                f"there; choose an --output on a disk that the machines share, and start again."
            )
        source = self.inputs[number].describe()
        self.folder.finish(self._names[number], source, parts, self.work.join)
        del self._left[number]
