"""What tests of reports share: benchmarks, a hostile case study, and a parser of pages."""

import json
from html.parser import HTMLParser
from pathlib import Path

import pytest
import torch
from benchmark.conftest import (
    benchmark_folder,
    benchmark_results,
    make_experiment,
    toy_folder,
)
from export.conftest import toy_dataset

from match_graph.benchmark import Cell, DatasetRecord, Experiment, Machine, Results
from match_graph.io.run_folder import RECORD
from match_graph.predict.case_study import (
    CaseLabel,
    CaseStudy,
    Evidence,
    Missed,
    Prediction,
    Pull,
    Variant,
    WordEvidence,
)
from match_graph.runs.measures import DocumentScores, write_scores

__all__ = ["benchmark_folder", "benchmark_results", "make_experiment", "toy_dataset", "toy_folder"]

#: NDCG@5 and violation rate by row and seed.
VALUES = {
    "A & B_1": [(0.50, 0.30), (0.52, 0.20), (0.51, 0.10)],
    "MATCH": [(0.60, 0.11), (0.61, 0.21), (0.65, 0.31)],
    "same": [(0.59, 0.11), (0.60, 0.21), (0.64, 0.31)],
    "gone": [],
}
HOSTILE = "<script>alert(\"1\" & '2')</script>"
#: Elements without an end.
VOID = {"meta", "br", "hr", "img", "input", "link"}


class PageParser(HTMLParser):
    """Elements and texts of a page; unbalanced elements are an error."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.stack: list[str] = []
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.texts: dict[str, list[str]] = {}
        self.declared = ""
        self.feed(text)
        self.close()
        assert not self.stack

    def handle_decl(self, decl: str) -> None:
        self.declared = decl

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.stack.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.stack.pop() == tag

    def handle_data(self, data: str) -> None:
        for tag in set(self.stack):
            self.texts.setdefault(tag, []).append(data)

    def named(self, tag: str) -> list[dict[str, str]]:
        """Attributes of all elements of a name."""
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture(scope="session")
def parse_page():
    """Parses a page."""
    return PageParser


@pytest.fixture(scope="session")
def hostile() -> str:
    """A text that would run if it were not escaped."""
    return HOSTILE


@pytest.fixture(scope="session")
def case_study() -> CaseStudy:
    """One document and variant; a diamond of labels; every text that users give is hostile."""
    token = Evidence(
        field="venue", name=HOSTILE, is_known=False, attention=0.25, effect=0.5, linear=-0.125
    )
    pull = Pull(parent="a", probability=0.5, weight=1.0, output_term=0.25, parameter_term=0.125)
    prediction = Prediction(
        label=HOSTILE, probability=0.75, score=1.0986, is_right=True, metadata=[token],
        words=[WordEvidence(word="<b>", linear=0.5)], carried_by=str(token), attended=str(token),
        verdict=f"Leave-one-out and attention agree on '{token}'.", parents=[pull], pulled_by="a",
    )  # fmt: skip

    def label(name: str, depth: int, *parents: str, gold: bool = False) -> CaseLabel:
        return CaseLabel(
            label=name, name=HOSTILE if gold else None, is_gold=gold, depth=depth,
            parents=list(parents),
        )  # fmt: skip

    labels = [
        label("a", 0), label("b", 1, "a"), label("c", 1, "a"), label("d", 2, "b", "c", gold=True),
        label(HOSTILE, 1, "a", gold=True),
    ]  # fmt: skip
    variant = Variant(
        run=HOSTILE, encoder="match", ablation=["no-venue"], seed=3, predictions=[prediction],
        missed=[Missed(label="d", probability=0.0625, rank=7)],
        probability={"a": 0.5, "b": 0.25, "c": 0.03125, "d": 0.0625, HOSTILE: 0.75},
    )  # fmt: skip
    return CaseStudy(
        dataset="toy", document=HOSTILE, split="test", text=HOSTILE, metadata={"venue": [HOSTILE]},
        labels=labels, variants=[variant],
    )  # fmt: skip


def make_results(values=VALUES, seeds=3, **changes) -> Results:
    """Results of rows with these measures; rows without are refused."""
    content = {
        "name": "trial",
        "question": "Is A|B better than <script>?",
        "datasets": ["toy"],
        "runs": seeds,
        "measures": ["NDCG@5", "violation_rate"],
        "reference": "MATCH",
        "rows": [{"name": name} for name in values],
        "expected": {"toy": {"MATCH": {"NDCG@5": [0.61, 0.01]}}},
    }
    experiment = Experiment(**{**content, **changes})
    cells = []
    for row in experiment.expand([]):
        found = values[row.name]
        for seed in range(seeds):
            common = {
                "dataset": "toy",
                "row": row.name,
                "seed": seed,
                "folder": f"c/{row.name}/{seed}",
            }
            if not found:
                cells.append(Cell(**common, status="refused", reason="It has no colour."))
                continue
            measures = dict(zip(experiment.measures, found[seed], strict=False))
            history = [
                {"epoch": 1, "loss_recent": 2.0, **measures},
                {"epoch": 2, "loss_recent": 1.0, **measures},
            ]
            cells.append(
                Cell(
                    **common,
                    status="done",
                    metrics={"test": measures},
                    history=history,
                    seconds={"pretrain": 9.0, "train": 3.0 + 4 * seed, "blend": 1.0},
                    seconds_per_epoch=1.0 + seed,
                    parameters=1234,
                    peak_mib={"host": 100.0 + seed},
                )
            )
    record = DatasetRecord(
        name="toy",
        source="toy",
        checksum="abcdef",
        documents={"train": 8, "test": 2},
        num_labels=9,
        fields=[],
        epochs=4,
        rows=experiment.expand([]),
    )
    machine = Machine(platform="L", processor="x86_64", cores=2, python="3.11", versions={})
    when = "2026-01-01T00:00:00+00:00"
    return Results(
        experiment=experiment, machine=machine, started=when, updated=when, datasets=[record],
        cells=cells,
    )  # fmt: skip


def write_cells(folder: Path, values=VALUES, seeds=3, num_documents=50, checksum="abc") -> Path:
    """Run folders of the rows: scores of documents around NDCG@5, and the data's checksum."""
    record = {
        "dataset": "toy", "data_checksum": checksum, "num_train_documents": 8, "seed": 0,
        "processes": 1, "seconds": {}, "peak_memory_mib": {}, "device": {}, "versions": {},
        "python": "3.11", "git": None,
    }  # fmt: skip
    for row, found in values.items():
        for seed in range(seeds if found else 0):
            cell = folder / "c" / row / str(seed)
            cell.mkdir(parents=True)
            (cell / RECORD).write_text(json.dumps(record))
            scores = DocumentScores(torch.arange(10, 10 + num_documents))
            noise = torch.rand(num_documents, generator=torch.Generator().manual_seed(seed)) / 5
            bend = 0.05 * torch.sin(len(row) * torch.arange(num_documents))
            scores.table[:, -1] = found[seed][0] + noise - noise.mean() + bend - bend.mean()
            write_scores(cell, {"test": scores})
    return folder


def spread(values=VALUES) -> dict[str, list[tuple[float, float]]]:
    """Values of five seeds for the rows that have three."""
    more = ((0.003, 0.01), (-0.004, 0.02))
    return {
        row: [*found, *((found[0][0] + a, found[-1][1] + b) for a, b in more if found)]
        for row, found in values.items()
    }
