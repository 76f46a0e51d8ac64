"""MAPLE, papers of 20 subjects with their metadata: the JSON release and the graph release.

Source: https://github.com/yuzhimanhua/MAPLE (formats), https://arxiv.org/abs/2302.03341 (paper),
https://zenodo.org/records/7611544 and https://zenodo.org/records/7797563 (files).
"""

from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Literal, Self, TypeAlias

from filelock import FileLock
from pydantic import Field, model_validator

from match_graph.corpus import Faults
from match_graph.corpus_builder import CorpusBuilder
from match_graph.datasets.dataset import CorpusDataset
from match_graph.datasets.maple_graph import GRAPH_FILES, LabelKind, read_graph, split_columns
from match_graph.datasets.match_folder import TAXONOMY, read_taxonomy
from match_graph.datasets.options import (
    Card,
    DateOption,
    HierarchyConfig,
    SplitConfig,
    tokenizer_field,
)
from match_graph.datasets.partitions import PartitionReader
from match_graph.datasets.table_rows import TableConfig, TableReader
from match_graph.errors import CorpusError
from match_graph.io.archive import list_archives, unpack_archive
from match_graph.io.beside import beside
from match_graph.io.download import fetch_record, is_broken_off
from match_graph.io.json_lines import read_json_lines
from match_graph.io.partition import Partition, split_lines
from match_graph.io.source import Sources, is_there
from match_graph.typing import LABEL, Tokenizer

MapleField: TypeAlias = Literal["venue", "author", "reference"]
FIELDS: tuple[MapleField, ...] = ("venue", "author", "reference")
RELEASES = {"json": 7611544, "graph": 7797563}  # Zenodo records
_GRAPH = "graph"  # kind of the only partition of the graph release
JSON_FILES = ("papers.json", "labels.txt", "authors.txt", "venues.txt", TAXONOMY)


class Maple(CorpusDataset):
    """One subject of MAPLE; texts are lower case without punctuation, tokenised at blanks.

    The JSON release has years: papers up to 2015 are for training and validation, later ones are
    the test split, as in the paper, whose validation split is not published. The graph release has
    no years and is split at random.

    MAPLE gives depths of labels but no edges between them; a ``taxonomy.txt`` of your own beside
    its files is read as their hierarchy.

    Raises:
        CorpusError: The files cannot be fetched, have no such subject, or with every fault of
            them, each with file:line.
    """

    class Config(HierarchyConfig, SplitConfig):
        """Options of MAPLE."""

        subject: str = Field(
            "Art",
            pattern="^[A-Za-z_]+$",
            description="folder of the release, such as Art or Biology_MeSH",
        )
        release: Literal["json", "graph"] = Field(
            "json", description="json, or graph, which has no years"
        )
        labels: LabelKind = Field(
            "mag", description="mag or, in the graph release, mesh; the json release has folders"
        )
        fields: Sequence[MapleField] = Field(
            FIELDS, description="metadata fields: venue, author, reference"
        )
        tokenizer: Tokenizer = tokenizer_field("whitespace")
        train_until: DateOption = Field(
            "2015", description="last year of train, the paper's; none: split at random"
        )

        @model_validator(mode="after")
        def _drop_dates(self) -> Self:
            """The graph release has no dates."""
            if self.release == "graph":
                vars(self).update(train_until=None, valid_until=None)  # the class is frozen
            return self

    config: Config
    card = Card(
        "maple", "ODC-BY", "20 subjects, 58,373 (Art) to 2,646,105 papers", "fetched from Zenodo"
    )
    raw_pattern = "*/*/papers.*"

    @property
    def name(self) -> str:
        return f"maple-{self.config.subject}"

    @property
    def raw_dir(self) -> str:
        return str(Path(self.root) / "raw" / "maple" / self.config.release / self.config.subject)

    @property
    def _known_files(self) -> tuple[str, ...]:
        return JSON_FILES if self.config.release == "json" else (*GRAPH_FILES, TAXONOMY)

    @property
    def _required_files(self) -> list[str]:
        if self.config.release == "json":
            return ["papers.json"]
        return ["papers.txt", f"paper-{'mesh' if self.config.labels == 'mesh' else 'label'}.txt"]

    @property
    def raw_file_names(self) -> list[str]:
        there = [name for name in self._known_files if is_there(Path(self.raw_dir) / name)]
        return list(dict.fromkeys([*self._required_files, *there]))

    def download(self) -> None:
        """Unpacks the subject from the release's archives, downloading them if need be."""
        folder = Path(self.raw_dir).parent
        with FileLock(f"{folder}.lock"):
            missing = [path for path in self.raw_paths if not is_there(Path(path))]
            if not missing:
                return
            if not list_archives(folder) or is_broken_off(folder):
                fetch_record(RELEASES[self.config.release], folder, "maple", self.track)
            seen: set[str] = set()
            with beside(Path(self.raw_dir)) as place:
                for archive in list_archives(folder):
                    unpack_archive(archive, place, lambda path: self._choose(path, seen))
                self._put(place)
            missing = [Path(path).name for path in missing if not Path(path).is_file()]
            if missing:
                raise CorpusError(
                    f"The archives of 'maple' must hold a folder '{self.config.subject}' with "
                    f"{' and '.join(missing)}, but those in '{folder}' do not; choose a subject "
                    f"from {sorted(seen)}, or fetch them again."
                )

    def _choose(self, path: PurePosixPath, seen: set[str]) -> PurePosixPath | None:
        """Target path of a member of the subject; adds the names of all subjects to ``seen``."""
        subject = path.parent.name
        if path.name in self._known_files:
            seen.add(subject)
        is_ours = subject == self.config.subject and path.name in self._known_files
        return PurePosixPath(path.name) if is_ours else None

    def _put(self, place: Path) -> None:
        """Moves extracted files into the raw folder, required ones last, as they complete it."""
        raw = Path(self.raw_dir)
        raw.mkdir(exist_ok=True)
        for path in sorted(place.glob("*"), key=lambda path: path.name in self._required_files):
            path.replace(raw / path.name)

    def reader(self) -> "MapleReader":
        return MapleReader(Path(self.raw_dir), self.config, self.faults_mode)


