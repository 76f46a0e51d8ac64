"""Counts of the paper's corpora, as printed."""

import pytest

from match_graph.datasets.table_one import PAPER_SIZES

#: Table 1 of the paper as printed: MAG-CS, PubMed.
TABLE_1 = {
    "train": (564_340, 718_837),
    "valid": (70_534, 89_855),
    "test": (70_533, 89_854),
    "labels": (15_809, 17_963),
    "labels per document": (5.60, 7.78),
    "words": (425_316, 776_975),
    "words per document": (126.33, 198.97),
    "authors": (818_927, 2_201_919),
    "venues": (105, 150),
    "author_edges": (2_274_546, 5_989_142),
    "documents": (705_407, 898_546),
    "citations": (1_518_466, 4_455_702),
    "hierarchy_edges": (27_288, 22_842),
    "layers": (6, 15),
}


@pytest.mark.parametrize(("column", "name"), [(0, "mag-cs"), (1, "pubmed")])
def test_PAPER_SIZES_sizes_are_those_of_table_1(column: int, name: str) -> None:
    """Counts as printed, means to the printed digits."""
    size = PAPER_SIZES[name]
    found = {key: getattr(size, key) for key in TABLE_1 if " " not in key}
    found["labels per document"] = round(size.label_pairs / size.documents, 2)
    found["words per document"] = round(size.tokens / size.documents, 2)
    assert found == {key: values[column] for key, values in TABLE_1.items()}
    assert size.find_fault() is None
