"""``results.json`` of a benchmark: every cell with its measures and provenance."""

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, Field, ValidationError, model_validator

from match_graph.benchmark.experiment import OF_SLICE, Experiment, PlannedRow
from match_graph.config import StrictModel
from match_graph.errors import (
    CheckpointError,
    ConfigError,
    describe_faults,
    list_faults,
    suggest,
)
from match_graph.io.files import write_text
from match_graph.io.names import FileName, InnerPath

RESULTS = "results.json"
RESULTS_FORMAT = 2

#: "waiting" is not started or not finished; "refused" does not fit the data set.
Status = Literal["waiting", "done", "refused", "failed"]

#: Largest magnitude of a number in results, which figures can still draw.
LARGEST = 1e30
Number = Annotated[float, Field(ge=-LARGEST, le=LARGEST)]


class Cell(StrictModel):
    """Cell of the results: a row on a data set with a seed.

    Measured fields are empty unless the status is "done".
    """

    dataset: str = Field(description="name of the data set")
    row: str
    seed: int = Field(ge=0, le=2**33)
    status: Status = "waiting"
    reason: str = Field("", description="reason why it was refused or failed, a sentence")
    folder: InnerPath = Field(description="run folder, relative to that of the results")
    config: dict[str, Any] = Field({}, description="resolved settings; empty if refused")
    metrics: dict[str, dict[str, Number]] = Field(
        {}, description="measures: split -> measure -> value"
    )
    history: list[dict[str, Number]] = Field(
        [], description="training history: a row per epoch, of the last level"
    )
    seconds: dict[str, Number] = Field(
        {}, description="seconds by stage, without attempts that were killed"
    )
    epochs: int | None = Field(
        None, description="epochs that were trained, over all levels of a tree"
    )
    seconds_per_epoch: Number | None = Field(
        None, description="seconds per epoch; none if it was interrupted or has no epochs"
    )
    parameters: int | None = Field(None, description="number of parameters, of a network")
    peak_mib: dict[str, Number] = Field(
        {}, description="peak memory: host, and cuda if one is used"
    )
    device: dict[str, Any] = Field(
        {}, description="hardware: processor, threads, and cuda if it is used"
    )
    versions: dict[str, str] = Field({}, description="versions of packages, and of Python")
    git: str | None = None
    vectors_from: str | None = Field(
        None, description="run folder of the cell that pre-trained its vectors, as `folder`"
    )
    network_share: float | None = Field(
        None, description="network's share in its blend with a linear classifier, if any"
    )
    feature_checksums: dict[str, str] = Field(
        {}, description="checksums of features of data.features, by node type"
    )
    input_checksums: dict[str, str] = Field(
        {}, description="checksums of own code and of word vectors, by setting"
    )
    resumed: bool = Field(False, description="whether it was interrupted and resumed")
    finished: str = Field("", description="date and time in UTC, ISO 8601")
    published: bool = Field(False, description="whether it is kept without its run folder")

    @property
    def key(self) -> tuple[str, str, int]:
        """Key of the cell."""
        return self.dataset, self.row, self.seed

    def find_missing(self) -> list[str]:
        """Sentences about what a finished cell lacks."""
        if self.status != "done":
            return []
        has = {"peak_mib.host": "host" in self.peak_mib}
        has["seconds.train"] = self.resumed or "train" in self.seconds
        return [f"a finished cell must have {name}." for name, there in has.items() if not there]


class PublishedTest(StrictModel):
    """Test over documents of a measure of a row, published without run folders."""

    row: str
    measure: str
    value: Number = Field(
        description="mean difference to the reference; of the reference, or without one, the mean"
    )
    num_documents: int
    p_value: float | None = Field(description="before Holm's correction; none without a test")
    reason: str = Field(description="reason why there is no test, a clause")
    interval: tuple[Number, Number] | None = Field(description="95 % interval of the value")


