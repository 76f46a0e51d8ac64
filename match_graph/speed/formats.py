"""Writers of a sample of documents, one for the format of each reader."""

import csv
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape, quoteattr

import torch

from match_graph.datasets import CorpusDataset
from match_graph.datasets.match_folder import TAXONOMY, write_lines
from match_graph.datasets.release import write_release
from match_graph.export.target import NOT_IN_XML
from match_graph.typing import DOCUMENT, LABEL, MASKS, SPLITS, Split

#: Metadata fields that every format can hold.
COMMON_FIELDS = ("venue", "author", "reference")
#: Year that encodes a split in formats without splits, and the options that decode it.
YEARS = dict(zip(SPLITS, ("2000", "2001", "2002"), strict=True))
SPLIT = {"train_until": YEARS["train"], "valid_until": YEARS["valid"]}
#: Separator of the values in a cell of CSV, a character that no name contains.
SEPARATOR = "\x1f"

#: Documents that are converted to records at a time.
_AT_ONCE = 5000


@dataclass(frozen=True)
class Sample:
    """Sample of documents as records, with the label hierarchy.

    Args:
        records: Documents in the MATCH format, each with its ``split``.
        parents: Parents of every label of the data set, ancestors before descendants.
        depth: Depth of every label.
        fields: Metadata fields, those of `COMMON_FIELDS` that the data set has.
    """

    records: list[dict[str, Any]]
    parents: dict[str, list[str]]
    depth: dict[str, int]
    fields: list[str]

    def taxonomy(self, separator: str) -> Iterator[str]:
        """Taxonomy lines, each of a parent and its children."""
        children: dict[str, list[str]] = {}
        for child, parents in self.parents.items():
            for parent in parents:
                children.setdefault(parent, []).append(child)
        return (separator.join([parent, *names]) for parent, names in children.items())


def take_sample(dataset: CorpusDataset, limit: int) -> Sample:
    """Sample of documents, evenly spread over the data set.

    Line breaks and control characters of texts are replaced by blanks, as some formats cannot hold
    them.
    """
    total = dataset.graph.num_nodes(DOCUMENT)
    documents = torch.linspace(0, total - 1, min(total, limit)).long()
    split = {
        int(document): name
        for name, mask in MASKS.items()
        for document in documents[torch.isin(documents, dataset.documents(mask))]
    }
    records = []
    for part in documents.split(_AT_ONCE):
        for number, record in zip(part.tolist(), dataset.as_json(part.tolist()), strict=True):
            record["text"] = " ".join(NOT_IN_XML.sub(" ", record["text"]).split())
            records.append({**record, "split": split[number]})
    names, dag = dataset.names(LABEL).tolist(), dataset.hierarchy
    parents: dict[str, list[str]] = {names[label]: [] for label in dag.depth.argsort().tolist()}
    for child, parent in dag.edge_index.t().tolist():
        parents[names[child]].append(names[parent])
    depth = dict(zip(names, dag.depth.tolist(), strict=True))
    return Sample(records, parents, depth, [name for name in COMMON_FIELDS if name in records[0]])


def write_mag_cs(sample: Sample, folder: Path) -> None:
    """Writes the format of the authors' release of MAG-CS: words, labels and authors as numbers."""
    names = ("paper", "text", "label", *sample.fields)
    documents: dict[Split, list[dict[str, Any]]] = {split: [] for split in SPLITS}
    for record in sample.records:
        documents[record["split"]].append({name: record[name] for name in names})
    write_release(folder, documents, sample.taxonomy("\t"), sample.fields)


def write_maple_json(sample: Sample, folder: Path) -> None:
    """Writes the format of MAPLE's JSON release; the year encodes the split."""
    lines = (
        json.dumps(
            {
                **{name: record[name] for name in ("paper", "label", *sample.fields)},
                "title": "", "abstract": record["text"], "year": YEARS[record["split"]],
            }
        )
        for record in sample.records
    )  # fmt: skip
    write_lines(folder / "papers.json", lines)
    depths = (f"{label}\t{label}\t{depth}" for label, depth in sample.depth.items())
    write_lines(folder / "labels.txt", depths)
    write_lines(folder / TAXONOMY, sample.taxonomy("\t"))


def write_maple_graph(sample: Sample, folder: Path) -> None:
    """Writes the format of MAPLE's graph release: papers, and edges of labels and of each field."""
    papers = (f"PAPER_{record['paper']}\t{record['text']}" for record in sample.records)
    write_lines(folder / "papers.txt", papers)
    ends = {"label": ("label", "LABEL_"), "venue": ("venue", "VENUE_"),
            "author": ("author", "AUTHOR_"), "reference": ("paper", "PAPER_")}  # fmt: skip
    for kind in ("label", *sample.fields):
        name, prefix = ends[kind]
        edges = (
            f"PAPER_{record['paper']}\t{prefix}{value}"
            for record in sample.records
            for value in record[kind]
        )
        write_lines(folder / f"paper-{name}.txt", edges)
    write_lines(folder / TAXONOMY, sample.taxonomy("\t"))