class MapleReader(PartitionReader):
    """Reader of the JSON release in blocks of lines, and of the graph release as a whole.

    Edges of the graph release may be in any order.

    Args:
        folder: Folder of the JSON release, with ``papers.json``, where ``labels.txt`` (id, name,
            depth), ``authors.txt`` and ``venues.txt`` (id, normalised name, name) may be missing;
            or of the graph release, see `read_graph`. Both may have a ``taxonomy.txt``.
        config: Options; ``subject`` does not count.
        faults: Policy for faulty documents, as for `CorpusDataset`.
    """

    def __init__(self, folder: Path, config: Maple.Config, faults: Faults = "refuse") -> None:
        self.folder, self.config = folder, config
        self.rows = TableConfig(
            fields=config.fields,
            columns={"id": "paper", "text": ["title", "abstract"], "date": "year"},
            seed=config.seed,
            train_until=config.train_until,
            valid_until=config.valid_until,
        )
        summary = f"The folder '{folder}' must be one of MAPLE's"
        paths = [folder / name for name in sorted({*JSON_FILES, *GRAPH_FILES})]
        super().__init__("maple", config.fields, summary, faults, config.tokenizer, paths)

    def list_partitions(self, block: int | None = None) -> list[Partition]:
        if self.config.release == "graph":
            return [Partition(self.folder / "papers.txt", _GRAPH)]
        parts = split_lines(self.folder / "papers.json", size=block)
        # references have no such file
        named = {node_type: self.folder / f"{node_type}s.txt" for node_type in (LABEL, *FIELDS)}
        for node_type, path in named.items():
            if is_there(path) and node_type in (LABEL, *self.fields):
                parts += split_lines(path, node_type, block)
        return parts

    def read(self, partition: Partition, builder: CorpusBuilder, sources: Sources) -> None:
        if partition.kind == _GRAPH:
            read_graph(self.folder, self.config.labels, builder, sources, self.config)
        elif partition.kind == "documents":
            reader = TableReader(builder, self.rows, "")
            lines, name = partition.lines(sources), partition.path.name
            papers = read_json_lines(lines, name, builder.fail, partition.line)
            for place, record in builder.documents(papers):
                reader.add(record, place)
        else:
            _read_names(partition, builder, sources)

    def finish(self, builder: CorpusBuilder, sources: Sources) -> None:
        for path in self.config.list_hierarchy_files(self.folder / TAXONOMY):
            if is_there(path):
                for edge in read_taxonomy(sources.lines(path), path.name, builder.fail):
                    builder.edges.setdefault(edge[:2], edge[2])


def _read_names(partition: Partition, builder: CorpusBuilder, sources: Sources) -> None:
    """Names of labels, with their depths, or of the instances of a field."""
    lines, name = partition.lines(sources), partition.path.name
    for place, columns in split_columns(lines, name, builder.fail, partition.line):
        if partition.kind == LABEL:
            _name_label(builder, columns, place)
        else:
            shown = columns[2] if len(columns) > 2 and columns[2] else columns[1]
            builder.set_name(partition.kind, columns[0], shown)


def _name_label(builder: CorpusBuilder, columns: list[str], place: str) -> None:
    builder.set_name("label", columns[0], columns[1])
    depth = columns[2].strip() if len(columns) > 2 else ""
    if depth.isdecimal() and len(depth) < 4:
        builder.set_depth(columns[0], int(depth))
    elif depth:
        builder.fail(
            f"{place}: the depth of a label must be a whole number below 1,000, "
            f"found '{depth[:60]}'; fetch the file again."
        )
