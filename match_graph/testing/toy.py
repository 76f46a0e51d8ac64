"""Tiny data set in the MATCH format, dirty on purpose, as files and as a `Corpus`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

from match_graph.corpus import Corpus
from match_graph.datasets import match_folder
from match_graph.datasets.release import write_release
from match_graph.typing import Split

#: JSON objects of the MATCH format by split.
Documents: TypeAlias = Mapping[Split, Sequence[Mapping[str, Any]]]

#: A parent and its children a line. "bridge" closes a diamond below "science"; no document carries
#: "methods", so "kernels" joins "science" when the hierarchy is contracted.
TOY_TAXONOMY: tuple[str, ...] = (
    "science learning biology methods",
    "learning deep bridge",
    "biology bridge cells",
    "methods kernels",
)

TOY_FIELDS: tuple[str, ...] = ("venue", "author", "reference")


def toy_documents() -> dict[Split, list[dict[str, Any]]]:
    """Twelve invented documents by split, each a JSON object of the MATCH format.

    Dirty on purpose: a missing, an empty and a null venue, a venue as string and as list, an empty
    author list, an author listed twice, an empty text, a document without labels, a label outside
    the hierarchy ("misc"), a label only on test ("cells"), unicode names, an id given as a number,
    and references to documents of the corpus, to the document itself and to outside.
    """
    return {
        "train": [
            {
                "paper": "t1",
                "venue": "Journal of Toys",
                "author": ["Åsa_Öberg", "李_Li"],
                "reference": ["t2", "outside-1"],
                "text": "Learning graphs from small graphs, in C++.",
                "label": ["science", "learning"],
            },
            {
                "paper": "t2",
                "author": ["李_Li"],
                "reference": [],
                "text": "Deep learning of deep graphs: x-ray of a deep net.",
                "label": ["deep", "learning", "science"],
            },
            {
                "paper": "t3",
                "venue": ["Toy Letters", "Journal of Toys"],
                "author": [],
                "reference": ["outside-1", "outside-2"],
                "text": "Cells of a small mouse; naïve cells.",
                "label": ["biology", "science"],
            },
            {
                "paper": "t4",
                "venue": "Toy Letters",
                "author": ["Ola_Żak", "Åsa_Öberg"],
                "reference": ["t1", "v1"],
                "text": "",
                "label": ["bridge", "learning", "biology", "science"],
            },
            {
                "paper": "t5",
                "venue": "Toy Letters",
                "author": ["Ola_Żak"],
                "reference": ["t1"],
                "text": "A note without labels on small graphs.",
                "label": [],
            },
            {
                "paper": "t6",
                "venue": "Journal of Toys",
                "author": ["Bo"],
                "reference": ["outside-2"],
                "text": "Odds and ends.",
                "label": ["misc"],
            },
            {
                "paper": "t7",
                "venue": "",
                "author": ["Åsa_Öberg", "Bo", "Åsa_Öberg"],
                "reference": ["t3"],
                "text": "Kernels for graphs.",
                "label": ["kernels", "science"],
            },
            {
                "paper": 8,
                "venue": None,
                "author": ["Bo"],
                "reference": ["8", "t7"],
                "text": "Kernels again: KERNELS, kernels.",
                "label": ["kernels"],
            },
        ],
        "valid": [
            {
                "paper": "v1",
                "venue": "Toy Letters",
                "author": ["李_Li"],
                "reference": ["t1", "outside-3"],
                "text": "Deep nets for small graphs.",
                "label": ["deep", "learning", "science"],
            },
            {
                "paper": "v2",
                "venue": "Annals of Trifles",
                "author": ["Ola_Żak", "Bo"],
                "reference": [],
                "text": "A bridge between cells and graphs.",
                "label": ["bridge", "biology"],
            },
        ],
        "test": [
            {
                "paper": "x1",
                "venue": "Journal of Toys",
                "author": ["Nobody_New"],
                "reference": ["t3", "v1"],
                "text": "Cells under the x-ray.",
                "label": ["cells", "biology", "science"],
            },
            {
                "paper": "x2",
                "venue": "Toy Letters",
                "author": ["Åsa_Öberg"],
                "reference": ["outside-9"],
                "text": "Unheard-of vocabulary.",
                "label": ["learning", "science"],
            },
        ],
    }


def write_match_folder(
    folder: str | Path,
    documents: Documents | None = None,
    taxonomy: Sequence[str] = TOY_TAXONOMY,
    fields: Sequence[str] = TOY_FIELDS,
) -> Path:
    """Writes a folder in the MATCH format, making it if need be; returns it.

    Args:
        folder: Folder of the files; others in it are left alone.
        documents: Documents by split, as JSON objects; splits that are not given are written empty.
            None takes `toy_documents`.
        taxonomy: Taxonomy lines "parent child child ...".
        fields: Metadata fields for ``meta_dict.json``.
    """
    given = toy_documents() if documents is None else documents
    match_folder.write_match_folder(Path(folder), given, taxonomy, fields)
    return Path(folder)


def write_release_folder(
    folder: str | Path,
    documents: Documents | None = None,
    taxonomy: Sequence[str] = TOY_TAXONOMY,
) -> Path:
    """Writes a folder as the paper's authors released it, ids instead of words; returns it.

    Args:
        folder: Folder ``MAG`` or ``MeSH`` in the folder ``raw`` of a root.
        documents: JSON documents by split, their texts split at white space; None takes
            `toy_documents`.
        taxonomy: Taxonomy lines "parent child child ..." by name.
    """
    given = toy_documents() if documents is None else documents
    write_release(Path(folder), given, taxonomy, TOY_FIELDS)
    return Path(folder)


def toy_corpus() -> Corpus:
    """Corpus of `toy_documents` with `TOY_TAXONOMY`; no file is left behind."""
    with TemporaryDirectory() as parent:
        return match_folder.MatchReader(write_match_folder(Path(parent) / "toy")).read_corpus()
