"""Prediction and evaluation of many files: spread by blocks, in order, resumable."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from match_graph.errors import CorpusError
from match_graph.io.cluster import Cluster
from match_graph.io.manifest import parse_json, read_bytes
from match_graph.io.names import read_path
from match_graph.io.progress import Reporter
from match_graph.io.run_folder import METRICS
from match_graph.predict.documents import describe_empty
from match_graph.predict.job import Job
from match_graph.predict.label_sums import LabelSums
from match_graph.predict.work import Evaluating, Predicting, RunHandle

#: Bytes of a block: seconds of work, so that little is lost and all processes end together.
BLOCK_BYTES = 16 * 2**20
#: Names that a warning lists.
_SHOWN = 5


def predict_files(
    folder: str | Path,
    sources: Sequence[str | Path],
    target: str | Path,
    top_k: int | None = None,
    threshold: bool = False,
    batch_size: int = 256,
    device: str = "auto",
    encoder: str | None = None,
    head: str | None = None,
    reporter: Reporter | None = None,
    cluster: Cluster | None = None,
    block_bytes: int = BLOCK_BYTES,
) -> list[Path]:
    """Predicts the documents of files into a folder, a file of JSON lines each, in order.

    What is finished stays so: a call that was killed is gone on with by the same call, and files
    that have changed are predicted again. Where torchrun started this process, all its processes
    call this and share the blocks.

    Args:
        folder: Run folder.
        sources: Files of JSON lines, of CSV if they end in ``.csv`` or ``.tsv``, also packed by
            gzip (``.gz``), and folders of such files (JSON lines end in ``.jsonl`` there).
        target: Folder of the results: new, empty, or of an earlier call.
        top_k: Largest number of labels, as for `Classifier.predict`.
        threshold: Whether to use thresholds, likewise.
        batch_size: Documents per batch, likewise.
        device: Device, as for `load`.
        encoder: Encoder, as for `load`.
        head: Head, as for `load`.
        reporter: Progress reporter.
        cluster: Cluster whose workers share the blocks; None takes this process, or those of
            torchrun.
        block_bytes: Bytes after which a file is cut at the next end of a line; CSV and what is
            packed are not cut.

    Returns:
        The results, in the order of the inputs.

    Raises:
        CorpusError: A document is wrong (file:line), or a file cannot be read or has changed.
        ExportError: The folder holds something else, or is in use.
        CheckpointError: The run cannot predict.
    """
    handle = RunHandle.find(read_path(folder, "A run folder"), device, encoder, head)
    work = Predicting(handle, top_k, threshold, batch_size)
    job = Job(
        work, sources, read_path(target, "A folder of results"), block_bytes, reporter, cluster
    )

    def check() -> None:
        pairs = zip(job.inputs, job.results, strict=True)
        empty = [one.path.name for one, path in pairs if not path.stat().st_size]
        if len(empty) == len(job.results):
            raise _describe_empty(job)
        if empty:
            job.reporter.warn(f"{len(empty):,} files hold no document: {_quote(empty)}")

    job.run(check)
    return job.results


def evaluate_files(
    folder: str | Path,
    sources: Sequence[str | Path],
    target: str | Path,
    batch_size: int = 256,
    device: str = "auto",
    encoder: str | None = None,
    head: str | None = None,
    reporter: Reporter | None = None,
    cluster: Cluster | None = None,
    block_bytes: int = BLOCK_BYTES,
) -> dict[str, float]:
    """Evaluates a run on files of documents with gold labels; writes ``metrics.json``.

    Measures are those of `Run.evaluate` on test, over all documents as one, which are new ones to
    the run. Gold labels that the run does not know count in every denominator. Resumed and shared
    as `predict_files`.

    Args:
        folder: Run folder; evaluated, as its thresholds are used.
        sources: Files and folders, as for `predict_files`; each document has a list ``label``.
        target: Folder of ``metrics.json`` and of the sums of each file.
        batch_size: Documents per batch.
        device: Device, as for `load`.
        encoder: Encoder, as for `load`.
        head: Head, as for `load`.
        reporter: Progress reporter.
        cluster: Cluster whose workers share the blocks; None takes this process, or those of
            torchrun.
        block_bytes: Bytes of a block, as for `predict_files`.

    Returns:
        Measures by name.

    Raises:
        CorpusError: As for `predict_files`, or a document has no list of labels.
        ExportError: The folder holds something else, or is in use.
        CheckpointError: The run was not evaluated.
    """
    handle = RunHandle.find(read_path(folder, "A run folder"), device, encoder, head)
    work = Evaluating(handle, batch_size)
    job = Job(
        work, sources, read_path(target, "A folder of results"), block_bytes, reporter, cluster
    )

    def write() -> None:
        total = LabelSums(work.labels())
        for path in job.results:
            total.add_file(path)
        if not int(total.counts[0]):
            raise _describe_empty(job)
        if total.unknown:
            names = [name for name, _ in total.unknown.most_common(_SHOWN + 1)]
            job.reporter.warn(
                f"{len(total.unknown):,} labels of the documents are none of the run's, so that "
                f"{total.unknown.total():,} of {int(total.counts[2]):,} gold labels cannot be "
                f"found and count as missed: {_quote(names)}"
            )
        text = json.dumps(_describe_sums(total), indent=2, ensure_ascii=False) + "\n"
        source = {"sums": [path.name for path in job.results]}
        job.folder.finish(
            METRICS, source, [], lambda _, place: place.write_text(text, encoding="utf-8")
        )

    job.run(write, METRICS)
    content = parse_json(read_bytes(Path(target) / METRICS))
    return {name: float(value) for name, value in content["measures"].items()}


def _describe_sums(sums: LabelSums) -> dict[str, Any]:
    """Content of ``metrics.json``: measures, and the documents and labels that they are of.

    ``empty`` is the treatment of documents without gold labels, see `RankingMeter`.
    """
    documents, without, gold = sums.counts.tolist()
    return {
        "measures": sums.compute(),
        "documents": documents,
        "documents_without_labels": without,
        "empty": sums.ranking.empty,
        "gold_labels": gold,
        "unknown_gold_labels": sums.unknown.total(),
        "unknown_labels": len(sums.unknown),
    }


def _describe_empty(job: Job) -> CorpusError:
    paths = [one.path for one in job.inputs]
    return describe_empty(_quote([*map(str, paths)]), paths)


def _quote(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:_SHOWN])
    return shown + (" and others" if len(names) > _SHOWN else "")
