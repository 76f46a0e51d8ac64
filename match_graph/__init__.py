"""MATCH on PyTorch Geometric: documents with metadata into a large label hierarchy.

The line from raw files to predictions is `open_dataset` (of a name, a folder or a `Corpus`),
`start_run`, `Run.train`, `Run.evaluate`, `load`, `Classifier.predict`; `run_benchmark` compares
many runs, `write_report` makes a page of one or of many. Every part also serves alone, and more
names are in the sub-packages.
"""

import lazy_loader as lazy

from match_graph import openmp as openmp  # first: it takes effect before torch is imported

__version__ = "0.1.0"

# The names are those of __init__.pyi; a stage is imported with the first name that is used.
__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
