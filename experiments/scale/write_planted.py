"""Writes a planted corpus as JSON lines, a file for each piece of 20,000 documents.

    python experiments/scale/write_planted.py FOLDER --scale 4

What all pieces need is drawn once (600 bytes a document); texts are drawn and written by pieces. It
is read by::

    match-graph build custom --set 'data.options={path: FOLDER/parts, taxonomy: FOLDER/taxonomy.txt,
        fields: [venue, author, reference], columns: {split: split}, tokenizer: whitespace}'
"""

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import typer

from match_graph.corpus_builder import CorpusBuilder
from match_graph.datasets.synthetic import Synthetic, make_reader
from match_graph.io.source import open_sources
from match_graph.typing import LABEL, WORD


def list_rows(builder: CorpusBuilder) -> Iterator[dict[str, object]]:
    """The documents of a builder as objects of JSON."""
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


def main(
    folder: Path, like: str = "mag-cs", scale: float = 4.0, label_scale: float = 1.0, seed: int = 0
) -> None:
    """Writes FOLDER/parts/*.jsonl and FOLDER/taxonomy.txt."""
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
    taxonomy = "".join(f"{parent}\t{child}\n" for child, parent in total.edges)
    (folder / "taxonomy.txt").write_text(taxonomy, encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
