"""MAPLE, papers of 20 subjects with their metadata: the JSON release and the graph release.

Source: https://github.com/yuzhimanhua/MAPLE (formats), https://arxiv.org/abs/2302.03341 (paper),
https://zenodo.org/records/7611544 and https://zenodo.org/records/7797563 (files).
"""

from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, TypeAlias

from filelock import FileLock
from pydantic import Field

from match_graph.corpus import Corpus, CorpusBuilder, Faults
from match_graph.datasets.dataset import Card, CorpusDataset
from match_graph.datasets.maple_graph import GRAPH_FILES, LabelKind, read_maple_graph
from match_graph.datasets.maple_names import read_label_names, read_names
from match_graph.datasets.match_folder import Hierarchy
from match_graph.datasets.splits import DateOption, SplitOptions, SplitRule
from match_graph.datasets.taxonomy import read_taxonomy
from match_graph.datasets.text import WORD_PATTERN, Tokenizer, split_words
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
from match_graph.io.source import Track, is_there, open_sources

MapleField: TypeAlias = Literal["venue", "author", "reference"]
FIELDS: tuple[MapleField, ...] = ("venue", "author", "reference")
RELEASES = {"json": 7611544, "graph": 7797563}  # Zenodo records
TAXONOMY = "taxonomy.txt"
JSON_FILES = ("papers.json", "labels.txt", "authors.txt", "venues.txt", TAXONOMY)

_LAST_YEAR = 2015  # of training and validation in the paper


class Maple(CorpusDataset):
    """One subject of MAPLE; texts are lower case without punctuation, tokenised at blanks.

    The JSON release has years: papers up to 2015 are for training and validation, the later ones
    are the test split, as in the paper, whose own draw of validation papers is not published. The
    graph release has none and is split at random.

    MAPLE has depths of labels but no edges between them; a ``taxonomy.txt`` of your own beside its
    files is read as their hierarchy.

    Args:
        subject: Folder of the release, such as Art or Biology_MeSH.
        release: Release format: "json" or "graph".
        labels: Label set: "mag" or, in the graph release, "mesh"; the JSON release has folders for
            these.
        fields: Metadata fields, among venue, author, reference.
        tokenizer: Text tokenization: "whitespace", as the texts are tokenised already, or "regex".
        hierarchy: Use of the taxonomy: "use" or "ignore".
        train_until: Last year of train, as for `SplitRule`; None splits at random.
        valid_until: Last year of valid, as for `SplitRule`.
        seed: Seed of the random split.
        **kwargs: Arguments of `CorpusDataset`.

    Raises:
        CorpusError: The files cannot be fetched, have no such subject, or with every fault of
            them, each with file:line.
        ConfigError: With every option that is none.
    """

    class Options(SplitOptions):
        """Arguments that settings may give."""

        subject: Annotated[str, Field(pattern="^[A-Za-z_]+$")] = "Art"
        release: Literal["json", "graph"] = "json"
        labels: LabelKind = "mag"
        fields: Sequence[MapleField] = FIELDS
        tokenizer: Tokenizer = "whitespace"
        hierarchy: Hierarchy = "use"
        train_until: DateOption = _LAST_YEAR

    card = Card(
        "maple", "ODC-BY", "20 subjects, 58,373 (Art) to 2,646,105 papers", "fetched from Zenodo"
    )

    def __init__(
        self,
        subject: str = "Art",
        release: Literal["json", "graph"] = "json",
        labels: LabelKind = "mag",
        fields: Sequence[MapleField] = FIELDS,
        tokenizer: Tokenizer = "whitespace",
        hierarchy: Hierarchy = "use",
        train_until: DateOption = _LAST_YEAR,
        valid_until: DateOption = None,
        seed: int = 0,
        **kwargs: Any,
    ) -> None:
        self.check_options(
            {
                "subject": subject,
                "release": release,
                "labels": labels,
                "fields": fields,
                "tokenizer": tokenizer,
                "hierarchy": hierarchy,
                "train_until": train_until,
                "valid_until": valid_until,
                "seed": seed,
            }
        )
        self.subject, self.release, self.labels = subject, release, labels
        self.fields, self.tokenizer, self.hierarchy_mode = list(fields), tokenizer, hierarchy
        dates = (None, None) if release == "graph" else (train_until, valid_until)
        self.rule = SplitRule.from_options(*dates, seed)
        super().__init__(name=f"maple-{subject}", **kwargs)

    @property
    def raw_dir(self) -> str:
        return str(Path(self.root) / "raw" / "maple" / self.release / self.subject)

    @property
    def _known_files(self) -> tuple[str, ...]:
        return JSON_FILES if self.release == "json" else (*GRAPH_FILES, TAXONOMY)

    @property
    def raw_file_names(self) -> list[str]:
        kind = "mesh" if self.labels == "mesh" else "label"
        required = (
            ["papers.json"] if self.release == "json" else ["papers.txt", f"paper-{kind}.txt"]
        )
        there = [name for name in self._known_files if is_there(Path(self.raw_dir) / name)]
        return list(dict.fromkeys([*required, *there]))

    @property
    def options(self) -> dict[str, Any]:
        return {
            "subject": self.subject,
            "release": self.release,
            "labels": self.labels,
            "fields": self.fields,
            "tokenizer": self.tokenizer,
            "word_pattern": WORD_PATTERN,
            "hierarchy": self.hierarchy_mode,
            **self.rule.to_dict(),
        }

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
                archives = fetch_record(RELEASES[self.release], folder, "maple", self.track)
            seen: set[str] = set()
            for archive in archives:
                if archive.name.endswith(SUFFIXES):
                    unpack_archive(archive, folder, lambda path: self._choose(path, seen))
            missing = [Path(path).name for path in missing if not Path(path).is_file()]
            if missing:
                raise CorpusError(
                    f"The archives of 'maple' must hold a folder '{self.subject}' with "
                    f"{' and '.join(missing)}, but those in '{folder}' do not; choose a subject "
                    f"from {sorted(seen)}, or fetch them again."
                )

    def _choose(self, path: PurePosixPath, seen: set[str]) -> PurePosixPath | None:
        """Target path of a member of the subject; other subjects are noted."""
        subject = path.parent.name
        if path.name in self._known_files:
            seen.add(subject)
        is_ours = subject == self.subject and path.name in self._known_files
        return PurePosixPath(subject, path.name) if is_ours else None

    def read(self) -> Corpus:
        folder, rest = (
            Path(self.raw_dir),
            (self.hierarchy_mode, self.rule, self.track, self.faults_mode),
        )
        if self.release == "json":
            return read_maple_json(folder, self.fields, self.tokenizer, *rest)
        return read_maple_graph(folder, self.fields, self.tokenizer, self.labels, *rest)