def write_pubmed_xml(sample: Sample, folder: Path) -> None:
    """Writes NLM's XML with MeSH trees; the journal's year encodes the split."""
    head = '<?xml version="1.0" encoding="utf-8"?>\n<PubmedArticleSet>'
    articles = (_make_article(record, YEARS[record["split"]]) for record in sample.records)
    write_lines(folder / "records.xml", chain([head], articles, ["</PubmedArticleSet>"]))
    write_lines(folder / "mtrees.bin", _number_trees(sample.parents))


def _make_article(record: Mapping[str, Any], year: str) -> str:
    journal = f"<JournalIssue><PubDate><Year>{year}</Year></PubDate></JournalIssue>"
    more = ""
    for venue in record.get("venue", [])[:1]:
        journal += f"<Title>{escape(venue)}</Title>"
        more = (
            f"<MedlineJournalInfo><NlmUniqueID>{escape(venue)}</NlmUniqueID></MedlineJournalInfo>"
        )
    authors = "".join(
        f"<Author><LastName>{escape(name)}</LastName></Author>" for name in record.get("author", [])
    )
    headings = "".join(
        f"<MeshHeading><DescriptorName UI={quoteattr(label)}>{escape(label)}</DescriptorName>"
        f"</MeshHeading>"
        for label in record["label"]
    )
    references = "".join(
        f'<Reference><ArticleIdList><ArticleId IdType="pubmed">{escape(value)}</ArticleId>'
        f"</ArticleIdList></Reference>"
        for value in record.get("reference", [])
    )
    return (
        f'<PubmedArticle><MedlineCitation><PMID Version="1">{escape(record["paper"])}</PMID>'
        f"<Article><Journal>{journal}</Journal><ArticleTitle/><Abstract><AbstractText>"
        f"{escape(record['text'])}</AbstractText></Abstract><AuthorList>{authors}</AuthorList>"
        f"</Article>{more}<MeshHeadingList>{headings}</MeshHeadingList></MedlineCitation>"
        f"<PubmedData><ReferenceList>{references}</ReferenceList></PubmedData></PubmedArticle>"
    )


def _number_trees(parents: Mapping[str, list[str]]) -> Iterator[str]:
    """Lines of MeSH tree numbers, one per edge and per root.

    The number of an edge extends the first number of its parent.
    """
    first: dict[str, str] = {}
    for code, (label, above) in enumerate(parents.items()):
        for number in [f"{first[parent]}.{code}" for parent in above] or [f"A{code}"]:
            first.setdefault(label, number)
            yield f"{label};{number}"


def write_openalex(sample: Sample, folder: Path) -> None:
    """Writes OpenAlex works with concepts, and concepts with parents; dates encode the split."""
    write_lines(folder / "works.jsonl", (_make_work(sample, item) for item in sample.records))
    concepts = (
        {
            **_make_concept(sample, label),
            "ancestors": [
                {**_make_concept(sample, parent), "level": sample.depth[label] - 1}
                for parent in parents
            ],
        }
        for label, parents in sample.parents.items()
    )
    write_lines(folder / "concepts.jsonl", map(json.dumps, concepts))


def _make_concept(sample: Sample, label: str) -> dict[str, Any]:
    return {"id": _address(label), "display_name": label, "level": sample.depth[label]}


def _make_work(sample: Sample, record: Mapping[str, Any]) -> str:
    index: dict[str, list[int]] = {}
    for position, word in enumerate(record["text"].split()):
        index.setdefault(word, []).append(position)
    work: dict[str, Any] = {
        "id": _address(record["paper"]),
        "publication_date": f"{YEARS[record['split']]}-01-01",
        "abstract_inverted_index": index,
        "concepts": [{**_make_concept(sample, label), "score": 1.0} for label in record["label"]],
        "authorships": [
            {"author": {"id": _address(name), "display_name": name}}
            for name in record.get("author", [])
        ],
        "referenced_works": [_address(value) for value in record.get("reference", [])],
    }
    for venue in record.get("venue", [])[:1]:
        work["primary_location"] = {"source": {"id": _address(venue), "display_name": venue}}
    return json.dumps(work)


def _address(value: str) -> str:
    return f"https://openalex.org/{value}"


def write_json_lines(sample: Sample, folder: Path) -> None:
    """Writes JSON lines of a custom data set with a split column."""
    write_lines(folder / "custom.jsonl", map(json.dumps, sample.records))
    write_lines(folder / TAXONOMY, sample.taxonomy("\t"))


def write_csv(sample: Sample, folder: Path) -> None:
    """Writes CSV of a custom data set with the same columns."""
    with (folder / "custom.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        lists = ("label", *sample.fields)
        writer.writerow(["paper", "text", "split", *lists])
        for record in sample.records:
            cells = [SEPARATOR.join(record[name]) for name in lists]
            writer.writerow([record["paper"], record["text"], record["split"], *cells])
    write_lines(folder / TAXONOMY, sample.taxonomy("\t"))


#: Functions that write a sample into an empty folder, by the name of its reader.
WRITERS: dict[str, Callable[[Sample, Path], None]] = {
    "mag-cs": write_mag_cs,
    "maple json": write_maple_json,
    "maple graph": write_maple_graph,
    "pubmed-xml": write_pubmed_xml,
    "openalex": write_openalex,
    "custom json": write_json_lines,
    "custom csv": write_csv,
}
