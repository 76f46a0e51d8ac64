"""Counts of the corpora in the paper's Table 1."""

from dataclasses import dataclass


@dataclass(frozen=True)
class PaperSize:
    """Counts of a corpus.

    Args:
        train: Number of training documents.
        valid: Number of validation documents.
        test: Number of test documents.
        labels: Number of labels in the hierarchy.
        label_pairs: Number of (document, label) pairs.
        words: Number of distinct words.
        tokens: Number of (document, word) pairs, repeated words too.
        authors: Number of distinct authors.
        author_edges: Number of (document, author) pairs.
        venues: Number of distinct venues; a document has one.
        citations: Number of (document, cited document) pairs.
        hierarchy_edges: Number of (child, parent) edges.
        layers: Number of layers of the hierarchy.
    """

    train: int
    valid: int
    test: int
    labels: int
    label_pairs: int
    words: int
    tokens: int
    authors: int
    author_edges: int
    venues: int
    citations: int
    hierarchy_edges: int
    layers: int

    @property
    def documents(self) -> int:
        return self.train + self.valid + self.test

    def scale(self, documents: float = 1.0, labels: float = 1.0) -> "PaperSize":
        """Counts of a smaller or larger corpus with the same means.

        Args:
            documents: Factor of the documents and of what grows with them: all but venues, labels
                and hierarchy.
            labels: Factor of labels and hierarchy edges.
        """
        factor = dict.fromkeys(vars(self), documents)
        factor |= {"labels": labels, "hierarchy_edges": labels, "venues": 1.0, "layers": 1.0}
        counts: dict[str, int] = vars(self)
        return PaperSize(**{name: round(count * factor[name]) for name, count in counts.items()})

    def published(self) -> dict[str, float]:
        """Rows of the paper's Table 1, by the names that counts of a built data set have."""
        return {
            "train documents": self.train,
            "valid documents": self.valid,
            "test documents": self.test,
            "labels": self.labels,
            "labels / document": round(self.label_pairs / self.documents, 2),
            "vocabulary": self.words,
            "words / document": round(self.tokens / self.documents, 2),
            "author nodes": self.authors,
            "venue nodes": self.venues,
            "document-author edges": self.author_edges,
            "document-venue edges": self.documents,
            "document-reference edges": self.citations,
            "hierarchy_edges_read": self.hierarchy_edges,
            "hierarchy layers": self.layers,
        }

    def find_fault(self) -> str | None:
        """Reason why no such corpus can be drawn, or None."""
        if self.labels < 10 * self.layers:
            return (
                f"a hierarchy of {self.layers} layers needs {10 * self.layers} labels, found "
                f"{self.labels}; raise label_scale."
            )
        if self.documents < max(2 * self.labels, 2 * self.venues):
            return (
                f"{self.labels} labels and {self.venues} venues need twice as many documents, "
                f"found {self.documents}; raise scale or lower label_scale."
            )
        return None


#: Table 1 of https://arxiv.org/abs/2102.07349. The table and the text of the paper differ on
#: PubMed's labels (17,963 and 17,693): the table's number stands here.
PAPER_SIZES: dict[str, PaperSize] = {
    "mag-cs": PaperSize(
        train=564_340, valid=70_534, test=70_533,
        labels=15_809, label_pairs=round(5.60 * 705_407),
        words=425_316, tokens=round(126.33 * 705_407),
        authors=818_927, author_edges=2_274_546, venues=105, citations=1_518_466,
        hierarchy_edges=27_288, layers=6,
    ),
    "pubmed": PaperSize(
        train=718_837, valid=89_855, test=89_854,
        labels=17_963, label_pairs=round(7.78 * 898_546),
        words=776_975, tokens=round(198.97 * 898_546),
        authors=2_201_919, author_edges=5_989_142, venues=150, citations=4_455_702,
        hierarchy_edges=22_842, layers=15,
    ),
}  # fmt: skip
