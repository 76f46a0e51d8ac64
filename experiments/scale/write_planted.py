"""Writes a planted corpus as JSON lines, one file per partition of 20,000 documents.

    python experiments/scale/write_planted.py FOLDER --scale 4

What all partitions share is sampled once (600 bytes per document); texts are sampled and written by
partition. It is read by::

    match-graph build custom --set 'data.options={path: FOLDER/parts, taxonomy: FOLDER/taxonomy.txt,
        fields: [venue, author, reference], columns: {split: split}, tokenizer: whitespace}'

With --oaxmlc it is one file in the layout of OAXMLC-Bench, for `match-graph run oaxmlc
--set data.options.path=FOLDER`.
"""

import json
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path

import numpy as np
import typer

from match_graph.corpus_builder import CorpusBuilder
from match_graph.datasets.synthetic import Synthetic, make_reader
from match_graph.io.source import open_sources
from match_graph.typing import LABEL, WORD


def list_rows(builder: CorpusBuilder) -> Iterator[dict[str, object]]:
    """The documents of a builder as JSON objects."""
    lists = {}
    for name, interner in builder.types.items():
        strings = np.array(list(interner.code), dtype=object)[interner.codes].tolist()
        ends = np.concatenate([[0], np.cumsum(interner.lengths)]).tolist()
        lists[name] = [strings[start:end] for start, end in pairwise(ends)]
    names = [name for name in lists if name not in (WORD, LABEL)]
    for row, (document, split) in enumerate(
        zip(builder.columns["id"], builder.columns["split"], strict=True)
    ):
        text = " ".join(lists[WORD][row])
        fields = {name: lists[name][row] for name in (*names, LABEL)}
        yield {"id": document, "split": split, "text": text, **fields}


def write_oaxmlc(folder: Path, edges: Mapping[tuple[str, str], object]) -> None:
    """Merges the parts into the layout of OAXMLC-Bench."""
    labels = {}
    with (folder / "documents.json").open("w", encoding="utf-8") as file:
        for path in sorted((folder / "parts").iterdir()):
            for line in path.read_text(encoding="utf-8").splitlines():
                row = json.loads(line)
                labels.update(dict.fromkeys(row[LABEL]))
                title, _, abstract = row["text"].partition(" ")
                row = {
                    "id": row["id"], "title": title, "abstract": abstract, "year": 2020,
                    "topics_labels": row[LABEL], "authors": row["author"],
                    "references": row["reference"],
                }  # fmt: skip
                file.write(f"{json.dumps(row)}\n")
            path.unlink()
    (folder / "parts").rmdir()
    below: dict[str, list[str]] = {"ROOT": []}
    for child, parent in edges:
        below.setdefault(parent, []).append(child)
    lower = {child for child, _ in edges}
    labels.update(dict.fromkeys([*below, *lower]))
    del labels["ROOT"]
    below["ROOT"] = [label for label in labels if label not in lower]
    lines = [" ".join([parent, *children]) for parent, children in below.items()]
    (folder / "taxonomy.txt").write_text("\n".join([*lines, ""]), encoding="utf-8")
    entries = [json.dumps({"label": label, "title": label}) for label in labels]
    (folder / "ontology.json").write_text("\n".join([*entries, ""]), encoding="utf-8")


def main(
    folder: Path,
    like: str = "mag-cs",
    scale: float = 4.0,
    label_scale: float = 1.0,
    seed: int = 0,
    oaxmlc: bool = False,
) -> None:
    """Writes FOLDER/parts/*.jsonl and FOLDER/taxonomy.txt, or the layout of OAXMLC-Bench."""
    config = Synthetic.Config.model_validate(
        {"like": like, "scale": scale, "label_scale": label_scale, "seed": seed}
    )
    reader = make_reader(config)
    parts = folder / "parts"
    parts.mkdir(parents=True)
    with open_sources([], reader.name, None) as sources:
        total = reader.make_builder()
        reader.prepare(total, sources)
        for number, partition in enumerate(reader.list_partitions()):
            builder = reader.make_builder(is_part=True)
            reader.read(partition, builder, sources)
            with (parts / f"{number:05}.jsonl").open("w", encoding="utf-8") as file:
                file.writelines(f"{json.dumps(row)}\n" for row in list_rows(builder))
        reader.finish(total, sources)
    if oaxmlc:
        write_oaxmlc(folder, total.edges)
        return
    taxonomy = "".join(f"{parent}\t{child}\n" for child, parent in total.edges)
    (folder / "taxonomy.txt").write_text(taxonomy, encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
