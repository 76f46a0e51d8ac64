"""Documents and labels in memory as the `Corpus` that a classifier is trained on."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from match_graph.corpus import Corpus
from match_graph.corpus_builder import CorpusBuilder
from match_graph.errors import CorpusError
from match_graph.io.json_lines import describe, read_id, read_metadata, read_text
from match_graph.typing import Split, Tokenizer


def make_corpus(
    documents: Sequence[Any],
    labels: Sequence[Sequence[str]],
    splits: Sequence[Split],
    fields: Sequence[str],
    hierarchy: Sequence[tuple[str, str, str]],
    tokenizer: Tokenizer = "regex",
) -> Corpus:
    """Corpus of documents in the MATCH format, with labels that stand beside them.

    Args:
        documents: Documents; one without an id is called by its number.
        labels: Labels of each.
        splits: Split of each.
        fields: Metadata fields to read.
        hierarchy: (child, parent, place) of its edges.
        tokenizer: Text tokenization, as for `split_words`.

    Raises:
        CorpusError: With every fault of the documents.
    """
    must = "The documents of a fit must be dicts in the MATCH format"
    builder = CorpusBuilder("documents", list(fields), must, tokenizer=tokenizer)
    rows = zip(documents, labels, splits, strict=True)
    for number, (record, gold, split) in enumerate(builder.documents(rows), start=1):
        place = f"document {number}"
        if not isinstance(record, Mapping):
            builder.fail(f"{place}: a document must be a dict, found {describe(record)}.")
            continue
        before = builder.num_faults
        document = read_id(record, place, builder.fail, required=False) or place
        text = read_text(record, place, builder.fail)
        metadata = read_metadata(record, builder.fields, place, builder.fail)
        if text is not None and builder.num_faults == before:
            builder.add(document, split, text, metadata, gold, place)
    return builder.build(hierarchy)


def split_documents(documents: Sequence[Any], fraction: float, seed: int) -> list[Split]:
    """Split ("train" or "valid") of each document, at random; equal texts stay together.

    Args:
        documents: Documents; one without text stands alone.
        fraction: Share of the different texts that go to valid, rounded up.
        seed: Seed of the split.

    Raises:
        CorpusError: There are fewer than two texts.
    """
    numbers: dict[Any, int] = {}
    group = []
    for row, record in enumerate(documents):
        text = record.get("text") if isinstance(record, Mapping) else None
        group.append(numbers.setdefault(text if isinstance(text, str) and text else row, row))
    if len(numbers) < 2:
        raise CorpusError(
            f"A fit needs documents of at least two texts, one of them for validation, found "
            f"{len(numbers)}; give more documents."
        )
    count = min(math.ceil(fraction * len(numbers)), len(numbers) - 1)
    held = set(np.random.default_rng(seed).permutation([*numbers.values()])[:count].tolist())
    return ["valid" if one in held else "train" for one in group]