class DatasetRecord(StrictModel):
    """Data set of a benchmark, with the rows that it has on it."""

    name: FileName
    source: str = Field(description="data set as the experiment names it")
    checksum: str = Field(description="checksum of the data")
    documents: dict[str, int] = Field(description="number of documents by split")
    twins: dict[str, int] | None = Field(
        None,
        description="number of documents by split with a training document's word sequence; "
        "none if they were not counted",
    )
    num_labels: int
    fields: list[str] = Field(description="metadata fields")
    epochs: int | None = Field(
        None, description="epochs of the equal budget; none if rows have their own"
    )
    rows: list[PlannedRow] = Field(description="rows in the order of tables")
    tests: list[PublishedTest] = Field([], description="tests of rows, in published results alone")


class Machine(StrictModel):
    """Machine and software of the last call of a benchmark; each cell records its own."""

    platform: str
    processor: str
    cores: int
    gpus: list[str] = Field([], description="names of the GPUs")
    python: str
    versions: dict[str, str]
    git: str | None = None


class Results(StrictModel):
    """Results of a benchmark, finished or not."""

    format: int = RESULTS_FORMAT
    experiment: Experiment
    machine: Machine
    started: str = Field(description="start, date and time in UTC, ISO 8601")
    updated: str = Field(description="last change, date and time in UTC, ISO 8601")
    datasets: list[DatasetRecord]
    cells: list[Cell] = Field(description="cells by data set, row and seed, in the order of tables")

    @model_validator(mode="after")
    def _check_whole(self) -> Self:
        """Checks that every cell belongs to a row, once, and that finished cells are complete."""
        if doubled := find_doubled(record.name for record in self.datasets):
            raise ValueError(f"'datasets': the name '{doubled}' must be that of one data set only.")
        rows = {(record.name, row.name) for record in self.datasets for row in record.rows}
        faults = [
            f"'cells.{number}': there is no row '{cell.row}' of the data set '{cell.dataset}'."
            for number, cell in enumerate(self.cells)
            if (cell.dataset, cell.row) not in rows
        ]
        if doubled := find_doubled(cell.key for cell in self.cells):
            faults.append(f"'cells': {doubled} must be of one cell only.")
        for number, cell in enumerate(self.cells):
            faults += [f"'cells.{number}': {one}" for one in cell.find_missing()]
        if faults:
            raise ValueError("\n".join(faults))
        return self

    def find_cells(self, dataset: str, row: str) -> list[Cell]:
        """Cells of a row on a data set, by seed.

        Raises:
            ConfigError: There is no such data set, or row.
        """
        records = {record.name: record for record in self.datasets}
        of_all = [one.name for record in self.datasets for one in record.rows]
        for kind, name, known in (("data set", dataset, [*records]), ("row", row, of_all)):
            if name not in known:
                raise ConfigError(
                    f"The {kind} must be one of the results, found '{name}'; "
                    f"{suggest(name, known)}."
                )
        return [cell for cell in self.cells if (cell.dataset, cell.row) == (dataset, row)]

    def find_values(self, dataset: str, row: str, measure: str) -> dict[int, float]:
        """Measure of the finished cells by seed, on the experiment's split; fractions.

        Empty if the data set lacks it (`find_measure`).

        Raises:
            ConfigError: There is no such data set, or row.
            CheckpointError: A finished cell lacks the measure.
        """
        cells = [cell for cell in self.find_cells(dataset, row) if cell.status == "done"]
        found = {cell.seed: find_measure(cell, self.experiment.split, measure) for cell in cells}
        return {seed: value for seed, value in found.items() if value is not None}

    @property
    def is_finished(self) -> bool:
        """Whether no cell is waiting."""
        return all(cell.status != "waiting" for cell in self.cells)


def find_doubled(names: Iterable[Hashable]) -> Hashable | None:
    """First of some names that is there twice; None without any."""
    return next((name for name, number in Counter(names).items() if number > 1), None)


