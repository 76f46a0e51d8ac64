"""Base of data sets made from a user's own files."""

from pathlib import Path
from typing import Any, ClassVar

from match_graph.datasets.dataset import CorpusDataset, default_root
from match_graph.datasets.splits import SplitRule
from match_graph.errors import CorpusError
from match_graph.io.source import find_files, is_there, open_regular, resolve_path


class UserFiles(CorpusDataset):
    """Base of data sets from a user's files; nothing is written beside these.

    A subclass names its `suffixes`, and gives `read` and PyG's arguments.

    Args:
        path: Path of a file, or of a folder of which the files with one of the suffixes count; None
            takes ``raw/NAME`` below the root.
        extra: Further files by role, which are read but not as documents.
        rule: Split rule.
        **kwargs: Arguments of `CorpusDataset`.

    Raises:
        CorpusError: There is no file.
    """

    suffixes: ClassVar[tuple[str, ...]]
    path_options: ClassVar[tuple[str, ...]] = ("path",)

    def __init__(
        self, path: str | None, extra: dict[str, str | None], rule: SplitRule, **kwargs: Any
    ) -> None:
        assert self.card is not None
        name = self.card.name
        root = Path(kwargs.get("root") or default_root())
        self.path = root / "raw" / name if path is None else Path(path)
        self.rule = rule
        self.extra = {role: Path(file) for role, file in extra.items() if file is not None}
        for role, file in self.extra.items():
            if is_there(file) and not file.is_dir():
                open_regular(file).close()
            else:
                raise CorpusError(
                    f"The option '{role}' of '{name}' must name a file, but there is none at "
                    f"'{file}'; check the path."
                )
        taken = {resolve_path(file) for file in self.extra.values()}
        found = find_files(self.path, self.suffixes, name)
        self.files = [file for file in found if resolve_path(file) not in taken]
        super().__init__(name=name, **kwargs)

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