def read_maple_json(
    folder: Path,
    fields: Sequence[str] = FIELDS,
    tokenizer: Tokenizer = "whitespace",
    hierarchy: Hierarchy = "use",
    rule: SplitRule | None = None,
    track: Track | None = None,
    faults: Faults = "refuse",
) -> Corpus:
    """Reads a folder of the JSON release.

    Args:
        folder: Folder with ``papers.json``; ``labels.txt`` (id, name, depth), ``authors.txt``,
            ``venues.txt`` (id, normalised name, name) and ``taxonomy.txt`` may be missing.
        fields: Metadata fields, among `FIELDS`.
        tokenizer: Text tokenization: "whitespace" for the texts as they are.
        hierarchy: Use of the taxonomy: "use" or "ignore".
        rule: Split rule; None splits by the paper's year.
        track: Progress tracker.
        faults: Policy for faulty documents, as for `CorpusDataset`.

    Raises:
        CorpusError: With every fault of the files, each with file:line.
    """
    rule = rule or SplitRule(train_until=str(_LAST_YEAR))
    summary = f"The folder '{folder}' must be one of MAPLE's"
    builder = CorpusBuilder("maple", fields, summary, faults)
    num_undated = 0
    edges: list[tuple[str, str, str]] = []
    with open_sources([folder / name for name in JSON_FILES], "maple", track) as sources:
        path = folder / "papers.json"
        with builder.documents():
            for place, record in read_json_lines(sources.lines(path), path.name, builder.fail):
                if builder.is_hopeless:
                    break
                num_undated += _add_paper(builder, record, rule, tokenizer, place)
        read_label_names(folder / "labels.txt", builder, sources)
        for field in builder.fields:  # there is none for references
            read_names(folder / f"{field}s.txt", field, builder, sources)
        if hierarchy == "use" and is_there(folder / TAXONOMY):
            edges = read_taxonomy(sources.lines(folder / TAXONOMY), TAXONOMY, builder.fail)
    corpus = builder.build(edges)
    corpus.notes["undated_documents_in_train"] = num_undated
    return corpus


def _add_paper(
    builder: CorpusBuilder,
    record: Mapping[str, Any],
    rule: SplitRule,
    tokenizer: Tokenizer,
    place: str,
) -> bool:
    """Adds one paper, or its faults; returns whether it is in train for want of a year."""
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
        return False
    text = " ".join(part for part in parts if part)
    day = year[0] if year else None
    words = split_words(text, tokenizer)
    split = rule.choose(document, text, day)
    builder.add(document, split, text, words, metadata, labels or [], place)
    return rule.undated(day)
