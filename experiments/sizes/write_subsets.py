"""Draws subsets of a data set's training documents, for choices and for learning curves.

    match-graph export biotools --to match --include-labels all --out biotools
    python experiments/sizes/write_subsets.py biotools --documents 1000 --documents 3000
    python experiments/sizes/write_subsets.py debtags --documents 10000 --labels reference

A subset of N training documents is a folder in the same layout beside the data set, such as
``biotools_1000``. An eighth as many validation documents serve to choose epochs, thresholds and
shares, and up to 1,500 others take the place of test documents; the data set's own test documents
are not read. If a data set has few validation documents, the eighth is taken from the training
documents, and all of its validation documents are tested on.

With ``--labels FIELD`` the values of a field of metadata become the labels, as in
``debtags_10000_reference``: those that ``--least`` training documents or more have, without a
hierarchy. Documents that have none of them are left out.
"""

import json
import shutil
from collections import Counter
from itertools import chain
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

#: Below so many validation documents they are not split; and the most that are tested on.
FEW, MOST = 400, 1500


def draw(folder: Path, number: int, seed: int) -> dict[str, list[str]]:
    """Lines of the files of a subset, by name.

    Args:
        folder: Data set in the layout of the authors' release.
        number: Number of documents that are trained on, those of validation among them if few.
        seed: Random seed.

    Raises:
        BadParameter: There are not as many training documents, or too few for validation.
    """
    generator = np.random.default_rng(seed)
    train, valid = (
        (folder / name).read_text(encoding="utf-8").removesuffix("\n").split("\n")
        for name in ("train.json", "dev.json")
    )
    if number > len(train):
        raise typer.BadParameter(f"must be at most {len(train):,} for {folder}, found {number:,}.")
    generator.shuffle(train)
    generator.shuffle(valid)
    eighth = number // 8
    if len(valid) < FEW:
        drawn = train[:number]
        return {"train.json": drawn[eighth:], "dev.json": drawn[:eighth], "test.json": valid}
    if eighth >= len(valid):
        raise typer.BadParameter(
            f"must leave some of the {len(valid):,} validation documents of {folder} for the test, "
            f"found {number:,}, of which an eighth is {eighth:,}."
        )
    return {
        "train.json": train[:number],
        "dev.json": valid[:eighth],
        "test.json": valid[eighth : eighth + MOST],
    }


def label_by(field: str, drawn: dict[str, list[str]], least: int = 2) -> dict[str, list[str]]:
    """Lines of the same files where the values of a field of metadata are the labels.

    Args:
        field: Name of the field.
        drawn: Lines of the files, by name.
        least: Number of training documents that a label must have.

    Raises:
        BadParameter: No value is that of so many training documents.
    """
    read = {name: [json.loads(line) for line in lines] for name, lines in drawn.items()}
    for one in chain(*read.values()):
        values = one.pop(field, [])  # a venue is one string
        one["label"] = list(dict.fromkeys([values] if isinstance(values, str) else values))
    counts = Counter(value for one in read["train.json"] for value in one["label"])
    frequent = {value for value, number in counts.items() if number >= least}
    if not frequent:
        raise typer.BadParameter(
            f"must be a field with values in {least} or more training documents, found {field!r}."
        )
    found: dict[str, list[str]] = {}
    for name, documents in read.items():
        for one in documents:
            one["label"] = [value for value in one["label"] if value in frequent]
        found[name] = [json.dumps(one) for one in documents if one["label"]]
    return found


def main(
    folder: Annotated[Path, typer.Argument(exists=True, file_okay=False)],
    documents: Annotated[list[int], typer.Option(min=8)],
    seed: int = 0,
    labels: str | None = None,
    least: Annotated[int, typer.Option(min=1)] = 2,
) -> None:
    """Writes the subsets beside the data set."""
    for number in documents:
        drawn, name = draw(folder, number, seed), f"{folder.name}_{number}"
        if labels is not None:
            drawn, name = label_by(labels, drawn, least), f"{name}_{labels}"
        subset = folder.with_name(name)
        if subset.exists():
            raise typer.BadParameter(f"{subset} is there already; remove it.")
        subset.mkdir()
        for file, lines in drawn.items():
            (subset / file).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        taxonomy, fields = folder / "taxonomy.txt", folder / "meta_dict.json"
        if labels is None:
            for path in (taxonomy, fields):
                if path.is_file():
                    shutil.copy(path, subset)
        else:  # without a hierarchy, and no longer metadata
            (subset / taxonomy.name).touch()
            content = json.loads(fields.read_text(encoding="utf-8"))
            content["metadata"] = [name for name in content["metadata"] if name != labels]
            (subset / fields.name).write_text(json.dumps(content), encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
