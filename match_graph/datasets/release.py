"""MAG-CS and PubMed as the paper's authors released them, with the counts of the paper's Table 1.

Source: https://github.com/yuzhimanhua/MATCH, whose README describes the folders ``MAG`` and
``MeSH``; counts: https://arxiv.org/abs/2102.07349, Table 1.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from match_graph.datasets.match_folder import (
    FIELDS,
    SPLIT_FILES,
    TAXONOMY,
    VOCABULARY,
    MatchFiles,
    split_labels,
    write_lines,
    write_match_folder,
)
from match_graph.datasets.options import Card, tokenizer_field
from match_graph.datasets.table_one import PAPER_SIZES
from match_graph.errors import CorpusError
from match_graph.typing import Split, Tokenizer

_REQUIRED = [*SPLIT_FILES.values(), FIELDS, TAXONOMY]
_FIRST_ID = 2_000_000_000  # labels and authors are Microsoft Academic Graph ids
_LICENCE = "none stated; made from the Microsoft Academic Graph (ODC-BY)"


class Release(MatchFiles):
    """Base class of the two released folders.

    Words and metadata are ids in the files; ``vocabulary.txt`` maps them back to words, and
    ``id2label.txt`` and ``id2author.txt``, if present, to names.
    """

    class Config(MatchFiles.Config):
        """Options of the released folders, whose texts are tokenised already."""

        tokenizer: Tokenizer = tokenizer_field("whitespace")

    #: The released folder's name.
    folder_name: ClassVar[str]

    @property
    def raw_dir(self) -> str:
        return str(Path(self.root) / "raw" / self.folder_name)

    @property
    def raw_file_names(self) -> list[str]:
        return list(dict.fromkeys([*_REQUIRED, *super().raw_file_names]))

    @classmethod
    def has_raw(cls, root: Path) -> bool:
        return all((root / "raw" / cls.folder_name / name).is_file() for name in _REQUIRED)

    def download(self) -> None:
        """Refuses with instructions: the link has no checksum and needs a browser."""
        missing = [name for name in _REQUIRED if not (Path(self.raw_dir) / name).is_file()]
        raise CorpusError(
            f"The data set '{self.name}' must be fetched by hand, but {' and '.join(missing)} "
            f"{'is' if len(missing) == 1 else 'are'} not in '{self.raw_dir}'; take the link "
            f"'datasets' of https://github.com/yuzhimanhua/MATCH and unpack the folder "
            f"{self.folder_name} there."
        )


class MagCs(Release):
    """MAG-CS of the paper: computer science papers of 105 conferences, 1990 to 2020."""

    card = Card("mag-cs", _LICENCE, "705,407 documents", "the authors' folder MAG, by hand")
    folder_name = "MAG"
    published = PAPER_SIZES["mag-cs"].published()


class PubMed(Release):
    """PubMed of the paper: articles of 150 journals, 2010 to 2020, by MeSH categories A to H.

    The paper's text says 17,693 labels, its Table 1 and the release say 17,963.
    """

    card = Card("pubmed", _LICENCE, "898,546 documents", "the authors' folder MeSH, by hand")
    folder_name = "MeSH"
    published = PAPER_SIZES["pubmed"].published()


def write_release(
    folder: Path,
    documents: Mapping[Split, Sequence[Mapping[str, Any]]],
    taxonomy: Iterable[str],
    fields: Sequence[str],
) -> None:
    """Writes documents in the format of the folders ``MAG`` and ``MeSH``.

    Words are numbers of ``vocabulary.txt``; labels and authors are ids that ``id2label.txt`` and
    ``id2author.txt`` name. Further files of the release (all splits in one file, embeddings) are
    left out. Arguments as for `write_match_folder`; texts are split at white space.
    """
    words: dict[str, str] = {}
    labels: dict[str, str] = {}
    authors: dict[str, str] = {}

    def code(codes: dict[str, str], values: Iterable[str], first: int = _FIRST_ID) -> list[str]:
        return [codes.setdefault(value, str(first + len(codes))) for value in values]

    coded: dict[Split, list[dict[str, Any]]] = {
        split: [
            {
                **content,
                "text": " ".join(code(words, content["text"].split(), 0)),
                "label": code(labels, content["label"]),
                "author": code(authors, content.get("author", [])),
            }
            for content in contents
        ]
        for split, contents in documents.items()
    }
    lines = [" ".join(code(labels, split_labels(line))) for line in taxonomy]
    write_match_folder(folder, coded, lines, fields)
    for name, codes in (("id2label.txt", labels), ("id2author.txt", authors), (VOCABULARY, words)):
        write_lines(folder / name, (f"{number}\t{value}" for value, number in codes.items()))
