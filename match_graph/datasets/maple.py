"""MAPLE, papers of 20 subjects with their metadata: the JSON release and the graph release.

Source: https://github.com/yuzhimanhua/MAPLE (formats), https://arxiv.org/abs/2302.03341 (paper),
https://zenodo.org/records/7611544 and https://zenodo.org/records/7797563 (files).
"""

from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Literal, Self, TypeAlias

from filelock import FileLock
from pydantic import Field, model_validator

from match_graph.corpus import Corpus, CorpusBuilder, Faults, Tokenizer
from match_graph.datasets.dataset import Card, CorpusDataset
from match_graph.datasets.maple_graph import GRAPH_FILES, LabelKind, read_columns, read_graph
from match_graph.datasets.match_folder import TAXONOMY, read_taxonomy
from match_graph.datasets.options import (
    UNDATED,
    DateOption,
    HierarchyConfig,
    SplitConfig,
    tokenizer_field,
)
from match_graph.errors import CorpusError
from match_graph.io.archive import SUFFIXES, unpack_archive
from match_graph.io.download import fetch_record
from match_graph.io.json_lines import (
    describe,
    read_id,
    read_json_lines,
    read_metadata,
    read_values,
)
from match_graph.io.source import Sources, Track, is_there, open_sources

MapleField: TypeAlias = Literal["venue", "author", "reference"]
FIELDS: tuple[MapleField, ...] = ("venue", "author", "reference")
RELEASES = {"json": 7611544, "graph": 7797563}  # Zenodo records
JSON_FILES = ("papers.json", "labels.txt", "authors.txt", "venues.txt", TAXONOMY)


class Maple(CorpusDataset):
    """One subject of MAPLE; texts are lower case without punctuation, tokenised at blanks.

    The JSON release has years: papers up to 2015 are for training and validation, the later ones
    are the test split, as in the paper, whose own draw of validation papers is not published. The
    graph release has none and is split at random.

    MAPLE has depths of labels but no edges between them; a ``taxonomy.txt`` of your own beside its
    files is read as their hierarchy.

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
    def raw_file_names(self) -> list[str]:
        kind = "mesh" if self.config.labels == "mesh" else "label"
        required = ["papers.txt", f"paper-{kind}.txt"]
        if self.config.release == "json":
            required = ["papers.json"]
        there = [name for name in self._known_files if is_there(Path(self.raw_dir) / name)]
        return list(dict.fromkeys([*required, *there]))

    @classmethod
    def has_raw(cls, root: Path) -> bool:
        return any((root / "raw" / "maple").glob("*/*/papers.*"))

    def download(self) -> None:
        """Unpacks the subject from the release's archives, downloading them if need be."""
        folder = Path(self.raw_dir).parent
        with FileLock(f"{folder}.lock"):
            missing = [path for path in self.raw_paths if not is_there(Path(path))]
            if not missing:
                return
            archives = [path for path in sorted(folder.glob("*")) if path.name.endswith(SUFFIXES)]
            if not archives:
                archives = fetch_record(RELEASES[self.config.release], folder, "maple", self.track)
            seen: set[str] = set()
            for archive in archives:
                if archive.name.endswith(SUFFIXES):
                    unpack_archive(archive, folder, lambda path: self._choose(path, seen))
            missing = [Path(path).name for path in missing if not Path(path).is_file()]
            if missing:
                raise CorpusError(
                    f"The archives of 'maple' must hold a folder '{self.config.subject}' with "
                    f"{' and '.join(missing)}, but those in '{folder}' do not; choose a subject "
                    f"from {sorted(seen)}, or fetch them again."
                )

    def _choose(self, path: PurePosixPath, seen: set[str]) -> PurePosixPath | None:
        """Target path of a member of the subject; other subjects are noted."""
        subject = path.parent.name
        if path.name in self._known_files:
            seen.add(subject)
        is_ours = subject == self.config.subject and path.name in self._known_files
        return PurePosixPath(subject, path.name) if is_ours else None

    def read(self) -> Corpus:
        return read_maple(Path(self.raw_dir), self.config, self.track, self.faults_mode)


def read_maple(
    folder: Path,
    config: Maple.Config,
    track: Track | None = None,
    faults: Faults = "refuse",
) -> Corpus:
    """Reads a folder of a subject, in the format of either release.

    Args:
        folder: Folder of the JSON release, with ``papers.json``, where ``labels.txt`` (id, name,
            depth), ``authors.txt`` and ``venues.txt`` (id, normalised name, name) may be missing;
            or of the graph release, see `read_graph`. Both may have a ``taxonomy.txt``.
        config: Options; ``subject`` does not count.
        track: Progress tracker.
        faults: Policy for faulty documents, as for `CorpusDataset`.

    Raises:
        CorpusError: With every fault of the files, each with file:line.
    """
    summary = f"The folder '{folder}' must be one of MAPLE's"
    builder = CorpusBuilder("maple", config.fields, summary, faults, config.tokenizer)
    edges: list[tuple[str, str, str]] = []
    names = {*JSON_FILES, *GRAPH_FILES}
    with open_sources([folder / name for name in sorted(names)], "maple", track) as sources:
        if config.release == "graph":
            read_graph(folder, config.labels, builder, sources, config)
        else:
            _read_json(folder, builder, sources, config)
        for path in config.list_hierarchy_files(folder / TAXONOMY):
            if is_there(path):
                edges = read_taxonomy(sources.lines(path), path.name, builder.fail)
    return builder.build(edges)


def _read_json(
    folder: Path, builder: CorpusBuilder, sources: Sources, config: Maple.Config
) -> None:
    """Adds the papers of the JSON release, with names of labels, authors and venues."""
    builder.notes[UNDATED] = 0
    path = folder / "papers.json"
    papers = read_json_lines(sources.lines(path), path.name, builder.fail)
    for place, record in builder.documents(papers):
        _add_paper(builder, record, config, place)
    if is_there(folder / "labels.txt"):
        for place, columns in read_columns(folder / "labels.txt", builder, sources):
            _name_label(builder, columns, place)
    for field in builder.fields:  # there is no such file for references
        if is_there(folder / f"{field}s.txt"):
            for _, columns in read_columns(folder / f"{field}s.txt", builder, sources):
                name = columns[2] if len(columns) > 2 and columns[2] else columns[1]
                builder.set_name(field, columns[0], name)


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


def _add_paper(
    builder: CorpusBuilder, record: Mapping[str, Any], config: SplitConfig, place: str
) -> None:
    """Adds one paper, or its faults."""
    before = builder.num_faults
    document = read_id(record, place, builder.fail)
    parts = [record.get(key) for key in ("title", "abstract")]
    for key, part in zip(("title", "abstract"), parts, strict=True):
        if not isinstance(part, str | None):
            builder.fail(f"{place}: '{key}' must be a string, found {describe(part)}.")
    year, labels = read_values(record.get("year")), read_values(record.get("label"))
    if year is None or len(year) > 1:
        builder.fail(f"{place}: 'year' must be a year, found {describe(record['year'])}.")
    if labels is None:
        builder.fail(
            f"{place}: 'label' must be a list of strings, found {describe(record['label'])}."
        )
    metadata = read_metadata(record, builder.fields, place, builder.fail)
    if builder.num_faults > before or document is None:
        return
    text = " ".join(part for part in parts if part)
    split = config.choose_split(document, text, year[0] if year else None, builder.notes)
    builder.add(document, split, text, metadata, labels or [], place)
