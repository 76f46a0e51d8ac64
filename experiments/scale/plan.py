"""Estimates what corpora of millions of documents need, from the rates in measured.json.

    python experiments/scale/plan.py                  # prints the tables
    python experiments/scale/plan.py --write docs/how_to/scale_plan.md \\
        --figure docs/figures/scale.svg

Everything is linear in documents, which is an upper bound: vocabularies and authors grow more
slowly. Measured are rates and memory of 0.7 to 2.8 million documents on 2 cores; all else is
extrapolated.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import matplotlib.pyplot as plt
import numpy as np
import typer

from match_graph.runs.configure import derive_epochs, derive_samples

MEASURED = Path(__file__).with_name("measured.json")
BEGIN, END = "<!-- plan.py -->", "<!-- end of plan.py -->"

#: Documents, and the machines that the plan gives them.
PLANS = {3_700_000: 1, 50_000_000: 4, 250_000_000: 16}
_CORES = 16  # per machine
_GIGABIT = 10.0  # per second, a machine's network
_CORES_PER_PROCESS = 2  # in pre-training, training and prediction, as measured
_CHANNELS = 100
#: Rows that a process fetches and sends back in a step of pre-training, and pairs of a step.
_ROWS, _PAIRS = 2 * 1024 + 32, 1024
_TRAIN_SHARE = 0.8


@dataclass(frozen=True)
class Rates:
    """Rates from measured rows, per document unless stated otherwise.

    Args:
        serial: Seconds of a build that more workers do not shorten.
        parallel: Core seconds of a build that workers share.
        raw: Bytes of raw files.
        built: Bytes of the build.
        worker: Peak MiB of a worker, for any corpus.
        command: MiB of the merging process: for no documents, and for each document.
        words: Number of words.
        tokens: Number of words, metadata and references.
        vectors: Number of vectors of pre-training.
        pairs: Pairs of pre-training per second and process.
        weights: Bytes of the model's tables, and of gradients, moments and averages.
        trained: Documents trained per second and process.
        predicted: Documents predicted per second and process.
    """

    serial: float
    parallel: float
    raw: float
    built: float
    worker: float
    command: tuple[float, float]
    words: float
    tokens: float
    vectors: float
    pairs: float
    weights: float
    trained: float
    predicted: float


def load_rates(path: Path = MEASURED) -> Rates:
    """Rates of the measured rows."""
    rows = json.loads(path.read_text())

    def find(stage: str, **wanted: Any) -> list[dict[str, Any]]:
        return [
            row
            for row in rows
            if row["stage"] == stage and all(row[name] == value for name, value in wanted.items())
        ]

    alone = find("build", workers=0)[-1]
    documents = alone["documents"]
    one, two = (
        np.mean([row["seconds"] for row in find("build", workers=number, documents=documents)])
        for number in (0, 2)
    )
    serial = max(0.0, float(2 * two - one)) / documents
    builds = [row for row in find("build", workers=2) if row["memory"] is not None]
    slope, start = np.polyfit(
        [row["documents"] for row in builds], [row["peak_mib"]["command"] for row in builds], 1
    )
    pretrained = find("pretrain", in_memory=False)[-1]
    trained, predicted = find("train", in_memory=False)[-1], find("predict")[-1]
    return Rates(
        serial=serial,
        parallel=float(one) / documents - serial,
        raw=1e6 * alone["raw_mb"] / documents,
        built=1e6 * alone["built_mb"] / documents,
        worker=max(row["peak_mib"]["worker"] for row in builds),
        command=(float(start), float(slope)),
        words=pretrained["words"] / pretrained["documents"],
        tokens=trained["edges"] / trained["documents"],
        vectors=pretrained["vectors"] / pretrained["documents"],
        pairs=pretrained["pairs"] / pretrained["seconds"],
        weights=2**20 * (trained["tables_mib"] + trained["states_mib"]) / trained["documents"],
        trained=trained["batch"] * trained["steps"] / trained["seconds"],
        predicted=predicted["documents"] / predicted["seconds"],
    )


def plan(rates: Rates, documents: int, machines: int) -> list[list[str]]:
    """Rows of the table: stage, processes, memory of each, disk, network of a machine, hours."""
    cores = machines * _CORES
    processes = cores // _CORES_PER_PROCESS
    build = documents * (rates.serial + rates.parallel / cores) / 3600
    command = (rates.command[0] + rates.command[1] * documents) / 1024
    disk = documents * (rates.raw + 2 * rates.built) / 1e9

    pairs = derive_samples(round(documents * rates.words))
    vectors = documents * rates.vectors * _CHANNELS * 4 / processes / 2**30
    seconds = pairs / (rates.pairs * processes)
    sent = 2 * 4 * _CHANNELS * _ROWS / _PAIRS * pairs / machines
    sent *= machines > 1
    seconds = max(seconds, 8e-9 * sent / _GIGABIT)

    train = round(documents * _TRAIN_SHARE)
    epochs = derive_epochs(train)
    training = epochs * train / (rates.trained * processes) / 3600
    weights = documents * rates.weights / processes / 2**30
    moved = 2 * 4 * _CHANNELS * rates.tokens * rates.trained * processes / machines
    train_network = 8e-9 * moved * (machines > 1)
    predict = documents / (rates.predicted * processes) / 3600
    return [
        ["build", f"{cores} workers", f"{rates.worker / 1024:.1f} GiB; merging {command:.1f} GiB",
         f"{disk:,.0f} GB", "the shared disk", f"{build:,.2f}"],
        ["pre-training", f"{processes}", f"{vectors:,.1f} GiB of vectors", "",
         f"{8e-9 * sent / seconds:,.1f} Gbit/s", f"{seconds / 3600:,.2f}"],
        [f"training, {epochs} epochs", f"{processes}",
         f"{weights:,.1f} GiB of tables and optimizer states", "",
         f"{train_network:,.1f} Gbit/s", f"{training:,.2f}"],
        ["prediction", f"{processes}", "a batch", "", "none", f"{predict:,.2f}"],
    ]  # fmt: skip


def describe(rates: Rates) -> str:
    """The tables as Markdown."""
    parts = [
        f"A worker builds {1 / rates.parallel:,.0f} documents a second with a core; what more "
        f"workers do not shorten takes {1e6 * rates.serial:,.0f} s for a million documents. A "
        f"process of {_CORES_PER_PROCESS} cores pre-trains {rates.pairs:,.0f} pairs, trains "
        f"{rates.trained:,.0f} and predicts {rates.predicted:,.0f} documents a second."
    ]
    for documents, machines in PLANS.items():
        head = f"{documents / 1e6:,.1f} million documents, {machines} machine{'s' * (machines > 1)}"
        rows = plan(rates, documents, machines)
        names = ["stage", "processes", "memory of each", "disk", "network of a machine", "hours"]
        table = [f"| {' | '.join(names)} |", f"|{'---|' * 5}--:|"]
        table += [f"| {' | '.join(row)} |" for row in rows]
        parts += [f"## {head}", "\n".join(table)]
    return "\n\n".join(parts)


def draw(path: Path) -> None:
    """Draws the memory of a build's processes by documents."""
    rows = [row for row in json.loads(MEASURED.read_text()) if row["stage"] == "build"]
    rows = sorted((row for row in rows if row["memory"]), key=lambda row: row["documents"])
    figure, axes = plt.subplots(figsize=(5, 3), layout="constrained")
    x = [row["documents"] / 1e6 for row in rows]
    for kind, label in (("worker", "a worker"), ("command", "the process that merges")):
        axes.plot(x, [row["peak_mib"][kind] / 1024 for row in rows], marker="o", label=label)
    axes.axhline(3, color="grey", linestyle=":", label="limit of a worker")
    axes.set(xlabel="million documents", ylabel="peak memory, GiB", ylim=(0, None), xlim=(0, None))
    axes.legend()
    figure.savefig(path)


def main(
    write: Annotated[Path | None, typer.Option(help="A page that holds the tables.")] = None,
    figure: Annotated[Path | None, typer.Option(help="A figure of memory by documents.")] = None,
) -> None:
    """Prints the tables, or writes them between two comments of a page."""
    if figure is not None:
        draw(figure)
    text = describe(load_rates())
    if write is None:
        typer.echo(text)
        return
    page = write.read_text(encoding="utf-8")
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    write.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
