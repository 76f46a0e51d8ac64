"""
From a DataFrame to a report
============================

Documents that are in memory as pandas frames need no file: ``from_frames`` makes a corpus of them,
with labels, their hierarchy and features, and a run takes it as it is.
"""

# %%
# Frames
# ------
# A row per document: the text, the labels and the metadata as lists. The labels have names and
# parents, which documents carry too: the hierarchy is one of the labels of documents. Features are
# a frame with the ids in its index, or an array in the order of the rows; here a vector per
# document, as a model of yours would give.

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd

import match_graph as mg

TOPICS = {"baking": "dough", "soups": "broth", "roses": "petals", "vegetables": "carrots"}
draw = np.random.default_rng(0)
topic = draw.choice([*TOPICS], 400)
parents = dict(zip(TOPICS, ["cooking", "cooking", "gardening", "gardening"], strict=True))
words = [*TOPICS.values()]
texts = [f"{TOPICS[a]} and {draw.choice(words)}, page {n}" for n, a in enumerate(topic)]
documents = pd.DataFrame({"id": range(400), "text": texts})
documents["label"] = [[one, parents[one]] for one in topic]
documents["author"] = [[f"writer {draw.integers(9)}"] for _ in topic]
labels = pd.DataFrame({"id": [*TOPICS, "cooking", "gardening"]})
labels["name"], labels["parent"] = labels["id"].str.title(), labels["id"].map(parents)
vectors = pd.get_dummies(topic).to_numpy() + draw.normal(0, 1, (400, 4))

# %%
# A corpus
# --------
# Every fault of the frames is named in a sentence with its row. Without a column of splits
# documents are split 8 : 1 : 1 by a hash of their text.

corpus = mg.from_frames(documents, labels, fields=["author"], features={"document": vectors})
print(mg.build_graph(corpus).data["document"])

# %%
# A run and its report
# --------------------
# The corpus is built into a folder below ``root`` that its content names; the run keeps that
# name, so that ``match-graph evaluate RUN`` opens it again without the frames.

with TemporaryDirectory() as workspace:
    folder = Path(workspace)
    config = mg.load_config(settings=["pretrain.samples=50000", "train.epochs=3"])
    run = mg.start_run(corpus, config, folder / "run", root=folder / "data")
    run.train()
    print(f"validation NDCG@3 {run.evaluate()['valid']['NDCG@3']:.3f}")
    print(mg.write_report(run.folder, root=folder / "data").name)
