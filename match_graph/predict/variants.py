"""Variants of a model side by side on one document: a case study as in the paper's Table 4."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from match_graph.datasets import CorpusDataset
from match_graph.errors import CheckpointError, CorpusError
from match_graph.io.progress import Reporter
from match_graph.predict.case_study import CaseLabel, CaseStudy, Missed, Variant
from match_graph.predict.classifier import DEFAULT_TOP_K
from match_graph.predict.explain import Explainer, Explanation
from match_graph.predict.names import find_metadata_names, find_names
from match_graph.runs.folder import choose_code
from match_graph.runs.start import open_run
from match_graph.typing import DOCUMENT, LABEL

#: Characters of the text that are shown.
_TEXT = 400


def open_explainers(
    folders: Sequence[str | Path],
    root: str | Path | None = None,
    device: str = "auto",
    encoder: str | None = None,
    head: str | None = None,
    dataset: str | None = None,
    reporter: Reporter | None = None,
) -> list[Explainer]:
    """Explainers of run folders, for `compare_variants`.

    Args:
        folders: Run folders: the run and those it is compared with.
        root: Root folder of built data; None takes the default.
        device: Device, as for `load`.
        encoder: Encoder of those runs that were trained with it, as for `load`.
        head: Head, likewise.
        dataset: Data set of the runs, as for `open_run`.
        reporter: Progress reporter of a build.

    Raises:
        CheckpointError: A folder is no trained run.
    """
    return [
        Explainer(open_run(one, root, reporter, *code, dataset), device, *code)
        for one, code in zip(folders, choose_code(folders, encoder, head), strict=True)
    ]


def compare_variants(
    explainers: Sequence[Explainer],
    document: str | Mapping[str, Any],
    top_k: int = DEFAULT_TOP_K,
    place: str = "the document",
) -> CaseStudy:
    """Case study of opened runs.

    Args:
        explainers: Explainers of runs of one data set.
        document: Id of a document of the data set; or a new one, as `Classifier.predict` takes it.
            Its ``label`` are the gold labels; without any they count as unknown.
        top_k: Number of labels per variant.
        place: Where a new document stands, for faults.

    Raises:
        CheckpointError: The runs were made from different data.
        CorpusError: There is no such document, or it cannot be read; or the data set keeps no
            texts.
    """
    _check_data(explainers)
    dataset, split = explainers[0].run.dataset, "new"
    if isinstance(document, str):
        number = find_document(dataset, document)
        records = [one.run.dataset.as_json([number])[0] for one in explainers]
        split = str(dataset.table(DOCUMENT, ["split"])["split"].iloc[number])
    else:
        records = [one.classifier.columns.translate(document, place) for one in explainers]
        if isinstance(records[0], Mapping) and not records[0].get(LABEL):
            records = [{**record, LABEL: None} for record in records]  # as if it were not there
    found = [
        one.explain(record, top_k, place) for one, record in zip(explainers, records, strict=True)
    ]
    metadata: dict[str, list[str]] = {}
    for one in found:  # a variant may have dropped fields
        metadata.update({field: [*values] for field, values in one.document.metadata.items()})
    read = found[0].document
    text = " ".join(read.text.split())
    labels = _find_labels(dataset, read.gold, found)
    return CaseStudy(
        dataset=dataset.name,
        document=read.id or place,
        split=split,
        text=text if len(text) <= _TEXT else f"{text[: _TEXT - 3]}...",
        metadata=metadata,
        labels=labels,
        variants=[_make_variant(*pair, labels) for pair in zip(explainers, found, strict=True)],
        names=find_metadata_names(dataset, [metadata]),
    )


def find_document(dataset: CorpusDataset, document: str) -> int:
    """Index of a document in the graph.

    Raises:
        CorpusError: There is none of that id.
    """
    names = dataset.names(DOCUMENT).astype(str)
    places = (names == document).to_numpy().nonzero()[0]
    if not len(places):
        raise CorpusError(
            f"A document must be one of the {len(names):,} of '{dataset.name}', found no "
            f"'{document}'; its ids are like '{names.iloc[0]}'."
        )
    return int(places[0])


def _check_data(explainers: Sequence[Explainer]) -> None:
    first, *others = [one.run for one in explainers]
    for other in others:
        if other.dataset.checksum != first.dataset.checksum:
            named = [
                f"'{run.folder}' has {run.dataset.name} ({run.dataset.checksum[:8]})"
                for run in (first, other)
            ]
            raise CheckpointError(
                f"Runs that are compared must be made from the same data, but {named[0]} and "
                f"{named[1]}; compare runs of one data set with the same options."
            )


def _find_labels(
    dataset: CorpusDataset, gold_labels: Collection[str], found: Sequence[Explanation]
) -> list[CaseLabel]:
    """Gold labels (known ones), predicted labels and all of their ancestors, parents first."""
    ids, dag = dataset.names(LABEL).tolist(), dataset.hierarchy
    place = {label: row for row, label in enumerate(ids)}
    gold = {place[label] for label in gold_labels if label in place}
    labels = gold | {place[one.label] for each in found for one in each.predictions}
    ptr, above = dag.ancestors()
    labels |= {parent for row in labels for parent in above[ptr[row] : ptr[row + 1]].tolist()}
    depth = dag.depth.tolist()
    names = find_names(dataset, LABEL, (ids[row] for row in labels))
    child, parent = dag.edge_index
    return [
        CaseLabel(
            label=ids[row],
            name=names.get(ids[row]),
            is_gold=row in gold,
            depth=depth[row],
            parents=[ids[one] for one in parent[child == row].tolist()],
        )
        for row in sorted(labels, key=lambda row: (depth[row], row))
    ]


def _make_variant(explainer: Explainer, found: Explanation, labels: Sequence[CaseLabel]) -> Variant:
    place = {label: row for row, label in enumerate(explainer.labels)}
    rows = [place[one.label] for one in labels]
    probability = torch.sigmoid(found.logits[rows]).tolist()
    best = {one.label for one in found.predictions}
    missed = [
        Missed(
            label=one.label,
            name=one.name,
            probability=share,
            rank=1 + max(int((found.logits > found.logits[row]).sum()), len(best)),
        )
        for one, row, share in zip(labels, rows, probability, strict=True)
        if one.is_gold and one.label not in best
    ]
    config = explainer.run.config
    return Variant(
        run=explainer.name,
        encoder=config.model.encoder,
        ablation=list(config.ablation),
        seed=config.seed,
        predictions=found.predictions,
        missed=sorted(missed, key=lambda one: one.rank),
        probability={one.label: share for one, share in zip(labels, probability, strict=True)},
    )
