"""A user's own files: JSON lines or CSV of any layout, whose columns are named by options."""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field

from match_graph.corpus import Faults, TableLayout
from match_graph.corpus_builder import CorpusBuilder
from match_graph.datasets.dataset import CorpusDataset
from match_graph.datasets.match_folder import read_taxonomy
from match_graph.datasets.options import Card, HierarchyConfig, SplitConfig
from match_graph.datasets.partitions import PartitionReader
from match_graph.datasets.table_rows import TableConfig, TableReader
from match_graph.errors import CorpusError
from match_graph.io.csv_lines import find_delimiter, read_csv_rows
from match_graph.io.json_lines import read_json_lines
from match_graph.io.partition import Partition, split_lines
from match_graph.io.source import Sources, find_files, is_there, open_regular, resolve_path


class UserFiles(CorpusDataset):
    """Base of data sets from a user's files, beside which nothing is written.

    A subclass lists its `suffixes`, and options of further files in `path_options` after ``path``.
    """

    class Config(HierarchyConfig, SplitConfig):
        """Options of a user's files."""

        path: str | None = Field(
            None, description="a file, or a folder of such files; none: raw/NAME below the root"
        )

    config: Config
    suffixes: ClassVar[tuple[str, ...]]
    path_options: ClassVar[tuple[str, ...]] = ("path",)

    @cached_property
    def path(self) -> Path:
        """File, or folder whose files with one of the suffixes are read."""
        path = self.config.path
        return Path(self.root, "raw", self.name) if path is None else Path(path)

    def find_extra(self) -> dict[str, str | None]:
        """Further files by option, such as the hierarchy, which hold no documents."""
        is_used = self.config.hierarchy == "use"
        return {name: getattr(self.config, name) for name in self.path_options[1:] if is_used}

    @cached_property
    def extra(self) -> dict[str, Path]:
        """Further files that are given, after a check that each exists.

        Raises:
            CorpusError: One is missing.
        """
        extra = {name: Path(file) for name, file in self.find_extra().items() if file is not None}
        for name, file in extra.items():
            if is_there(file) and not file.is_dir():
                open_regular(file).close()
            else:
                raise CorpusError(
                    f"The option '{name}' of '{self.name}' must name a file, but there is none at "
                    f"'{file}'; check the path."
                )
        return extra

    @cached_property
    def files(self) -> list[Path]:
        """Files of documents, without the further files.

        Raises:
            CorpusError: There is none.
        """
        given = (getattr(self.config, name) for name in self.path_options[1:])
        taken = {resolve_path(file) for file in (*given, *self.extra.values()) if file is not None}
        found = find_files(self.path, self.suffixes, self.name)
        return [file for file in found if resolve_path(file) not in taken]

    @property
    def options(self) -> dict[str, Any]:
        return super().options | {name: name in self.extra for name in self.path_options[1:]}

    @property
    def raw_dir(self) -> str:
        return str(self.path if self.path.is_dir() else self.path.parent)

    @property
    def raw_file_names(self) -> list[str]:
        return [str(resolve_path(file)) for file in (*self.files, *self.extra.values())]

    @classmethod
    def has_raw(cls, root: Path) -> bool:
        assert cls.card is not None
        try:
            return bool(find_files(root / "raw" / cls.card.name, cls.suffixes, cls.card.name))
        except CorpusError:
            return False


class Custom(UserFiles):
    """Custom data set: a JSON object or a row of CSV per document.

    The files are ``.jsonl``, ``.json`` or ``.ndjson`` with an object a line, ``.csv`` or ``.tsv``
    with a header, packed by gzip or not.
    """

    class Config(UserFiles.Config, TableConfig):
        """Options of a custom data set."""

        separator: str = Field(
            ";",
            description="between the values of a cell of CSV, for labels and fields; blanks around "
            'it do not count; "": a cell is one value',
        )
        taxonomy: str | None = Field(
            None,
            description="file with a parent and its children a line, by tabs where the line has "
            "one, else by white space",
        )

    config: Config
    card = Card("custom", "that of your documents", "yours", "JSON lines or CSV of yours")
    suffixes = (".jsonl", ".json", ".ndjson", ".csv", ".tsv")
    path_options = ("path", "taxonomy")

    @property
    def layout(self) -> TableLayout:
        return self.config.make_layout().model_copy(update={"separator": self.config.separator})

    def reader(self) -> "CustomReader":
        return CustomReader(self.files, self.config, self.faults_mode)


class CustomReader(PartitionReader):
    """Reader of JSON lines, in blocks, and of CSV, whose rows may hold line breaks, by files.

    Args:
        files: Paths of the files.
        config: Options.
        faults: Policy for faulty documents.
    """

    def __init__(
        self, files: Sequence[Path], config: Custom.Config, faults: Faults = "refuse"
    ) -> None:
        self.files, self.config = list(files), config
        self.taxonomy = config.list_hierarchy_files(config.taxonomy)
        summary, paths = "The files of 'custom' must hold documents", [*files, *self.taxonomy]
        super().__init__("custom", config.fields, summary, faults, config.tokenizer, paths)

    def list_partitions(self, block: int | None = None) -> list[Partition]:
        return [
            part
            for path in self.files
            for part in split_lines(path, size=None if find_delimiter(path) else block)
        ]

    def read(self, partition: Partition, builder: CorpusBuilder, sources: Sources) -> None:
        reader, separator = self._make_reader(builder), None
        lines, name = partition.lines(sources), partition.path.name
        delimiter = find_delimiter(partition.path)
        if delimiter is None:
            rows = read_json_lines(lines, name, builder.fail, partition.line)
        else:
            separator = self.config.separator
            rows = read_csv_rows(lines, name, delimiter, builder.fail, builder.fail_file)
        for place, row in builder.documents(rows):
            reader.add(row, place, separator)
        reader.note_columns()

    def finish(self, builder: CorpusBuilder, sources: Sources) -> None:
        for path in self.taxonomy:
            for edge in read_taxonomy(sources.lines(path), path.name, builder.fail):
                builder.edges.setdefault(edge[:2], edge[2])
        reader = self._make_reader(builder)
        reader.check_columns()
        reader.check_lists()

    def _make_reader(self, builder: CorpusBuilder) -> "TableReader":
        return TableReader(builder, self.config, "data.options.columns")