def is_missing(cell: Cell, split: str, measure: str) -> bool:
    """True if a finished cell lacks a measure that every data set has."""
    values = cell.metrics.get(split, {})
    may_lack = OF_SLICE.fullmatch(measure) or measure.startswith("at_least_k/")
    return measure not in values and not (values and may_lack)


def find_measure(cell: Cell, split: str, measure: str) -> float | None:
    """Measure of a finished cell.

    None if the data set lacks it: a slice of labels (``depth_9/R@5``) that no document has, or
    ``at_least_k/P@3`` where no document has three labels.

    Raises:
        CheckpointError: A measure that every data set has is missing.
    """
    values = cell.metrics.get(split, {})
    if is_missing(cell, split, measure):
        raise CheckpointError(
            f"The cell '{cell.folder}' must have the measure '{measure}' on {split}, but it has "
            f"{sorted(values)} there, of the splits {sorted(cell.metrics)}; change 'measures' or "
            f"'split', or evaluate the cell again."
        )
    return values.get(measure)


def describe_failures(results: Results) -> str | None:
    """Sentence on failed runs, or on all being refused; None otherwise.

    Cells of earlier calls with other data sets or seeds are ignored.
    """
    experiment = results.experiment
    here = {record.name for record in results.datasets if record.source in experiment.datasets}
    cells = [one for one in results.cells if one.dataset in here and one.seed in experiment.seeds]
    failed = [cell for cell in cells if cell.status == "failed"]
    if failed or (cells and all(cell.status == "refused" for cell in cells)):
        first = (failed or cells)[0]
        what = "failed" if failed else "were left out"
        return (
            f"Every run of a benchmark must succeed, but {len(failed or cells)} of {len(cells)} "
            f"{what}, such as '{first.folder}' ({first.reason.rstrip('.')}); mend the cause and "
            f"give the same command again, which keeps what is finished."
        )
    return None


def write_results(folder: Path, results: Results) -> Path:
    """Writes ``results.json`` into the folder of a benchmark, atomically."""
    path = folder / RESULTS
    write_text(path, results.model_dump_json(indent=1) + "\n")
    return path


def read_results(path: str | Path) -> Results:
    """Reads the results of a benchmark.

    Args:
        path: Folder of the benchmark, or the file.

    Raises:
        CheckpointError: It is missing, broken, or of another format.
    """
    path = Path(path, RESULTS) if Path(path).is_dir() else Path(path)
    try:
        text = path.read_bytes()
        version = _Format.model_validate_json(text).format
    except (OSError, ValidationError) as error:
        reason = error.strerror if isinstance(error, OSError) else error.errors()[0]["msg"]
        raise CheckpointError(
            f"'{path}' must hold the results of a benchmark as match-graph wrote them, but it "
            f"cannot be read ({reason}); restore it, or delete it and run the benchmark again, "
            f"which keeps finished cells."
        ) from None
    if version != RESULTS_FORMAT:
        raise CheckpointError(
            f"This version of match-graph reads results of format {RESULTS_FORMAT}, found format "
            f"{version!r:.50} in '{path}'; use the version that wrote it, or run the benchmark "
            f"into another folder."
        )
    try:
        return Results.model_validate_json(text)
    except ValidationError as error:
        faults = describe_faults(Results, error)
        raise CheckpointError(
            list_faults(f"The results in '{path}' must be valid", faults)
        ) from None


class _Format(BaseModel):
    format: Any = None


def sort_cells(cells: Sequence[Cell], datasets: Sequence[DatasetRecord]) -> list[Cell]:
    """Cells in the order of tables: by data set, row and seed."""
    order = {
        (record.name, row.name): (place, number)
        for place, record in enumerate(datasets)
        for number, row in enumerate(record.rows)
    }
    return sorted(cells, key=lambda cell: (*order[cell.dataset, cell.row], cell.seed))
