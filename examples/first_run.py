"""
A first run and its report
==========================

From a corpus to trained weights, measures, predictions and a page of results. The corpus is
planted: labels generate words, venues, authors and references, so that there is something to learn
and nothing to download.
"""

# %%
# Everything of this example goes into a temporary folder. Without ``root`` built data sets go
# into the user's cache folder, and without ``folder`` a run goes into ``runs/`` below the current
# one.

from pathlib import Path
from tempfile import TemporaryDirectory

import matplotlib.pyplot as plt
import pandas as pd

import match_graph as mg

workspace = TemporaryDirectory()
folder = Path(workspace.name)

# %%
# The graph
# ---------
# A data set is a PyG data set with one ``HeteroData``: documents, one node type per metadata
# field, words and labels. ``("document", "tagged", "label")`` holds the gold labels of training
# documents alone; those of other splits lie beside the graph, in ``dataset.targets``.

options = {"num_documents": 600, "num_labels": 30, "num_words": 800}
dataset = mg.open_dataset("synthetic", root=folder / "data", **options)
print(dataset[0])

# %%
# Settings
# --------
# Every key has a default, and what depends on the size of the corpus is derived from it. Keys are
# those of ``match-graph run --set``; here they make the run short.

config = mg.load_config(
    settings=[
        f"data.options={options}",
        "pretrain.samples=100000",
        "pretrain.channels=32",
        "model.channels=32",
        "train.epochs=4",
        "train.batch_size=32",
    ]
)

# %%
# The run
# -------
# ``train`` pre-trains unit vectors on the sphere first. Given the same command again, a run that
# was killed goes on where it stopped. ``evaluate`` gives the measures of the validation and the
# test documents as fractions.

run = mg.start_run("synthetic", config, folder=folder / "run", root=folder / "data")
run.train()
metrics = run.evaluate()
prior = run.prior("valid")
for name in ("P@1", "P@3", "NDCG@5"):
    print(f"{name}: {metrics['valid'][name]:.3f}, by training frequency {prior[name]:.3f}")

# %%
# ``history.csv`` in the run folder has a row per epoch.

history = pd.read_csv(folder / "run" / "history.csv")
figure, axes = plt.subplots(figsize=(5, 3), layout="constrained")
axes.plot(history["epoch"], history["NDCG@5"], marker="o")
axes.set(xlabel="epoch", ylabel="NDCG@5 on validation", xticks=history["epoch"])
plt.show()

# %%
# Predictions
# -----------
# The run folder is all that prediction needs. Metadata that training has not seen are unknown,
# not an error.

classifier = mg.load(folder / "run")
document = {"text": "w17 w3 w250 w17", "venue": "venue3", "author": ["somebody new"]}
for result in classifier.predict([document], top_k=3):
    for label in result["labels"]:
        print(f"{label['id']}: {label['probability']:.2f}")

# %%
# The report
# ----------
# The measures, curves, reliability diagrams and case studies of a run as one HTML file that loads
# nothing from elsewhere; ``match-graph report RUN`` writes it too.

page = mg.write_report(folder / "run", root=folder / "data")
print(f"{page.name}: {page.stat().st_size / 1024:.0f} KiB")

workspace.cleanup()
