"""
Your own CSV
============

Documents of your own need no code: options say which columns hold the id, the text, the labels and
the metadata.
"""

# %%
# A file
# ------
# 600 notes on cooking and on gardening. Labels and names stand in one cell each, separated by
# semicolons. A second file holds the hierarchy: a parent and its children a line, by tabs.

import csv
import random
from pathlib import Path
from tempfile import TemporaryDirectory

import match_graph as mg

WORDS = {
    "baking": "oven dough flour yeast crust bake",
    "soups": "broth simmer pot ladle stock boil",
    "roses": "petal prune thorn bloom graft bush",
    "vegetables": "carrot soil seed harvest compost bed",
}
FILLERS = ["the", "a", "of", "with"]
PARENTS = {"cooking": ["baking", "soups"], "gardening": ["roses", "vegetables"]}
PARENT_OF = {topic: parent for parent, topics in PARENTS.items() for topic in topics}
WRITERS = {"baking": "Ada", "soups": "Ben", "roses": "Cleo", "vegetables": "Dan"}

workspace = TemporaryDirectory()
folder = Path(workspace.name)
draw = random.Random(0)
with (folder / "notes.csv").open("w", newline="", encoding="utf-8") as file:
    writer = csv.writer(file)
    writer.writerow(["number", "title", "body", "written by", "tags"])
    for number in range(600):
        topic = draw.choice([*WORDS])
        words = draw.choices(WORDS[topic].split(), k=6) + draw.choices(FILLERS, k=6)
        writers = {WRITERS[topic], draw.choice([*WRITERS.values()])}
        title, body = f"On {words[0]}", " ".join(draw.sample(words, 12))
        tags = f"{topic}; {PARENT_OF[topic]}"
        writer.writerow([number, title, body, "; ".join(sorted(writers)), tags])
hierarchy = ["\t".join([parent, *topics]) for parent, topics in PARENTS.items()]
(folder / "tags.txt").write_text("\n".join(hierarchy), encoding="utf-8")
print(*(folder / "notes.csv").read_text(encoding="utf-8").splitlines()[:3], sep="\n")

# %%
# Which column is which
# ---------------------
# ``fields`` names the metadata. Of the columns, what is not named stands in the one of its own
# name. No column says the split, so that documents are split 8 : 1 : 1 by a hash of their text; a
# column of splits or a date can decide instead. Every fault of the file is listed with its line.

options = {
    "path": str(folder / "notes.csv"),
    "taxonomy": str(folder / "tags.txt"),
    "fields": ["author"],
    "columns": {
        "id": "number", "text": ["title", "body"], "author": "written by", "label": "tags",
    },
}  # fmt: skip
dataset = mg.Custom(**options, root=folder / "data")
print(dataset[0])
print(dataset.hierarchy.num_edges, "label edges")

# %%
# A run
# -----
# The same options, as settings; ``--set 'data.options={path: notes.csv, ...}'`` on the command
# line.

config = mg.load_config(
    settings=[
        f"data.options={options}",
        "pretrain.samples=50000",
        "pretrain.channels=16",
        "model.channels=16",
        "train.epochs=3",
        "train.batch_size=32",
    ]
)
run = mg.start_run("custom", config, folder=folder / "run", root=folder / "data")
run.train()
print(f"validation NDCG@3 {run.evaluate()['valid']['NDCG@3']:.3f}")

# %%
# New notes are objects with the text and what there is of the metadata.

notes = [
    {"text": "How long to simmer a broth", "author": ["Ben"]},
    {"text": "When to prune a bush"},
]
for note, result in zip(notes, mg.load(folder / "run").predict(notes, top_k=2), strict=True):
    found = ", ".join(f"{label['id']} {label['probability']:.2f}" for label in result["labels"])
    print(f"{note['text']}: {found}")

workspace.cleanup()
