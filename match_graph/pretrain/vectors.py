"""Vectors as word2vec text: written for other tools, read from GloVe and word2vec files."""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

import torch
from torch import Tensor

from match_graph.errors import CheckpointError, GraphError
from match_graph.typing import WORD

#: Characters that would end a name or a line in word2vec text, and the escape character.
_UNSAFE = re.compile(r"[\s%\x00-\x1f\x7f-\x9f]")


def escape_name(node_type: str, name: str) -> str:
    """A node's name in word2vec text; `urllib.parse.unquote` reverses it.

    Words stand as they are, other nodes as ``type/name``. White space, control characters and "%"
    become percent escapes ("Journal of Toys" is ``venue/Journal%20of%20Toys``), and so does "/" in
    words, so that no two nodes share a name.
    """
    if node_type == WORD:
        return _escape(name).replace("/", "%2F")
    return f"{_escape(node_type)}/{_escape(name)}"


def _escape(text: str) -> str:
    return _UNSAFE.sub(lambda found: quote(found.group(), safe=""), text)


def write_word2vec(
    path: Path, tables: Mapping[str, Tensor], names: Mapping[str, Iterable[str]]
) -> int:
    """Writes vectors as word2vec text, which `gensim.models.KeyedVectors` reads.

    Args:
        path: Output file, written in place.
        tables: Vectors by node type, [num_rows, C].
        names: Names of nodes by node type, at least as many as there are rows.

    Returns:
        Number of vectors written.
    """
    number = sum(len(table) for table in tables.values())
    channels = next(iter(tables.values())).size(1)
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.write(f"{number} {channels}\n")
        for node_type, table in tables.items():
            for name, row in zip(names[node_type], table, strict=False):
                values = " ".join(f"{value:.6f}" for value in row.tolist())
                file.write(f"{escape_name(node_type, name)} {values}\n")
    return number


def read_word_vectors(
    path: Path, words: Sequence[str], channels: int, seed: int = 0
) -> tuple[Tensor, int]:
    """Unit vectors of words from a GloVe or word2vec text file, with or without its header.

    Only the words asked for are kept in memory. Names may hold spaces (GloVe has such); where one
    occurs twice, the first counts. Vectors of words that the file lacks, and zero vectors, are
    sampled uniformly on the sphere.

    Args:
        path: Text file with lines "word value value ...", UTF-8.
        words: Words to look up, in the order of the result.
        channels: Width of the vectors, which the file must have.
        seed: Random seed of the vectors of words that the file lacks.

    Returns:
        Unit vectors [len(words), channels], and how many came from the file.

    Raises:
        CheckpointError: The file cannot be read, or a line is broken; named by file and line.
    """
    place = {word: row for row, word in enumerate(words)}
    generator = torch.Generator().manual_seed(seed)
    table = torch.randn(len(words), channels, generator=generator)
    found = torch.zeros(len(words), dtype=torch.bool)
    for line, name, values in _read_lines(path, channels):
        row = place.get(name)
        if row is None or found[row]:
            continue
        try:
            vector = torch.tensor([float(value) for value in values], dtype=torch.float64)
        except ValueError as error:
            raise _broken(path, line, f"a value that is no number ({error})") from error
        if not bool(vector.isfinite().all()):
            raise _broken(path, line, "a value that is not finite")
        if bool(vector.any()):  # divided first: squares of extreme values are 0 or infinite
            table[row], found[row] = vector / vector.abs().max(), True
    return torch.nn.functional.normalize(table, dim=1), int(found.sum())


def _read_lines(path: Path, channels: int) -> Iterable[tuple[int, str, list[str]]]:
    """Line number, name and values of every line but the header."""
    if not path.is_file():
        raise CheckpointError(f"Word vectors must be a text file, but there is none at '{path}'.")
    first = True
    with path.open("rb") as file:
        for number, raw in enumerate(file, 1):
            try:
                fields = raw.decode("utf-8").rstrip().split(" ")
            except UnicodeDecodeError as error:
                raise _broken(path, number, f"bytes that are not UTF-8 ({error.reason})") from error
            if number == 1 and len(fields) == 2 and all(part.isdigit() for part in fields):
                continue
            width = len(fields) - 1
            if width < channels or (first and width != channels):  # later names may hold spaces
                raise _broken(path, number, f"{width} values")
            first = False
            yield number, " ".join(fields[:-channels]), fields[-channels:]


def _broken(path: Path, line: int, found: str) -> CheckpointError:
    return CheckpointError(
        f"Word vectors must be lines of a word and as many numbers as model.channels says, found "
        f"{found} at {path}:{line}; mend the line, or set model.channels to the file's width, and "
        f"start the run again (overwrite=True, --overwrite)."
    )


def spread_label_vectors(weight: Tensor, label: Tensor, slot_channels: int) -> Tensor:
    """Weights of a linear prediction layer that start from label vectors.

    Not in the paper. A document's state consists of slots (MATCH: one per [CLS] token, of delta
    channels and the position code). A label's vector is written to the first channels of each slot,
    where the encoder's tokens hold their pre-trained vectors, scaled to the root mean square norm
    of what it replaces. The other channels keep their initial values.

    Args:
        weight: Initial weights of the head, [L, slots * slot_channels].
        label: Unit vectors of the labels, [L, C].
        slot_channels: Width of a slot.

    Raises:
        GraphError: The vectors do not fit into a slot, or are of other labels.
    """
    channels = label.size(1)
    if len(label) != len(weight) or channels > slot_channels or weight.size(1) % slot_channels:
        raise GraphError(
            f"Label vectors must fit into slots of {slot_channels} channels of the prediction "
            f"layer {list(weight.shape)}, found {list(label.shape)}; set "
            f"model.head_from_labels=false, or, if they are too wide, pretrain.channels and "
            f"model.channels to {slot_channels} or less."
        )
    slots = weight.clone().view(len(weight), -1, slot_channels)  # [L, slots, slot_channels]
    norm = slots[..., :channels].square().sum(dim=2).mean().sqrt()
    slots[..., :channels] = norm * label.to(weight).unsqueeze(1)
    return slots.view_as(weight)
