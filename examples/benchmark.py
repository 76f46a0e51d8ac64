"""
A benchmark of two encoders
===========================

An experiment is a YAML file: rows (a model, and what it leaves out), data sets and measures. Every
row is run with several seeds, and tables have means with standard deviations.
"""

# %%
# The question
# ------------
# Settings of the experiment hold for all rows, those of a row for itself: a Transformer that reads
# words alone starts from vectors that no metadata have touched. An equal budget, which is the
# default, gives both rows the same number of epochs.

from pathlib import Path
from tempfile import TemporaryDirectory

import match_graph as mg

workspace = TemporaryDirectory()
folder = Path(workspace.name)
experiment = """\
question: Does MATCH gain from metadata over a Transformer of the words alone?
datasets: [synthetic]
runs: 2
split: valid
measures: [P@1, NDCG@5, violation_rate]
reference: MATCH
settings:
  data.options: {num_documents: 400, num_labels: 24, num_words: 600}
  pretrain.samples: 50000
  pretrain.channels: 24
  model.channels: 24
  train.epochs: 2
  train.batch_size: 32
rows:
  - {name: Transformer, encoder: transformer, settings: {model.init: spherical_text}}
  - {name: MATCH, encoder: match}
"""

# %%
# The run
# -------
# A cell is one row on one data set with one seed: an ordinary run folder, trained in a process of
# its own. After a kill the same call goes on, and more runs or another data set add cells.
# ``results.json`` has every cell with its settings, seconds, versions and commit.

(folder / "encoders.yaml").write_text(experiment, encoding="utf-8")
results = mg.run_benchmark(
    mg.load_experiment(folder / "encoders.yaml"), folder / "out", root=folder / "data"
)

# %%
# The tables
# ----------
# As Markdown, CSV and LaTeX; a page has the curves, reliability and case studies too.
# ``match-graph benchmark`` and ``match-graph report`` do the same on the command line.

mg.write_tables(folder / "out", results)
print((folder / "out" / "tables" / "synthetic.md").read_text(encoding="utf-8"))
page = mg.write_report(folder / "out", num_documents=1, root=folder / "data")
print(f"{page.name}: {page.stat().st_size / 1024:.0f} KiB")

workspace.cleanup()
