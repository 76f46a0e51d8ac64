"""
From a HeteroData to a report
=============================

``from_hetero`` reads a graph of PyG as a corpus: which node type is classified, where its labels
are, and what becomes of the other types.
"""

# %%
# A graph
# -------
# PyG's own fake data: three node types with ``x``, random edges with attributes, and ``y`` for one
# type. Data sets such as ``IMDB``, ``DBLP`` or ``OGB_MAG`` are read likewise.

from pathlib import Path
from tempfile import TemporaryDirectory

from torch_geometric import seed_everything
from torch_geometric.datasets import FakeHeteroDataset

import match_graph as mg

seed_everything(0)
data = FakeHeteroDataset(1, num_node_types=3, num_edge_types=6, avg_num_nodes=300)[0]
print(data)

# %%
# A corpus
# --------
# Edges between ``v0``, which has ``y``, and another type make that type a metadata field,
# whichever way they point; edges between documents are citations. Other edges have no place: they
# are refused by name, unless ``drop`` leaves them out. The graph has no masks, so that documents
# are split at random.

try:
    mg.from_hetero(data)
except mg.CorpusError as error:
    print(error)
others = [edge_type for edge_type in data.edge_types if "v0" not in edge_type]
corpus = mg.from_hetero(data, document="v0", labels="y", drop=others)
print(mg.build_graph(corpus).data)

# %%
# A run and its report
# --------------------
# Any encoder serves; this one passes messages over sampled neighbourhoods. Without the call above
# ``start_run`` takes a ``HeteroData`` too, where it needs nothing to be said.

with TemporaryDirectory() as workspace:
    folder = Path(workspace)
    settings = ["model.encoder=hetero_sage", "model.init=random", "train.epochs=2"]
    config = mg.load_config(settings=[*settings, "train.batch_size=32"])
    run = mg.start_run(corpus, config, folder / "run", root=folder / "data")
    run.train()
    print(f"validation P@1 {run.evaluate()['valid']['P@1']:.3f}")
    print(mg.write_report(run.folder, root=folder / "data").name)
