"""Small folder as the paper's authors released it: ids instead of words and names."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from match_graph.datasets.match_folder import SPLIT_FILES, VOCABULARY
from match_graph.testing.toy import TOY_TAXONOMY, toy_documents, write_match_folder
from match_graph.typing import Split

_FIRST_ID = 2_000_000_000  # labels and authors are Microsoft Academic Graph ids


def write_release_folder(
    folder: str | Path,
    documents: Mapping[Split, Sequence[Mapping[str, Any]]] | None = None,
    taxonomy: Sequence[str] = TOY_TAXONOMY,
) -> Path:
    """Writes documents in the format of the folders ``MAG`` and ``MeSH``.

    Words are numbers of ``vocabulary.txt``; labels and authors are ids that ``id2label.txt`` and
    ``id2author.txt`` name. What the release holds besides (all splits in one file, embeddings) is
    left out.

    Args:
        folder: Folder ``MAG`` or ``MeSH`` in the folder ``raw`` of a root.
        documents: JSON documents by split, their texts split at white space; None takes
            `toy_documents`.
        taxonomy: Taxonomy lines "parent child child ..." by name.

    Returns:
        The folder.
    """
    folder = Path(folder)
    given = toy_documents() if documents is None else documents
    words: dict[str, str] = {}
    labels: dict[str, str] = {}
    authors: dict[str, str] = {}
    coded: dict[Split, list[dict[str, Any]]] = {split: [] for split in SPLIT_FILES}
    for split, records in given.items():
        for record in records:
            text = [words.setdefault(word, str(len(words))) for word in record["text"].split()]
            changed = {
                "text": " ".join(text),
                "label": [_code(labels, label) for label in record["label"]],
                "author": [_code(authors, author) for author in record.get("author", [])],
            }
            coded[split].append({**record, **changed})
    lines = [" ".join(_code(labels, label) for label in line.split()) for line in taxonomy]
    write_match_folder(folder, coded, lines)
    for name, table in (("id2label.txt", labels), ("id2author.txt", authors)):
        _write_pairs(folder / name, table)
    _write_pairs(folder / VOCABULARY, words)
    return folder


def _write_pairs(path: Path, codes: Mapping[str, str]) -> None:
    lines = [f"{code}\t{value}\n" for value, code in codes.items()]
    path.write_text("".join(lines), encoding="utf-8")


def _code(codes: dict[str, str], value: str) -> str:
    return codes.setdefault(value, str(_FIRST_ID + len(codes)))
