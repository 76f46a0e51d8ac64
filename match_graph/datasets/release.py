"""MAG-CS and PubMed as the paper's authors released them, with the counts of the paper's Table 1.

Source: https://github.com/yuzhimanhua/MATCH, whose README describes the folders ``MAG`` and
``MeSH``; counts: https://arxiv.org/abs/2102.07349, Table 1.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from match_graph.corpus import Tokenizer
from match_graph.datasets.dataset import Card
from match_graph.datasets.match_folder import FIELDS, SPLIT_FILES, TAXONOMY, MatchFiles
from match_graph.datasets.options import tokenizer_field
from match_graph.errors import CorpusError

_REQUIRED = [*SPLIT_FILES.values(), FIELDS, TAXONOMY]
_LICENCE = "none stated; made from the Microsoft Academic Graph (ODC-BY)"


class Release(MatchFiles):
    """Base class of the two released folders.

    Words and metadata are ids in the files; words come back by ``vocabulary.txt``, names of labels
    and authors stand beside the ids where ``id2label.txt`` and ``id2author.txt`` are there.
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
        """Refuses with where to put the files: the link has no checksum and needs a browser."""
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
    published: ClassVar[Mapping[str, float]] = {
        "train documents": 564_340,
        "valid documents": 70_534,
        "test documents": 70_533,
        "labels": 15_809,
        "labels / document": 5.60,
        "vocabulary": 425_316,
        "words / document": 126.33,
        "author nodes": 818_927,
        "venue nodes": 105,
        "document-author edges": 2_274_546,
        "document-venue edges": 705_407,
        "document-reference edges": 1_518_466,
        "hierarchy_edges_read": 27_288,
        "hierarchy layers": 6,
    }


class PubMed(Release):
    """PubMed of the paper: articles of 150 journals, 2010 to 2020, by MeSH categories A to H.

    The paper's text says 17,693 labels, its Table 1 and the release say 17,963.
    """

    card = Card("pubmed", _LICENCE, "898,546 documents", "the authors' folder MeSH, by hand")
    folder_name = "MeSH"
    published: ClassVar[Mapping[str, float]] = {
        "train documents": 718_837,
        "valid documents": 89_855,
        "test documents": 89_854,
        "labels": 17_963,
        "labels / document": 7.78,
        "vocabulary": 776_975,
        "words / document": 198.97,
        "author nodes": 2_201_919,
        "venue nodes": 150,
        "document-author edges": 5_989_142,
        "document-venue edges": 898_546,
        "document-reference edges": 4_455_702,
        "hierarchy_edges_read": 22_842,
        "hierarchy layers": 15,
    }
